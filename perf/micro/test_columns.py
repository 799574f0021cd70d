"""Columns of the SDK: `pytest perf/micro/test_columns.py`.

`decode` writes 10,000 fetched records into the buffers of a batch, with their CRC, in batches of 8 MiB; `send` queues a
table of as many 100-byte values. Compare `test_consumer_records.py` and `test_producer_buffer.py`.
"""

import asyncio

import pyarrow
import pytest
from kafkalite_sdk._speedups.column_batch import COLUMNS
from kafkalite_sdk._speedups.column_builder import ColumnBuilder
from kafkalite_sdk._speedups.column_sends import send_columns
from kafkalite_sdk._speedups.fetched_records import FetchedRecords

from perf.micro.test_consumer_records import CODECS, COUNT, DECODER, SIZES, response
from perf.micro.test_producer_buffer import KEYS, VALUE, accumulator, acknowledge_all

WANTED = pytest.mark.parametrize("columns", [COLUMNS, ("value",)], ids=["all", "value"])
BATCH_BYTES = 128 << 10


def decode(data: bytes, columns: tuple[str, ...]) -> int:
    fetched = FetchedRecords(DECODER, "orders", 0, data, 0)
    builder = ColumnBuilder(columns)
    count = 0
    while taken := fetched.take_columns(builder):
        count += taken
        builder.finish()
    return count


@SIZES
@CODECS
@WANTED
def test_decode(benchmark, value_size, codec, columns):
    benchmark.group = "columns: decode 10,000 records"
    assert benchmark(decode, response(value_size, BATCH_BYTES, codec), columns) == COUNT


@SIZES
@CODECS
def test_lines(benchmark, value_size, codec):
    benchmark.group = "columns: decode 10,000 records as lines"
    data = response(value_size, BATCH_BYTES, codec)

    def lines() -> int:
        fetched, builder, count = FetchedRecords(DECODER, "orders", 0, data, 0), ColumnBuilder(line_end=b"\n"), 0
        while taken := fetched.take_columns(builder):
            count += taken
            builder.finish()
        return count

    assert benchmark(lines) == COUNT


@KEYS
def test_send(benchmark, key):
    benchmark.group = "columns: send 10,000 rows, encode and acknowledge them"
    columns = {"value": [VALUE] * COUNT} if key is None else {"value": [VALUE] * COUNT, "key": [key] * COUNT}
    table = pyarrow.table(columns)
    loop = asyncio.new_event_loop()

    def send() -> int:
        buffer = accumulator(loop)
        delivery = send_columns(buffer, "orders", table)
        acknowledge_all(buffer, [])
        loop.run_until_complete(asyncio.sleep(0))
        return sum(count for *_, count in delivery.result())

    assert benchmark(send) == COUNT
    loop.close()
