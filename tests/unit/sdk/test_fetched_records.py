"""Records of a Fetch response: fields, deserializers, control batches, aborted transactions, compaction, memory."""

import gc
import pickle
import random
import tracemalloc
from typing import Any

import pytest
from crc32c import crc32c
from kafkalite_sdk._speedups.consumer_records import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    Record,
    RecordDecoder,
)
from kafkalite_sdk._speedups.fetched_records import FetchedRecords

from kafkalite.records import Builder, compression, set_log_append_time
from kafkalite.records.control import ControlType, Marker, build_marker
from tests.unit.records.clients import aiokafka_legacy

CODECS = pytest.mark.parametrize("codec", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])


def batch(
    base_offset: int,
    *values: bytes | None,
    codec: int = 0,
    leader_epoch: int = 5,
    key: bytes | None = b"key",
    **fields: Any,
) -> bytes:
    builder = Builder()
    for number, value in enumerate(values):
        builder.append(1000 + number, key, value, [("source", b"app"), ("empty", None)])
    return builder.build(codec, base_offset=base_offset, leader_epoch=leader_epoch, **fields)


def marker(base_offset: int, kind: ControlType, producer_id: int) -> bytes:
    built = bytearray(build_marker(Marker(kind, 0), producer_id, 0, 1000))
    built[:8] = base_offset.to_bytes(8, "big")
    return bytes(built)


def opened(data: Any, position: int = 0, aborted: Any = (), **settings: Any) -> FetchedRecords[bytes, bytes]:
    decoder: RecordDecoder[bytes, bytes] = RecordDecoder(**settings)
    return FetchedRecords(decoder, "orders", 3, data, position, aborted)


def taken(fetched: FetchedRecords[Any, Any], records_max: int = 1 << 30) -> list[Record[Any, Any]]:
    records: list[Record[Any, Any]] = []
    while fetched.take(records, records_max):
        pass
    return records


def offsets(fetched: FetchedRecords[Any, Any]) -> list[int]:
    return [record.offset for record in taken(fetched)]


@CODECS
def test_fields_of_a_record(codec):
    fetched = opened(batch(40, b"first", b"second", codec=codec))
    first, second = taken(fetched)
    assert (first.topic, first.partition, first.offset, first.leader_epoch) == ("orders", 3, 40, 5)
    assert (first.timestamp_ms, second.timestamp_ms, first.timestamp_type) == (1000, 1001, CREATE_TIME)
    assert (first.key, first.value, second.value) == (b"key", b"first", b"second")
    assert first.headers == (("source", b"app"), ("empty", None))
    assert (fetched.position, fetched.leader_epoch, fetched.done, fetched.error) == (42, 5, True, None)
    assert "orders" in repr(first) and "40" in repr(first) and "first" in repr(first)


def test_null_key_and_value_are_none_and_not_deserialized():
    (record,) = taken(opened(batch(0, None, key=None), key_deserializer=bytes.decode, value_deserializer=bytes.decode))
    assert record.key is None and record.value is None
    assert record.raw_key is None and record.raw_value is None


def test_each_field_is_deserialized_once():
    calls = []

    class Upper:
        def deserialize(self, topic: str, headers: Any, data: bytes) -> str:
            calls.append((topic, headers, data))
            return data.decode().upper()

    (record,) = taken(opened(batch(0, b"value"), key_deserializer=bytes.decode, value_deserializer=Upper()))
    assert not calls
    assert (record.value, record.value, record.key) == ("VALUE", "VALUE", "key")
    assert calls == [("orders", (("source", b"app"), ("empty", None)), b"value")]
    assert record.raw_value == b"value" and record.raw_key == b"key"


def test_an_error_of_a_deserializer_names_the_record():
    (record,) = taken(opened(batch(7, b"\xff"), value_deserializer=bytes.decode))
    with pytest.raises(UnicodeDecodeError) as caught:
        record.value  # noqa: B018
    assert caught.value.__notes__ == ["in the value of orders-3 at offset 7"]
    assert record.raw_value == b"\xff"


def test_log_append_time_is_the_timestamp_of_all_records():
    data = bytearray(batch(0, b"a", b"b"))
    set_log_append_time(data, 5000)
    assert [(each.timestamp_ms, each.timestamp_type) for each in taken(opened(data))] == [(5000, LOG_APPEND_TIME)] * 2


