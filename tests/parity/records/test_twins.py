"""The engine and its twin give the same verdict: on good batches, on damaged ones, in every field."""

import random
from typing import Any

import pytest

from kafkalite.records import BatchError
from tests.kit.record_engines import PY, C, damaged, random_batch, random_records, seed, small_batch

GOOD_BATCHES = 60
DAMAGED_PER_BATCH = 60
FIELDS = (
    *("error", "base_offset", "last_offset_delta", "records_count", "base_timestamp", "max_timestamp", "walked"),
    *("header_max_timestamp", "offset_of_max_timestamp", "attributes", "codec", "producer_id", "producer_epoch"),
    *("base_sequence", "size", "leader_epoch"),
)


def inspected(engine: Any, data: bytes, rules: dict[str, Any]) -> tuple[Any, ...]:
    found = engine.validate_batch(data, **rules)
    indexes = [at for at, _ in found.record_errors]
    assert bool(found.message) == bool(found.error)
    return (*(getattr(found, name) for name in FIELDS), indexes)


def read(engine: Any, data: bytes) -> Any:
    """Every batch and record, or the error's code."""
    try:
        return [
            (
                *(batch.position, batch.size, batch.attributes, batch.last_offset, batch.crc),
                *((r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch),
            )
            for batch in engine.batches(data, 1 << 20)
        ]
    except BatchError as error:
        return error.code


def scanned(engine: Any, data: bytes) -> tuple[Any, ...]:
    found = engine.scan_batches(data)
    return (list(found), found.end, found.needs, found.error)


def random_rules(rng: random.Random) -> dict[str, Any]:
    rules: dict[str, Any] = {"compacted": rng.random() < 0.3, "size_max": rng.choice((1000, 1 << 20, 1 << 30))}
    if rng.random() < 0.3:
        rules["timestamp_min"], rules["timestamp_max"] = rng.choice(((0, 10_000), (0, 1_700_000_000_000), (-5, -3)))
    for name in ("walk_compressed", "zstd_allowed", "control_allowed"):
        if rng.random() < 0.3:
            rules[name] = rng.random() < 0.5
    return rules


@pytest.mark.parametrize("part", range(4))
def test_validator_and_twin_agree(part: int) -> None:
    rng = random.Random(f"{seed()} {part}")
    for _ in range(GOOD_BATCHES):
        good = small_batch(rng) if rng.random() < 0.8 else random_batch(rng)
        for data in (good, *(damaged(rng, good) for _ in range(DAMAGED_PER_BATCH))):
            rules = random_rules(rng)
            assert inspected(C, data, rules) == inspected(PY, data, rules), (data.hex(), rules)
            assert read(C, data) == read(PY, data), data.hex()
            assert scanned(C, good + data + good) == scanned(PY, good + data + good), data.hex()


def test_builder_and_twin_write_the_same_bytes() -> None:
    rng = random.Random(seed())
    for _ in range(100):
        records = random_records(rng, rng.choice((1, 3, 70)))
        size_max = rng.choice((3000, 2**31 - 1))
        built = []
        for engine in (C, PY):
            builder = engine.Builder(size_max)
            appended = [builder.append(*record) for record in records]
            built.append((appended, builder.size, builder.build(3, producer_id=4, base_sequence=9)))
        assert built[0] == built[1]


@pytest.mark.parametrize("patch", ["set_base_offset", "set_leader_epoch", "set_max_timestamp", "set_log_append_time"])
def test_patches_and_twin_write_the_same_bytes(patch: str) -> None:
    rng = random.Random(seed())
    for _ in range(200):
        ours = bytearray(random_batch(rng))
        theirs = bytearray(ours)
        value = rng.choice((0, 1, -1, 2**31 - 1, rng.getrandbits(31)))
        assert getattr(C, patch)(ours, value) == getattr(PY, patch)(theirs, value)
        assert ours == theirs
