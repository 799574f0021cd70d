"""The records of the SDK's consumer: `pytest perf/micro/test_consumer_records.py`.

Values of 100 bytes and 1 KiB in batches of 16 KiB and 1 MiB. `decode` returns the records in lists of 500; `value`
reads each value, too.
"""

import pytest
from kafkalite_sdk._speedups.consumer_records import RecordDecoder
from kafkalite_sdk._speedups.fetched_records import FetchedRecords

from kafkalite.records import Builder

COUNT = 10_000
POLL_RECORDS = 500
DECODER: RecordDecoder[bytes, bytes] = RecordDecoder()
SIZES = pytest.mark.parametrize("value_size", [100, 1024])
BATCHES = pytest.mark.parametrize("batch_size", [16_384, 1 << 20], ids=["16-KiB", "1-MiB"])
CODECS = pytest.mark.parametrize("codec", [0, 3], ids=["none", "lz4"])


def response(value_size: int, batch_size: int, codec: int) -> bytes:
    """The batches of one partition with 10,000 records."""
    parts = []
    builder = Builder(batch_size)
    value = (b"0123456789abcdef" * 64)[:value_size]
    for offset in range(COUNT):
        if builder.append(offset, None, value) < 0:
            parts.append(builder.build(codec, base_offset=offset - len(builder)))
            builder.clear()
            builder.append(offset, None, value)
    parts.append(builder.build(codec, base_offset=COUNT - len(builder)))
    return b"".join(parts)


def decode(data: bytes) -> int:
    fetched = FetchedRecords(DECODER, "orders", 0, data, 0)
    count = 0
    while taken := fetched.take([], POLL_RECORDS):
        count += taken
    return count


def read_values(data: bytes) -> int:
    fetched = FetchedRecords(DECODER, "orders", 0, data, 0)
    count = 0
    while fetched.take(records := [], POLL_RECORDS):
        for record in records:
            count += record.value is not None
    return count


@SIZES
@BATCHES
@CODECS
def test_decode(benchmark, value_size, batch_size, codec):
    benchmark.group = "consumer: decode 10,000 records"
    assert benchmark(decode, response(value_size, batch_size, codec)) == COUNT


@SIZES
@BATCHES
@CODECS
def test_value(benchmark, value_size, batch_size, codec):
    benchmark.group = "consumer: decode 10,000 records and read their values"
    assert benchmark(read_values, response(value_size, batch_size, codec)) == COUNT
