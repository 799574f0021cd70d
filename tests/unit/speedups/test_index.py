"""Offset and time index, against plain lists."""

import random
from bisect import bisect_right

import pytest

from kafkalite._speedups.storage.index import CorruptIndexError, OffsetIndex, TimeIndex
from tests.kit.seeds import chosen_seed

BASE = 1_000_000


@pytest.fixture
def seed() -> int:
    chosen = chosen_seed()
    print(f"KAFKALITE_SEED={chosen}")
    return chosen


def test_offsets_against_bisect(seed: int) -> None:
    rng = random.Random(seed)
    for size in (0, 1, 2, 3, 17, 200):
        offsets = sorted(rng.sample(range(BASE, BASE + 5_000), size))
        positions = sorted(rng.sample(range(1, 100_000), size))
        index = OffsetIndex(BASE)
        for offset, position in zip(offsets, positions, strict=True):
            index.append(offset, position)
        assert index.entries() == list(zip(offsets, positions, strict=True))
        for wanted in [*offsets, *(rng.randrange(BASE - 5, BASE + 5_100) for _ in range(50))]:
            at = bisect_right(offsets, wanted)
            assert index.look_up(wanted) == (positions[at - 1] if at else 0)
        again = OffsetIndex(BASE)
        again.load(index.tobytes(), 100_000)
        assert again.entries() == index.entries()


def test_times_against_bisect(seed: int) -> None:
    rng = random.Random(seed)
    times = sorted(rng.sample(range(5_000), 100))
    index = TimeIndex(BASE)
    for number, timestamp in enumerate(times):
        index.append(timestamp, BASE + 3 * number)
        index.append(timestamp, BASE + 3 * number + 1)
    assert index.entries() == [(timestamp, BASE + 3 * number) for number, timestamp in enumerate(times)]
    assert index.last() == (times[-1], BASE + 297)
    for wanted in [*times, *(rng.randrange(5_100) for _ in range(50))]:
        at = bisect_right(times, wanted - 1)
        assert index.look_up(wanted) == (BASE + 3 * (at - 1) if at else BASE)


def test_the_bytes_are_kafkas() -> None:
    offsets = OffsetIndex(100)
    offsets.append(105, 4097)
    assert offsets.tobytes() == bytes.fromhex("00000005 00001001")
    times = TimeIndex(100)
    times.append(1_500_000_000_000, 107)
    assert times.tobytes() == bytes.fromhex("0000015d3ef79800 00000007")


def test_entries_must_grow_and_fit() -> None:
    index = OffsetIndex(BASE)
    index.append(BASE + 5, 10)
    for offset, position in ((BASE + 5, 20), (BASE + 4, 20)):
        with pytest.raises(ValueError, match="is not above the last entry"):
            index.append(offset, position)
    for offset, position in ((BASE - 1, 20), (BASE + 2**31, 20), (BASE + 9, 2**31), (BASE + 9, -1)):
        with pytest.raises(OverflowError):
            index.append(offset, position)
    with pytest.raises(OverflowError):
        TimeIndex(BASE).append(1, BASE + 2**31)
    assert len(index) == 1


def test_truncation() -> None:
    index = OffsetIndex(BASE)
    for number in range(10):
        index.append(BASE + 10 * number, 100 * number)
    index.mark_written()
    index.truncate(BASE + 51)
    assert (len(index), index.written) == (6, 6)
    index.truncate(BASE + 50)
    assert index.entries()[-1] == (BASE + 40, 400)
    assert (index.written, index.tobytes(4)) == (5, index.tobytes()[32:])
    index.truncate(BASE)
    assert index.tobytes() == b""


def entry(relative: int, position: int) -> bytes:
    return relative.to_bytes(4, "big", signed=True) + position.to_bytes(4, "big", signed=True)


@pytest.mark.parametrize(
    "data",
    [
        b"1234567",
        entry(1, 5) + b"1",
        entry(-1, 5),
        entry(1, -5),
        entry(1, 1_000),
        entry(1, 5) + entry(1, 6),
        entry(2, 5) + entry(1, 6),
        entry(1, 5) + entry(2, 5),
        entry(1, 5) + bytes(8),
    ],
)
def test_insane_offset_indexes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptIndexError):
        OffsetIndex(BASE).load(data, 1_000)


@pytest.mark.parametrize(
    "data",
    [
        b"12345678901",
        bytes(8) + entry(-1, 0)[:4],
        bytes(8) + entry(50, 0)[:4],
        bytes(24),
        (7).to_bytes(8, "big") + entry(5, 0)[:4] + (8).to_bytes(8, "big") + entry(4, 0)[:4],
    ],
)
def test_insane_time_indexes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptIndexError):
        TimeIndex(BASE).load(data, BASE + 50)


def test_random_bytes_never_crash(seed: int) -> None:
    rng = random.Random(seed)
    accepted = 0
    for _ in range(2_000):
        data = rng.randbytes(rng.choice([0, 7, 8, 12, 16, 24, 96]))
        for index, limit in ((OffsetIndex(BASE), 2**31), (TimeIndex(BASE), BASE + 2**31)):
            try:
                index.load(data, limit)
            except CorruptIndexError:
                continue
            accepted += 1
            assert index.tobytes() == data
            index.look_up(rng.randrange(2**40))
    assert accepted