def test_records_below_the_position_are_skipped():
    data = batch(10, b"a", b"b", b"c") + batch(13, b"d")
    assert offsets(opened(data, 12)) == [12, 13]
    assert offsets(opened(data, 13)) == [13]


@pytest.mark.parametrize("records_max", [1, 2, 3, 100])
def test_records_are_taken_in_parts(records_max):
    data = batch(10, b"a", b"b", b"c") + batch(13, b"d", b"e")
    fetched = opened(data, 11)
    records: list[Record[bytes, bytes]] = []
    counts = []
    while count := fetched.take(records, records_max):
        counts.append(count)
        assert fetched.position == records[-1].offset + 1
    assert max(counts) <= records_max
    assert [record.value for record in records] == [b"b", b"c", b"d", b"e"]


def test_a_batch_without_records_advances_the_position():
    """Compaction keeps the header of the last batch of a producer."""
    data = bytearray(batch(10, b"a", b"b"))
    empty = bytearray(data[:61])
    empty[8:12] = (61 - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    fetched = opened(empty, 10, check_crcs=False)
    assert offsets(fetched) == [] and fetched.position == 12 and fetched.done and fetched.error is None


def test_control_batches_are_skipped():
    data = batch(0, b"a") + marker(1, ControlType.COMMIT, 7) + batch(2, b"b")
    fetched = opened(data)
    assert offsets(fetched) == [0, 2]
    fetched = opened(marker(5, ControlType.COMMIT, 7), 5)
    assert offsets(fetched) == [] and fetched.position == 6 and fetched.error is None


def transactions() -> bytes:
    """Producer 1 aborts offsets 0 and 3, then commits 6; producer 2 commits 1; 2 has no transaction."""
    return b"".join(
        (
            batch(0, b"aborted", producer_id=1, producer_epoch=0, transactional=True),
            batch(1, b"committed", producer_id=2, producer_epoch=0, transactional=True),
            batch(2, b"plain", producer_id=1, producer_epoch=0),
            batch(3, b"aborted", producer_id=1, producer_epoch=0, transactional=True),
            marker(4, ControlType.COMMIT, 2),
            marker(5, ControlType.ABORT, 1),
            batch(6, b"committed", producer_id=1, producer_epoch=0, transactional=True),
            marker(7, ControlType.COMMIT, 1),
        )
    )


def test_read_committed_skips_aborted_transactions():
    fetched = opened(transactions(), aborted=[(1, 0)], read_committed=True)
    assert [record.value for record in taken(fetched)] == [b"committed", b"plain", b"committed"]
    assert fetched.position == 8


def test_read_uncommitted_returns_aborted_transactions():
    assert offsets(opened(transactions(), aborted=[(1, 0)])) == [0, 1, 2, 3, 6]


def test_a_later_transaction_of_an_aborted_producer_is_aborted_from_its_first_offset():
    fetched = opened(transactions(), aborted=[(1, 6), (1, 0)], read_committed=True)
    assert [record.offset for record in taken(fetched)] == [1, 2]


def test_end_offset_is_known_before_records_are_decoded():
    fetched = opened(batch(10, b"a", b"b") + batch(12, b"c", leader_epoch=6))
    assert (fetched.end_offset, fetched.end_epoch, fetched.continues, fetched.position) == (13, 6, True, 0)


def test_a_truncated_last_batch_is_ignored():
    data = batch(0, b"a") + batch(1, b"b")[:-1]
    fetched = opened(data)
    assert offsets(fetched) == [0] and fetched.error is None and fetched.position == 1 and fetched.end_offset == 1


LEGACY = [(1000, b"key", b"value"), (1001, None, b"x" * 300), (1002, b"", None)]


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)])
def test_messages_before_magic_2(magic, codec):
    builder = aiokafka_legacy.LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset, (timestamp, key, value) in enumerate(LEGACY):
        builder.append(offset, timestamp, key, value)
    data = bytearray(builder.build())
    if codec:
        data[:8] = (2).to_bytes(8, "big")  # a wrapper has the offset of its last message
    fetched = opened(bytes(data) + batch(3, b"new"), 1)
    records = taken(fetched)
    assert fetched.end_offset == 4 and fetched.error is None
    assert [(record.offset, record.key, record.value) for record in records[:2]] == [
        (offset, *LEGACY[offset][1:]) for offset in (1, 2)
    ]
    assert [record.timestamp_ms for record in records] == [1001 if magic else -1, 1002 if magic else -1, 1000]
    assert [record.timestamp_type for record in records] == [CREATE_TIME if magic else NO_TIMESTAMP] * 2 + [CREATE_TIME]
    assert records[0].headers == () and records[0].leader_epoch == -1
    assert offsets(opened(data, 2)) == [2]


