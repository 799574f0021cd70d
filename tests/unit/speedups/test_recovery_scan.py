"""The checksum and the scan of recovery, against the records room."""

import random
from pathlib import Path

import crc32c
import pytest

from kafkalite._speedups.records.batch_scan import scan_batches
from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.recovery_scan import scan
from kafkalite._speedups.wire.crc32c import checksum
from kafkalite.storage.log.segment import Segment
from tests.kit.seeds import chosen_seed
from tests.unit.storage.damage import CONFIG, batch, patch


@pytest.fixture
def rng() -> random.Random:
    chosen = chosen_seed()
    print(f"KAFKALITE_SEED={chosen}")
    return random.Random(chosen)


@pytest.mark.parametrize("plain", [False, True])
def test_checksum_is_crc32c(rng: random.Random, plain: bool) -> None:
    assert checksum(b"123456789", plain) == 0xE3069283
    for size in [*range(40), 1_000, 70_001]:
        data = rng.randbytes(size)
        assert checksum(data, plain) == crc32c.crc32c(data)


def segment_of(directory: Path, data: bytes) -> Segment:
    segment = Segment(0, str(directory), Disk(), CONFIG).create()
    assert segment.file is not None
    segment.file.pwrite(data, 0)
    return segment


def numbered(count: int) -> bytes:
    made = [batch(2, 1_000 * number, size=20) for number in range(count)]
    for number, each in enumerate(made):
        patch_base(each, 2 * number)
    return b"".join(made)


def patch_base(data: bytearray, offset: int) -> None:
    data[:8] = offset.to_bytes(8, "big")


def test_any_damage_ends_the_scan_at_the_expected_position(tmp_path: Path, rng: random.Random) -> None:
    whole = numbered(12)
    for number in range(300):
        data = bytearray(whole)
        at = rng.randrange(16, len(data))
        data[at] ^= 1 << rng.randrange(8)
        directory = tmp_path / str(number)
        directory.mkdir()
        segment = segment_of(directory, bytes(data))
        found = scan(segment, 0, len(data), CONFIG.index_interval_bytes)
        expected = scan_batches(bytes(data))
        size = len(whole) // 12
        if at % size in range(16):  # outside the checksum: base offset, length, leader epoch
            continue
        assert (found.end, found.batches) == (expected.end, len(expected)), f"byte {at}"
        assert found.end == at - at % size
        assert (segment.size, found.whole, found.next_offset) == (found.end, False, 2 * found.batches)


def test_more_batches_than_a_chunk_holds(tmp_path: Path) -> None:
    data = numbered(5_000)
    segment = segment_of(tmp_path, data)
    found = scan(segment, 0, len(data), CONFIG.index_interval_bytes)
    assert (found.batches, found.end, found.whole, found.next_offset) == (5_000, len(data), True, 10_000)
    assert found.epochs == [(-1, 0)]


def test_offsets_that_go_back_end_the_scan(tmp_path: Path) -> None:
    data = numbered(3) + numbered(1)
    segment = segment_of(tmp_path, data)
    assert scan(segment, 0, len(data), 100).batches == 3


@pytest.mark.parametrize("offset", [2**31, 2**40, 2**63 - 1, -1])
def test_offsets_that_no_index_can_hold_end_the_scan(tmp_path: Path, offset: int) -> None:
    segment = segment_of(tmp_path, numbered(5))
    size = len(numbered(1))
    patch(tmp_path / "00000000000000000000.log", 3 * size, offset.to_bytes(8, "big", signed=True))
    assert scan(segment, 0, 5 * size, 1).batches == 3


def test_a_length_beyond_the_file_costs_no_memory(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, numbered(3))
    patch(tmp_path / "00000000000000000000.log", 8, (2**31 - 1).to_bytes(4, "big"))
    found = scan(segment, 0, len(numbered(3)), 100)
    assert (found.batches, found.end, found.whole) == (0, 0, False)
