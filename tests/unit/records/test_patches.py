"""Header fields patched in place, and batches written again with another codec."""

from typing import Any

import pytest

from kafkalite.records import BatchError
from tests.kit.record_engines import CODECS, SIZE_MAX, C, build

RECORDS = [(1000 + i, b"key", b"value %d" % i * 20, [("h", None)]) for i in range(50)]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_base_offset_and_leader_epoch_do_not_change_the_crc(engine: Any, codec: int) -> None:
    batch = bytearray(build(*RECORDS, codec=codec))
    engine.set_base_offset(batch, 2**62 + 5)
    engine.set_leader_epoch(batch, 77)
    read = engine.Batch(batch)
    read.check_crc()
    assert (read.base_offset, read.leader_epoch, read.last_offset) == (2**62 + 5, 77, 2**62 + 54)
    assert [record.offset for record in read][:2] == [2**62 + 5, 2**62 + 6]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_set_log_append_time(engine: Any, codec: int) -> None:
    batch = bytearray(build(*RECORDS, codec=codec))
    assert engine.set_log_append_time(batch, 5_000)
    read = engine.Batch(batch)
    read.check_crc()
    assert (read.log_append_time, read.max_timestamp, read.base_timestamp, read.codec) == (True, 5_000, 1000, codec)
    assert {record.timestamp for record in read} == {5_000}
    assert not engine.set_log_append_time(batch, 5_000), "nothing left to change"


def test_set_max_timestamp(engine: Any) -> None:
    batch = bytearray(build(*RECORDS))
    assert not engine.set_max_timestamp(batch, 1049)
    assert engine.set_max_timestamp(batch, 2000)
    assert engine.validate_batch(batch, compacted=False, size_max=SIZE_MAX).header_max_timestamp == 2000
    assert engine.set_log_append_time(batch, 2000)
    assert engine.set_max_timestamp(batch, 2000), "the timestamp type goes back to CreateTime"
    read = engine.Batch(batch)
    read.check_crc()
    assert (read.log_append_time, read.records()[3].timestamp) == (False, 1003)


def test_refresh_reads_the_patched_header(engine: Any) -> None:
    batch = bytearray(build((5, None, b""), (9, None, b""), (7, None, b""), codec=3))
    found = engine.validate_batch(batch, compacted=False, size_max=SIZE_MAX)
    engine.set_max_timestamp(batch, 10)
    found.refresh(batch)
    assert (found.max_timestamp, found.header_max_timestamp, found.offset_of_max_timestamp) == (10, 10, 1)
    again = bytearray(engine.recompress(batch, 0))
    engine.set_log_append_time(again, 5000)
    engine.set_leader_epoch(again, 4)
    found.refresh(again)
    assert (found.max_timestamp, found.header_max_timestamp, found.offset_of_max_timestamp) == (5000, 5000, 2)
    assert (found.size, found.codec, found.attributes, found.leader_epoch) == (len(again), 0, 8, 4)
    assert (found.error, found.walked, found.records_count) == (0, True, 3)


def test_patches_of_read_only_bytes_raise() -> None:
    for patch in (C.set_base_offset, C.set_leader_epoch, C.set_max_timestamp, C.set_log_append_time):
        with pytest.raises(BufferError):
            patch(build(*RECORDS), 1)
        with pytest.raises(BatchError):
            patch(bytearray(60), 1)


@pytest.mark.parametrize("codec_from", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("codec_to", CODECS.values(), ids=CODECS)
def test_recompress_keeps_records_and_header(engine: Any, codec_from: int, codec_to: int) -> None:
    fields = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 9, "transactional": True, "leader_epoch": 3}
    batch = build(*RECORDS, codec=codec_from, **fields)
    again = engine.recompress(batch, codec_to)
    assert again == build(*RECORDS, codec=codec_to, **fields)
    assert engine.validate_batch(again, compacted=True, size_max=SIZE_MAX).error == 0


@pytest.mark.parametrize(("codec", "levels"), [(1, (1, 9)), (3, (1, 9)), (3, (9, 17)), (4, (1, 19)), (4, (-5, 1))])
def test_recompress_levels(engine: Any, codec: int, levels: tuple[int, int]) -> None:
    batch = build(*[(i, None, b"%d" % (i * i * 7919) * 9) for i in range(800)])
    low, high = (engine.recompress(batch, codec, level) for level in levels)
    assert low != high
    assert engine.recompress(low, 0) == engine.recompress(high, 0) == batch


def test_recompress_decompression_is_bounded(engine: Any) -> None:
    batch = build((1, None, bytes(1 << 20)), codec=3)
    with pytest.raises(BatchError) as raised:
        engine.recompress(batch, 0, decompressed_max=1 << 20)
    assert raised.value.code == 10
    assert len(engine.recompress(batch, 0, decompressed_max=(1 << 20) + 100)) > 1 << 20


def test_recompress_without_codec(engine: Any) -> None:
    with pytest.raises(BatchError) as raised:
        engine.recompress(build(*RECORDS), 5)
    assert raised.value.code == 76
