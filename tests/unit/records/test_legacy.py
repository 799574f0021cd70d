"""Magic 0 and 1, as aiokafka and kafka-python write them."""

import struct
import zlib
from typing import Any

import lz4.frame
import pytest

from kafkalite.records import BatchError, scan_batches
from kafkalite.records.legacy import LegacyEntry, entries, xxh32_short
from tests.unit.records.clients import aiokafka_legacy, kafka_python_legacy

RECORDS: list[tuple[int, bytes | None, bytes | None]] = [
    (1000, b"key", b"value"), (1001, None, b"x" * 300), (1002, b"", None), (1003, b"k", b""),
]  # fmt: skip
WRITERS = {
    "aiokafka": aiokafka_legacy.LegacyRecordBatchBuilder,
    "kafka-python": kafka_python_legacy.LegacyRecordBatchBuilder,
}
BY_WRITER = pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)


def written(writer: Any, magic: int, codec: int) -> bytes:
    """What the writer sends, with the wrapper's offset as the broker sets it: the last within."""
    builder = writer(magic, codec, 1 << 20)
    for offset, (timestamp, key, value) in enumerate(RECORDS):
        builder.append(offset, timestamp, key, value)
    data = bytearray(builder.build())
    if codec:
        struct.pack_into(">q", data, 0, len(RECORDS) - 1)
    return bytes(data)


def entry(magic: int, body: bytes, attributes: int = 0, offset: int = 0) -> bytes:
    """An entry with whatever body, its CRC right."""
    checked = struct.pack(">bb", magic, attributes) + body
    return struct.pack(">qiI", offset, len(checked) + 4, zlib.crc32(checked)) + checked


@BY_WRITER
@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)])
def test_legacy_messages_of_old_clients(writer: Any, magic: int, codec: int) -> None:
    found = list(entries(written(writer, magic, codec)))
    for each in found:
        each.check_crc()
        assert (each.magic, each.codec) == (magic, codec)
    assert len(found) == (1 if codec else len(RECORDS))
    records = [record for each in found for record in each.records()]
    assert [record.offset for record in records] == [0, 1, 2, 3]
    assert [record[2:4] for record in records] == [record[1:] for record in RECORDS]
    assert [record.timestamp for record in records] == [r[0] if magic else -1 for r in RECORDS]


@BY_WRITER
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_inner_offsets_of_magic_1_are_relative(writer: Any, codec: int) -> None:
    data = bytearray(written(writer, 1, codec))
    struct.pack_into(">q", data, 0, 503)
    assert [record.offset for record in LegacyEntry(data).records()] == [500, 501, 502, 503]


@pytest.mark.parametrize("store_size", [True, False])
def test_lz4_header_checksum_of_magic_0(store_size: bool) -> None:
    """Their header checksum is over too many bytes (KAFKA-3160); a right one is taken too."""
    inner = b"".join(entry(0, sized(b"k", b"v" * i), offset=i) for i in range(20))
    frame = lz4.frame.compress(inner, store_size=store_size)
    end = 14 if store_size else 6
    wrong = frame[:end] + bytes([xxh32_short(frame[:end]) >> 8 & 0xFF]) + frame[end + 1 :]
    assert wrong != frame
    for each in (wrong, frame):
        wrapper = LegacyEntry(entry(0, sized(None, each), 3, offset=19))
        assert [record.offset for record in wrapper.records()] == list(range(20))


def test_log_append_time_of_compressed_legacy_messages() -> None:
    data = bytearray(written(WRITERS["aiokafka"], 1, 1))
    data[17] |= 0x08
    struct.pack_into(">q", data, 18, 9999)
    struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    wrapper = LegacyEntry(data)
    wrapper.check_crc()
    assert {record.timestamp for record in wrapper.records()} == {9999}


def test_truncated_legacy_entry_is_omitted() -> None:
    data = written(WRITERS["aiokafka"], 1, 0)
    for cut in (1, 20):
        assert len(list(entries(data[:-cut]))) == len(RECORDS) - 1
    assert list(entries(data[:11])) == []


def test_batch_scan_reports_legacy_magic() -> None:
    for magic in (0, 1):
        assert scan_batches(written(WRITERS["aiokafka"], magic, 0)).error == 43


def sized(*fields: bytes | None) -> bytes:
    return b"".join(struct.pack(">i", -1 if f is None else len(f)) + (f or b"") for f in fields)


MALFORMED = {
    "too short": entry(0, sized(None, None))[:17],
    "magic 2": entry(2, sized(None, None)),
    "magic -1": entry(-1, sized(None, None)),
    "size past the end": entry(0, sized(None, None))[:-1],
    "no room for a size": entry(0, b"\x00\x00"),
    "no timestamp": entry(1, b"\x00" * 5),
    "negative size": entry(0, struct.pack(">ii", -2, -1)),
    "key past the end": entry(0, struct.pack(">ii", 100, -1)),
    "no value": entry(0, sized(b"key")),
    "bytes left over": entry(0, sized(None, None) + b"\x00"),
}
MALFORMED_INSIDE = {
    "compressed null": entry(1, bytes(8) + sized(None, None), 1),
    "compressed nothing": entry(1, bytes(8) + sized(None, zlib.compress(b"", wbits=31)), 1),
    "not gzip": entry(1, bytes(8) + sized(None, b"rubbish"), 1),
    "codec that does not exist": entry(1, bytes(8) + sized(None, b""), 5),
    "lz4 without a descriptor": entry(0, sized(None, b"\x04\x22\x4d"), 3),
    "compressed within compressed": entry(
        1, bytes(8) + sized(None, zlib.compress(entry(1, bytes(8) + sized(None, b""), 1), wbits=31)), 1
    ),
    "another magic within": entry(
        1, bytes(8) + sized(None, zlib.compress(entry(0, sized(None, b"")), wbits=31)), 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_malformed_legacy_entries_raise(data: bytes) -> None:
    with pytest.raises(BatchError):
        LegacyEntry(data)


@pytest.mark.parametrize("data", MALFORMED_INSIDE.values(), ids=MALFORMED_INSIDE)
def test_malformed_compressed_legacy_entries_raise(data: bytes) -> None:
    wrapper = LegacyEntry(data)
    wrapper.check_crc()
    with pytest.raises(BatchError):
        wrapper.records()


def test_wrong_crc_of_a_legacy_entry() -> None:
    data = bytearray(entry(1, bytes(8) + sized(b"k", b"v")))
    data[-1] ^= 1
    with pytest.raises(BatchError, match="corrupt"):
        LegacyEntry(data).check_crc()


def test_legacy_decompression_is_bounded() -> None:
    wrapper = entry(
        1, bytes(8) + sized(None, zlib.compress(entry(1, bytes(8) + sized(None, bytes(9000))), wbits=31)), 1
    )
    assert len(LegacyEntry(wrapper, 0, 10_000).records()) == 1
    with pytest.raises(BatchError) as raised:
        LegacyEntry(wrapper, 0, 9000).records()
    assert raised.value.code == 10


@pytest.mark.parametrize(("data", "value"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)])
def test_xxh32_of_short_inputs(data: bytes, value: int) -> None:
    """Values of the xxHash specification's reference implementation."""
    assert xxh32_short(data) == value
