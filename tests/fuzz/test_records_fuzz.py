"""Damaged batches and compressed bytes: an answer or a typed error, never anything else, and nothing leaks.

Takes a tenth of --fuzz-inputs: each input is inspected, read record by record and scanned. Replays from KAFKALITE_SEED.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.records import (
    BatchError,
    batches,
    compression,
    recompress,
    scan_batches,
    set_log_append_time,
    validate_batch,
)
from kafkalite.records.legacy import entries
from tests.kit.leaks import heap_grown
from tests.kit.record_engines import damaged, seed, small_batch

SHARE = 10
DAMAGED_PER_BATCH = 25
COMPRESSED_MIN = 100  # one in six is too large; so many that no seed misses one
ENOUGH = 10_000  # inputs after which every kind of verdict has surely been met
SIZE_MAX = 1 << 12
DECOMPRESSED_MAX = 1 << 20
CODES = {2, 10, 32, 76, 87}
LEAK_MAX = 64 * 1024  # bytes; a leak of one object per input would be megabytes


class Tally:
    """What became of the inputs."""

    def __init__(self) -> None:
        self.inputs = 0
        self.past_header = 0
        self.good = 0
        self.codes: Counter[int] = Counter()
        self.read_codes: Counter[int] = Counter()
        self.faults: Counter[str] = Counter()

    def lines(self) -> str:
        head = f"{self.inputs} inputs, {self.past_header} past the header, {self.good} good"
        return f"records fuzz: {head}\n  errors: {dict(self.codes)}, reading: {dict(self.read_codes)}\n  {self.faults}"


def fault_kind(text: str) -> str:
    """The text of a record error without its numbers."""
    return " ".join(word for word in text.split() if not any(c.isdigit() for c in word))


def try_batch(data: bytes, tally: Tally) -> None:
    """All that the broker and a client do with a batch; only BatchError is foreseen, and only from reading."""
    tally.inputs += 1
    rules: dict[str, Any] = {
        "compacted": tally.inputs % 3 == 0,
        "size_max": SIZE_MAX,
        "decompressed_max": DECOMPRESSED_MAX,
    }
    if tally.inputs % 5 == 0:
        rules["timestamp_min"] = 1
    found = validate_batch(data, **rules)
    tally.codes[found.error] += 1
    assert found.error == 0 or found.error in CODES
    assert bool(found.error) == bool(found.message)
    for index, text in found.record_errors:
        assert 0 <= index < found.records_count
        tally.faults[fault_kind(text)] += 1
    tally.past_header += found.walked or bool(found.record_errors)
    if found.error == 0:
        tally.good += 1
        use_good_batch(data, found.records_count, found.max_timestamp)
    try:
        for batch in batches(data, DECOMPRESSED_MAX):
            batch.records()
    except BatchError as error:
        assert error.code in CODES
        tally.read_codes[error.code] += 1
    assert len(scan_batches(data)) <= 1 + len(data) // 61


def use_good_batch(data: bytes, count: int, max_timestamp: int) -> None:
    """A batch that was found valid can be read, scanned, patched and written again."""
    (batch,) = batches(data, DECOMPRESSED_MAX)
    records = list(batch)
    assert len(records) == count == len(batch.records())
    assert max(record.timestamp for record in records) == max_timestamp or max_timestamp == -1
    assert [record.offset for record in records] == list(range(count))
    again = bytearray(recompress(data, compression.NONE, decompressed_max=DECOMPRESSED_MAX))
    set_log_append_time(again, 1)
    assert len(scan_batches(again)) == len(scan_batches(data)) == 1


@pytest.mark.fuzz
def test_damaged_batches(fuzz_inputs: int, record_property: Callable[[str, object], None]) -> None:
    rng = random.Random(seed())
    tally = Tally()
    while tally.inputs < fuzz_inputs // SHARE:
        good = small_batch(rng)
        for _ in range(DAMAGED_PER_BATCH):
            try_batch(damaged(rng, good), tally)
    print(tally.lines())
    record_property("summary", tally.lines())
    assert tally.past_header >= 0.3 * tally.inputs
    assert 0 < tally.good < tally.inputs
    if tally.inputs >= ENOUGH:
        assert set(tally.codes) == CODES | {0}
        assert len(tally.faults) == 8, tally.faults


@pytest.mark.fuzz
@pytest.mark.parametrize("codec", [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD])
def test_damaged_compression(codec: int, fuzz_inputs: int) -> None:
    rng = random.Random(f"{seed()} {codec}")
    outcomes: Counter[int] = Counter()
    for _ in range(max(COMPRESSED_MIN, fuzz_inputs // SHARE // 4 // DAMAGED_PER_BATCH)):
        plain = rng.randbytes(rng.choice((0, 10, 200))) * rng.choice((1, 50))
        good = compression.compress(codec, plain)
        for _ in range(DAMAGED_PER_BATCH):
            try:
                out = compression.decompress(codec, changed(rng, good), 5000)
                assert len(out) <= 5000
                outcomes[0] += 1
            except BatchError as error:
                outcomes[error.code] += 1
    assert set(outcomes) <= {0, 10, 87}
    assert outcomes[87] and outcomes[10]


def changed(rng: random.Random, good: bytes) -> bytes:
    data = bytearray(good)
    for _ in range(rng.choice((0, 1, 1, 1, 3))):
        at = rng.randrange(len(data))
        if rng.random() < 0.8:
            data[at] = rng.choice((0, 0xFF, data[at] ^ 1 << rng.randrange(8), rng.randrange(256)))
        else:
            data[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
        data = data or bytearray(1)
    return bytes(data)


@pytest.mark.fuzz
def test_random_bytes_as_legacy_messages(fuzz_inputs: int) -> None:
    """Magic 0 and 1 from damaged logs: BatchError at most."""
    rng = random.Random(seed())
    refused = 0
    for _ in range(fuzz_inputs // SHARE // 4):
        good = damaged(rng, small_batch(rng))
        data = bytearray(good[:200])
        data[8:12] = (rng.choice((len(data) - 12, rng.getrandbits(8)))).to_bytes(4, "big", signed=True)
        if len(data) > 16:
            data[16] = rng.choice((0, 1))
        try:
            for entry in entries(data, 5000):
                entry.records()
        except BatchError:
            refused += 1
    assert refused


@pytest.mark.fuzz
def test_refusals_leak_nothing() -> None:
    rng = random.Random(seed())
    inputs = [damaged(rng, small_batch(rng)) for _ in range(2000)]
    tally = Tally()

    def refuse() -> None:
        for data in inputs:
            try_batch(data, tally)

    grown = heap_grown(refuse)
    assert tally.codes[87] > 500
    assert grown < LEAK_MAX