def test_a_damaged_message_before_magic_2():
    builder = aiokafka_legacy.LegacyRecordBatchBuilder(1, 0, 1 << 20)
    builder.append(0, 1000, b"key", b"value")
    builder.append(1, 1000, b"key", b"value")
    data = bytearray(builder.build())
    data[-1] ^= 1
    fetched = opened(data)
    assert offsets(fetched) == [0]
    assert fetched.error is not None and (fetched.error.offset, fetched.error.next_offset) == (1, 2)
    assert offsets(opened(data, check_crcs=False)) == [0, 1]


@CODECS
def test_large_compressed_batches_wait_for_decompression(codec):
    data = batch(0, b"small", codec=codec) + batch(1, random.Random(1).randbytes(1000), codec=codec) + batch(2, b"last")
    fetched = opened(data, offload_bytes=400)
    records = taken(fetched)
    if codec:
        assert [record.offset for record in records] == [0] and fetched.waits and not fetched.done
        fetched.decompress()
        assert not fetched.waits
        records += taken(fetched)
    assert [record.offset for record in records] == [0, 1, 2]
    with pytest.raises(RuntimeError):
        fetched.decompress()


def test_detached_records_do_not_use_the_response():
    response = bytearray(batch(0, b"a", b"b") + batch(2, b"c") + batch(3, random.Random(1).randbytes(1000), codec=4))
    fetched = opened(memoryview(response), offload_bytes=500)
    size = fetched.size
    records: list[Record[bytes, bytes]] = []
    fetched.take(records, 1)
    fetched.detach()
    response[:] = bytes(len(response))
    response.clear()  # nothing exports it any more
    records += taken(fetched)
    fetched.detach()
    fetched.decompress()
    records += taken(fetched)
    assert [record.offset for record in records] == [0, 1, 2, 3] and records[1].value == b"b"
    assert fetched.size == size and fetched.error is None


def test_the_decompressed_size_is_bounded():
    fetched = opened(batch(0, b"a") + batch(1, bytes(100_000), codec=compression.LZ4), decompressed_max=50_000)
    assert offsets(fetched) == [0]
    assert fetched.error is not None and fetched.error.code == 10
    assert (fetched.error.offset, fetched.error.next_offset) == (1, 2)


def test_a_retained_record_keeps_its_batch_only():
    data = b"".join(batch(offset, bytes(10_000)) for offset in range(1000))
    tracemalloc.start()
    try:
        response = bytearray(data)
        before = tracemalloc.get_traced_memory()[0]
        fetched = opened(memoryview(response))
        kept = taken(fetched)[500]
        del response, fetched
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < before - len(data) + 200_000
    finally:
        tracemalloc.stop()
    assert kept.value == bytes(10_000)


def test_record_is_generic():
    assert Record[str, int].__args__ == (str, int)
    assert NO_TIMESTAMP == -1


# ---- bad input ------------------------------------------------------------------------------------------------------


def damaged_batch(base_offset: int, *values: bytes, **fields: tuple[int, int]) -> bytes:
    """A batch with another value in header fields (position and size by name), and a CRC that matches."""
    data = bytearray(batch(base_offset, *values))
    for at, value in fields.values():
        size = 4
        data[at : at + size] = value.to_bytes(size, "big", signed=True)
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


LENGTH_AT, LAST_OFFSET_DELTA_AT, RECORDS_COUNT_AT = 8, 23, 57


