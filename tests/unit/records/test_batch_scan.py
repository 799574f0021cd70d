"""The scan over a file's bytes: how far the batches are good, and what stands behind them."""

from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode
from tests.kit.record_engines import build, with_fields

CORRUPT_MESSAGE = 2
BATCHES = [build((i, b"k", b"v" * i), codec=i % 5, base_offset=10 * i, leader_epoch=i) for i in range(1, 9)]
FILE = b"".join(BATCHES)
LAST_AT = len(FILE) - len(BATCHES[-1])


def test_scan_of_valid_batches(engine: Any) -> None:
    found = engine.scan_batches(FILE)
    assert (len(found), found.count, found.end, found.needs, found.error) == (8, 8, len(FILE), 0, 0)
    assert [location.base_offset for location in found] == [10 * i for i in range(1, 9)]
    assert [location.size for location in found] == [len(batch) for batch in BATCHES]
    assert found[7] == (LAST_AT, len(BATCHES[7]), 80, 0, 1, 8, 8, 3, 8, -1, -1, -1)
    with pytest.raises(IndexError):
        found[8]


def test_scan_in_parts_equals_one_scan(engine: Any) -> None:
    first = engine.scan_batches(FILE, 0, 3)
    assert (len(first), first.error, first.needs) == (3, 0, 0)
    rest = engine.scan_batches(FILE, first.end)
    assert [location.base_offset for location in rest] == [40, 50, 60, 70, 80]
    assert rest[0].position == first.end


@pytest.mark.parametrize("cut", range(1, len(BATCHES[-1])))
def test_scan_reports_a_truncated_batch_at_every_byte(engine: Any, cut: int) -> None:
    found = engine.scan_batches(FILE[:-cut])
    assert (len(found), found.end, found.error) == (7, LAST_AT, 0)
    left = len(BATCHES[-1]) - cut
    assert found.needs == (len(BATCHES[-1]) if left >= 17 else 17)


def test_scan_detects_every_flipped_bit(engine: Any) -> None:
    """But those of base offset and leader epoch, which stand outside the CRC."""
    for at in range(LAST_AT + 8, len(FILE)):
        if LAST_AT + 12 <= at < LAST_AT + 16:
            continue
        damaged = bytearray(FILE)
        damaged[at] ^= 0x10
        found = engine.scan_batches(damaged)
        assert (len(found), found.end) == (7, LAST_AT), at
        assert found.error or found.needs, at


BAD = {
    "zeros, as a file extended before a crash": (bytes(100), CORRUPT_MESSAGE),
    "magic 1": (with_fields(BATCHES[0], magic=1), KafkaErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "magic 0": (with_fields(BATCHES[0], magic=0), KafkaErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "magic 9": (with_fields(BATCHES[0], magic=9), CORRUPT_MESSAGE),
    "negative length": (with_fields(BATCHES[0], batch_length=-5), CORRUPT_MESSAGE),
    "length below the header": (with_fields(BATCHES[0], batch_length=48), CORRUPT_MESSAGE),
    "wrong CRC": (with_fields(BATCHES[0], crc=0), CORRUPT_MESSAGE),
}


@pytest.mark.parametrize(("tail", "error"), BAD.values(), ids=BAD)
def test_scan_error_behind_valid_batches(engine: Any, tail: bytes, error: int) -> None:
    found = engine.scan_batches(FILE + tail + FILE)
    assert (len(found), found.end, found.error, found.needs) == (8, len(FILE), error, 0)


def test_scan_of_an_empty_buffer(engine: Any) -> None:
    for data, position in ((b"", 0), (FILE, len(FILE))):
        found = engine.scan_batches(data, position)
        assert (len(found), found.end, found.needs, found.error) == (0, position, 0, 0)


@pytest.mark.parametrize("position", [-1, len(FILE) + 1])
def test_scan_position_outside_the_buffer(engine: Any, position: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        engine.scan_batches(FILE, position)


def test_scan_of_more_batches_than_the_initial_capacity(engine: Any) -> None:
    found = engine.scan_batches(BATCHES[0] * 1000)
    assert (len(found), found[999].position) == (1000, 999 * len(BATCHES[0]))
