"""Damaged records in Fetch responses: the records before the damage, then an error that names where to continue.

Takes a tenth of --fuzz-inputs. Replays from KAFKALITE_SEED.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from kafkalite_sdk._speedups.aiokafka_records import converted
from kafkalite_sdk._speedups.consumer_records import Record, RecordDecoder
from kafkalite_sdk._speedups.fetched_records import FetchedRecords

from kafkalite.records import Builder, compression, set_base_offset
from tests.kit.leaks import heap_grown
from tests.kit.record_engines import PY, damaged, random_batch, seed, small_batch

SHARE = 10
DECOMPRESSED_MAX = 1 << 16
DAMAGED_PER_BATCH = 10
CODES = {2, 10, 76, 87}
LEAK_MAX = 64 * 1024
DECODER: RecordDecoder[bytes, bytes] = RecordDecoder(decompressed_max=DECOMPRESSED_MAX)
OFFLOADING: RecordDecoder[bytes, bytes] = RecordDecoder(decompressed_max=DECOMPRESSED_MAX, offload_bytes=100)


def at_offset(batch: bytes, base_offset: int) -> bytes:
    moved = bytearray(batch)
    if len(moved) >= 61:
        set_base_offset(moved, base_offset)
    return bytes(moved)


def read_all(fetched: FetchedRecords[bytes, bytes], rng: random.Random) -> list[Record[bytes, bytes]]:
    """Take the records in parts, and read every field."""
    records: list[Record[bytes, bytes]] = []
    while not fetched.done:
        position = fetched.position
        count = fetched.take(records, rng.choice((1, 2, 7, 1000)))
        assert fetched.position >= position + count
        if fetched.waits:
            fetched.decompress()
        elif not count:
            break
    assert fetched.done
    for record in records:
        assert record.key == record.raw_key and record.value == record.raw_value
        assert isinstance(record.headers, tuple) and isinstance(record.timestamp_ms, int) and repr(record)
        assert aiokafka_fields(record) == (record.key, record.value, record.headers, record.timestamp_ms)
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    return records


def aiokafka_fields(record: Record[bytes, bytes]) -> tuple[Any, ...]:
    found = converted(record)
    return found.key, found.value, found.headers, found.timestamp


@pytest.mark.fuzz
def test_random_batches_have_the_fields_of_the_plain_reader(fuzz_inputs: int) -> None:
    rng = random.Random(seed())
    for _ in range(max(200, fuzz_inputs // SHARE // 50)):
        base = rng.choice((0, 1 << 40, 2**63 - 1000))
        batch = at_offset(random_batch(rng), base)
        fetched = FetchedRecords(OFFLOADING if rng.random() < 0.5 else DECODER, "t", 0, batch, base)
        (expected,) = PY.batches(batch, 1 << 30)
        fields = [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in expected.records()]
        if fetched.error is None and sum(len(str(each)) for each in fields) < DECOMPRESSED_MAX // 8:
            found = read_all(fetched, rng)
            assert [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in found] == fields
            assert fetched.error is None and fetched.position == fetched.end_offset == base + len(fields)


@pytest.mark.fuzz
def test_records_before_damage_are_returned_and_seek_skips_it(
    fuzz_inputs: int, record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(seed())
    outcomes: Counter[str] = Counter()
    for number in range(fuzz_inputs // SHARE):
        if number % DAMAGED_PER_BATCH == 0:
            first, bad, last = (small_batch(rng) for _ in range(3))
        outcomes[try_damage(rng, first, damaged(rng, bad), last)] += 1
    record_property("summary", f"fetched records fuzz: {dict(outcomes)}")
    print(outcomes)
    assert outcomes["skipped"] and outcomes["unharmed"]


def try_damage(rng: random.Random, first: bytes, bad: bytes, last: bytes) -> str:
    """Read a whole, a damaged and a whole batch."""
    before = len(PY.batches(first, 1 << 30)[0].records())
    bad = at_offset(bad, before)
    last = at_offset(last, before + 100)
    data: Any = rng.choice((bytes, bytearray, memoryview))(first + bad + last)
    fetched = FetchedRecords(rng.choice((DECODER, OFFLOADING)), "t", 0, data, 0)
    records = read_all(fetched, rng)
    assert [record.offset for record in records][:before] == list(range(before))
    error = fetched.error
    if error is None:
        return "unharmed"
    assert error.code in CODES and not error.retriable
    assert (error.topic, error.partition, error.offset) == ("t", 0, fetched.position)
    assert error.next_offset > error.offset >= before and str(error)
    position = max(error.next_offset, before + 100)  # a broker finds the next whole batch
    end = before + 100 + len(PY.batches(last, 1 << 30)[0].records())
    if position < end:
        behind = read_all(FetchedRecords(DECODER, "t", 0, last, position), rng)
        assert [record.offset for record in behind] == list(range(position, end))
    return "skipped"


@pytest.mark.fuzz
@pytest.mark.parametrize("codec", [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD])
def test_large_decompressed_batches_are_rejected_within_bounded_memory(codec: int) -> None:
    builder = Builder()
    builder.append(0, None, bytes(8 << 20))
    data = builder.build(codec)
    for decoder in (DECODER, OFFLOADING):

        def reject(decoder: RecordDecoder[bytes, bytes] = decoder) -> None:
            fetched = FetchedRecords(decoder, "t", 0, data, 0)
            assert read_all(fetched, random.Random(0)) == []
            assert fetched.error is not None and fetched.error.code == 10

        assert heap_grown(reject) < LEAK_MAX


@pytest.mark.fuzz
def test_damaged_records_leak_nothing() -> None:
    rng = random.Random(seed())
    inputs = [damaged(rng, small_batch(rng)) for _ in range(2000)]

    def read() -> None:
        for data in inputs:
            fetched = FetchedRecords(DECODER, "t", 0, data, 0)
            read_all(fetched, rng)

    assert heap_grown(read) < LEAK_MAX