@pytest.mark.parametrize(
    ("bad", "next_offset", "text"),
    [
        (damaged_batch(2, b"c", b"d", count=(RECORDS_COUNT_AT, -1)), 4, "claims -1 records"),
        (damaged_batch(2, b"c", b"d", delta=(LAST_OFFSET_DELTA_AT, -1)), 3, "and -1 more"),
        (damaged_batch(2, b"c", b"d", length=(LENGTH_AT, -13)), 3, "claims -1 bytes"),
        (damaged_batch(2, b"c", b"d", length=(LENGTH_AT, 20)), 3, "claims 32 bytes"),
        (batch(2, b"c", b"d")[:-1] + b"\xff", 4, "CRC"),
        (batch(2, b"c", b"d")[:16] + b"\x09" + batch(2, b"c", b"d")[17:], 3, "magic 9"),
        (b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", 3, ""),
    ],
    ids=["count", "delta", "negative-length", "short-length", "crc", "magic", "foreign"],
)
def test_records_before_a_damaged_batch_are_returned_first(bad, next_offset, text):
    fetched = opened(batch(0, b"a", b"b") + bad + batch(4, b"e"))
    assert offsets(fetched) == [0, 1]
    error = fetched.error
    if error is None:  # a size above the bytes left is a truncated batch: the next request begins with it
        fetched = opened(bad, 2)
        assert offsets(fetched) == []
        error = fetched.error
    assert error is not None and text in str(error) and str(error).startswith("orders-3 at offset 2: ")
    assert (error.topic, error.partition, error.offset, error.next_offset) == ("orders", 3, 2, next_offset)
    assert f"seek to {next_offset}" in str(error) and not error.retriable
    assert fetched.done and fetched.position == 2
    assert repr(pickle.loads(pickle.dumps(error))) == repr(error)


def test_records_before_a_damaged_record_are_returned_first():
    data = bytearray(batch(0, b"first", b"other", b"third"))
    data[data.index(b"other") - 1] = 0x7F  # its value size
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    fetched = opened(bytes(data) + batch(3, b"next"))
    assert offsets(fetched) == [0]
    assert fetched.error is not None and (fetched.error.offset, fetched.error.next_offset) == (1, 3)
    assert offsets(opened(batch(3, b"next"), fetched.error.next_offset)) == [3]


def test_a_count_above_the_records_is_an_error_behind_them():
    fetched = opened(damaged_batch(0, b"a", b"b", count=(RECORDS_COUNT_AT, 1_000_000)))
    assert offsets(fetched) == [0, 1]
    assert fetched.error is not None and "fewer records than it claims" in str(fetched.error)


def test_a_count_below_the_records_is_an_error_behind_them():
    fetched = opened(damaged_batch(0, b"a", b"b", count=(RECORDS_COUNT_AT, 1)))
    assert offsets(fetched) == [0]
    assert fetched.error is not None and "bytes are left" in str(fetched.error)


def test_equal_offsets_in_a_batch_are_an_error():
    data = bytearray(batch(0, b"a", b"b"))
    second = data.index(b"key", data.index(b"key") + 3)
    assert data[second - 2] == 2  # zig-zag of offset delta 1
    data[second - 2] = 0
    fetched = opened(bytes(data), check_crcs=False)
    assert offsets(fetched) == [0]
    assert fetched.error is not None and "not between its neighbours" in str(fetched.error)


def test_batches_that_end_before_the_position_are_an_error():
    """Otherwise the same offset would be fetched for ever."""
    fetched = opened(batch(0, b"a"), 5)
    assert offsets(fetched) == []
    assert fetched.error is not None and fetched.error.next_offset == 6


def test_offsets_at_the_end_of_their_range():
    last = 2**63 - 2
    assert offsets(opened(batch(last - 1, b"a", b"b"), last - 1)) == [last - 1, last]
    fetched = opened(batch(last, b"a", b"b"), last)
    assert offsets(fetched) == [] and fetched.error is not None
    for position in (-1, 2**63 - 1):
        with pytest.raises(ValueError, match="no record has offset"):
            opened(b"", position)


def test_no_bytes_are_no_error():
    fetched = opened(b"", 5)
    assert offsets(fetched) == [] and fetched.error is None and fetched.done and fetched.end_offset == 5


def test_unknown_codec():
    data = bytearray(batch(0, b"a"))
    data[22] |= 7
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    fetched = opened(data)
    assert offsets(fetched) == []
    assert fetched.error is not None and fetched.error.code == 76


def test_a_malformed_control_record():
    data = bytearray(batch(0, b"x", key=b"k", producer_id=1, producer_epoch=0, control=True, transactional=True))
    fetched = opened(bytes(data) + batch(1, b"b"))
    assert offsets(fetched) == []
    assert fetched.error is not None and "control record" in str(fetched.error) and fetched.error.next_offset == 1
