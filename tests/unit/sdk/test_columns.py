"""Columns of records, as pyarrow, polars and DuckDB read them, and the ownership of the exported structures."""

import gc
import os
import random
import threading
from typing import Any

import duckdb
import polars
import pyarrow
import pytest
from kafkalite_sdk._speedups.arrow_rows import import_rows
from kafkalite_sdk._speedups.column_batch import COLUMNS, ColumnBatch
from kafkalite_sdk._speedups.column_builder import ColumnBuilder
from kafkalite_sdk._speedups.consumer_records import RecordDecoder
from kafkalite_sdk._speedups.fetched_records import FetchedRecords

from kafkalite.errors import CorruptRecordError
from kafkalite.records import Builder, set_base_offset
from tests.fuzz.test_columns_fuzz import fields, some_columns
from tests.kit import arrow_reader
from tests.kit.fuzzing import memory_kib
from tests.kit.leaks import QUARANTINE_KIB
from tests.kit.record_engines import build, random_batch, seed
from tests.unit.sdk.test_fetched_records import transactions

DECODER: RecordDecoder[bytes, bytes] = RecordDecoder()
RECORDS = [
    (1_700_000_000_123, b"k", b"one", [("trace", b"\x00\xff"), ("ä", None)]),
    (1_700_000_000_124, None, b"", []),
    (-1, b"", None, [("", b"")]),
]
SPARK_SCHEMA = pyarrow.schema(
    [
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        ("topic", pyarrow.string()),
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("timestamp", pyarrow.timestamp("us", "UTC")),
        ("timestampType", pyarrow.int32()),
        ("headers", pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))),
    ]
)


def fetched(data: bytes, position: int = 0, decoder: RecordDecoder[bytes, bytes] = DECODER, **options: Any) -> Any:
    return FetchedRecords(decoder, "orders", 2, data, position, **options)


def batch_of(data: bytes, position: int = 0, **options: Any) -> ColumnBatch:
    builder = ColumnBuilder(**options)
    assert fetched(data, position).take_columns(builder) == len(builder)
    return builder.finish()


def at(base_offset: int, data: bytes) -> bytes:
    moved = bytearray(data)
    set_base_offset(moved, base_offset)
    return bytes(moved)


def offsets(builder: ColumnBuilder) -> list[int]:
    """The last column of the records."""
    return [row[-1] for row in arrow_reader.read_rows(builder.finish())]


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with times as milliseconds and headers as pairs."""
    for row in rows:
        if "timestamp" in row:
            row["timestamp"] = round(row["timestamp"].timestamp() * 1000)
        if "headers" in row:
            row["headers"] = tuple((each["key"], each["value"]) for each in row["headers"])
    return rows


def test_columns_of_random_batches_are_read_by_pyarrow_polars_and_duckdb() -> None:
    rng = random.Random(seed())
    for _ in range(20):
        data, columns = random_batch(rng), some_columns(rng)
        records: list[Any] = []
        fetched(data).take(records, 1000)
        expected = [{name: fields(record)[name] for name in columns} for record in records]
        batch = batch_of(data, columns=columns)
        assert plain(pyarrow.record_batch(batch).to_pylist()) == expected  # type: ignore[arg-type]
        assert plain(polars.DataFrame(batch).to_dicts()) == expected
        assert plain(pyarrow.table(duckdb.sql("select * from batch")).to_pylist()) == expected  # type: ignore[arg-type]


def test_schema_is_that_of_the_source_of_spark() -> None:
    batch = batch_of(build(*RECORDS), timestamp_unit="us")
    table = pyarrow.table(batch)  # type: ignore[arg-type]
    assert table.schema.equals(SPARK_SCHEMA)
    assert all(field.nullable for field in table.schema)
    table.validate(full=True)
    assert table["timestamp"].cast(pyarrow.int64()).to_pylist() == [1_700_000_000_123_000, 1_700_000_000_124_000, -1000]


LAST_US, FIRST_US = 9_223_372_036_854_775, -9_223_372_036_854_775


@pytest.mark.parametrize("time_ms", [LAST_US + 1, FIRST_US - 1, 1_755_933_141_855_875_123, 2**62, -(2**63)])
def test_time_beyond_the_unit_is_an_error_that_names_the_record(time_ms: int) -> None:
    data = build((LAST_US, None, b"0", []), (FIRST_US, None, b"1", []), (time_ms, None, b"2", []), (0, None, b"3", []))
    found, builder = fetched(at(40, data)), ColumnBuilder(["timestamp", "offset"], timestamp_unit="us")
    assert found.take_columns(builder) == 2 and found.position == 42
    times = pyarrow.table(builder.finish())["timestamp"].cast(pyarrow.int64()).to_pylist()  # type: ignore[arg-type]
    assert times == [LAST_US * 1000, FIRST_US * 1000]
    error = found.error
    assert (error.topic, error.partition, error.offset, error.next_offset) == ("orders", 2, 42, 43)
    assert str(error) == (
        f"orders-2 at offset 42: its time is {time_ms} ms, but timestamp_unit 'us' ends at {LAST_US} ms; "
        "read it in 'ms'; seek to 43 skips it"
    )
    assert found.take_columns(builder) == 0
    rest = fetched(at(40, data), 43)
    assert rest.take_columns(builder) == 1 and rest.done and offsets(builder) == [43]


def test_time_beyond_the_unit_is_read_in_milliseconds_and_without_the_column() -> None:
    data = build((2**62, None, b"0", []))
    assert arrow_reader.read_rows(batch_of(data, columns=["offset"], timestamp_unit="us")) == [(0,)]
    milliseconds = pyarrow.table(batch_of(data))["timestamp"].cast(pyarrow.int64())  # type: ignore[arg-type]
    assert milliseconds.to_pylist() == [2**62]


def test_record_that_was_read_before_ends_the_batch_before_its_time_beyond_the_unit() -> None:
    records: list[Any] = []
    fetched(build((0, None, b"0", []), (2**62, None, b"1", []))).take(records, 10)
    builder = ColumnBuilder(timestamp_unit="us")
    assert builder.add(records[0]) and not builder.add(records[1]) and len(builder) == 1
    builder.finish()
    with pytest.raises(CorruptRecordError, match="orders-2 at offset 1: its time is 4611686018427387904 ms"):
        builder.add(records[1])


def test_a_batch_without_records_has_a_schema() -> None:
    batch = ColumnBuilder().finish()
    assert len(batch) == batch.num_rows == 0 and batch.column_names == COLUMNS and not batch
    assert pyarrow.table(batch).num_rows == 0  # type: ignore[arg-type]
    assert polars.DataFrame(batch).is_empty()
    assert duckdb.sql("select count(*) from batch").fetchall() == [(0,)]


def test_columns_keep_the_order_of_their_names() -> None:
    batch = batch_of(build(*RECORDS), columns=["offset", "value"])
    assert batch.column_names == ("offset", "value")
    assert arrow_reader.read_rows(batch) == [(0, b"one"), (1, b""), (2, None)]
    assert repr(batch) == "<ColumnBatch of 3 records: offset, value>"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"columns": []}, "expected different names of key, value"),
        ({"columns": ["value", "value"]}, "expected different names of key, value"),
        ({"columns": ["offsets"]}, "expected different names of key, value"),
        ({"rows_max": 0}, "number above 0"),
        ({"bytes_max": 1 << 31}, "expected 1 to 1073741824"),
        ({"timestamp_unit": "ns"}, "expected 'ms' or 'us'"),
    ],
)
def test_invalid_arguments_are_rejected(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ColumnBuilder(**options)
    with pytest.raises(TypeError, match="expected a list of names"):
        ColumnBuilder("value")  # a text is not a list of names


def test_a_batch_ends_with_the_record_that_reaches_its_limit() -> None:
    data = build(*[(0, None, bytes(100)) for _ in range(10)])
    source = fetched(data)
    builder = ColumnBuilder(["value", "offset"], bytes_max=250)
    assert source.take_columns(builder) == 3 and builder.full and builder.nbytes == 3 * 112
    assert source.position == 3 and offsets(builder) == [0, 1, 2]
    assert source.take_columns(builder) == 3 and offsets(builder) == [3, 4, 5]
    assert source.take_columns(few := ColumnBuilder(["offset"], rows_max=2)) == 2
    assert offsets(few) == [6, 7] and not source.done


@pytest.mark.parametrize("codec", [0, 3])
def test_both_ends_of_a_range_are_exact(codec: int) -> None:
    data = b"".join(at(base, build(*[(0, None, b"v")] * 10, codec=codec)) for base in range(0, 50, 10))
    for begin in range(21):
        for end in range(begin, 51):
            source = fetched(data, begin)
            assert source.take_columns(builder := ColumnBuilder(["offset"]), end) == end - begin
            assert offsets(builder) == list(range(begin, end)) and source.position == end


def test_a_range_ends_before_the_first_batch_behind_it() -> None:
    """The last offsets were removed by compaction; the next batch does not belong to the range, nor does its error."""
    behind = bytearray(at(100, build((0, None, b"v"))))
    behind[30] ^= 1
    source = fetched(build((0, None, b"v")) + bytes(behind))
    assert source.take_columns(builder := ColumnBuilder(["offset"]), 100) == 1
    assert offsets(builder) == [0] and source.position == 100 and source.error is None


def test_aborted_and_control_batches_are_skipped_at_any_end() -> None:
    committed: RecordDecoder[bytes, bytes] = RecordDecoder(read_committed=True)
    for begin in range(8):
        for end in range(begin, 8):
            aborted = [(1, 0)] if begin <= 5 else []  # a broker names those that end at the fetch offset or behind it
            source = fetched(transactions(), begin, committed, aborted=aborted)
            source.take_columns(builder := ColumnBuilder(["offset"]), end)
            assert offsets(builder) == [each for each in (1, 2, 6) if begin <= each < end]
            assert source.position >= end and source.error is None


def test_an_open_batch_survives_the_memory_of_its_response() -> None:
    data = bytearray(build(*[(0, None, b"value %d" % number) for number in range(10)]))
    source = fetched(data)
    columns = ["value"]
    assert source.take_columns(ColumnBuilder(columns, rows_max=3)) == 3
    source.detach()
    data[:] = bytes(len(data))  # detached: this is not the memory of the records any more
    source.take(records := [], 3)
    source.take_columns(builder := ColumnBuilder(columns))
    assert [record.value for record in records] == [b"value 3", b"value 4", b"value 5"]
    assert arrow_reader.read_rows(builder.finish()) == [(b"value %d" % number,) for number in range(6, 10)]


def test_invalid_names_of_headers_are_replaced_as_in_records() -> None:
    rng = random.Random(seed())
    alphabet = (
        b"a",
        b"\x80",
        b"\xbf",
        b"\xc1",
        b"\xc3",
        b"\xe0",
        b"\xed",
        b"\xef",
        b"\xf0",
        b"\xf4",
        b"\xf5",
        "ä€𝄞".encode(),
    )
    names = [b"".join(rng.choices(alphabet, k=rng.randrange(6))) for _ in range(2000)]
    data = build((0, None, b"v", [(name, None) for name in names]))
    (row,) = arrow_reader.read_rows(batch_of(data, columns=["headers"]))
    assert row == (tuple((name.decode(errors="replace"), None) for name in names),)
    pyarrow.table(batch_of(data)).validate(full=True)  # type: ignore[arg-type]


def test_memory_is_released_in_any_order_and_by_any_thread() -> None:
    batch = batch_of(build(*RECORDS))
    expected = arrow_reader.read_rows(batch)
    schema_capsule, capsule = batch.__arrow_c_array__()
    array = arrow_reader.array_of(capsule)
    child = arrow_reader.moved(array.children[1].contents)
    assert arrow_reader.is_released(array.children[1].contents)
    array.release(array)
    assert arrow_reader.is_released(array)
    del batch, capsule, array
    gc.collect()
    schema = arrow_reader.schema_of(schema_capsule)
    assert arrow_reader._values(schema.children[1].contents, child) == [row[1] for row in expected]
    thread = threading.Thread(target=lambda: child.release(child))
    thread.start()
    thread.join()
    assert arrow_reader.is_released(child)


def test_a_stream_returns_the_batch_once_and_outlives_it() -> None:
    batch = batch_of(build(*RECORDS))
    capsule = batch.__arrow_c_stream__()
    del batch
    stream = arrow_reader.stream_of(capsule)
    schema, array = arrow_reader.ArrowSchema(), arrow_reader.ArrowArray()
    assert stream.get_schema(stream, schema) == 0 and schema.n_children == len(COLUMNS)
    assert stream.get_next(stream, array) == 0 and array.length == len(RECORDS)
    stream.release(stream)
    assert arrow_reader.is_released(stream)
    assert arrow_reader._values(schema.children[4].contents, array.children[4].contents) == [0, 1, 2]
    array.release(array)
    schema.release(schema)
    assert arrow_reader.is_released(array) and arrow_reader.is_released(schema)


def test_exports_that_are_not_used_leave_no_memory_behind() -> None:
    data = build(*[(0, None, bytes(1 << 20))] * 4)

    def export() -> None:
        batch = batch_of(data)
        batch.__arrow_c_array__(), batch.__arrow_c_stream__(), batch.__arrow_c_schema__()
        assert pyarrow.record_batch(batch).num_rows == 4  # type: ignore[arg-type]

    export()
    before = memory_kib(os.getpid())
    for _ in range(50):
        export()
    assert memory_kib(os.getpid()) - before < (50 << 10) + QUARANTINE_KIB  # 200 MiB were exported four times


def test_a_batch_has_no_constructor() -> None:
    with pytest.raises(TypeError, match="poll_columns"):
        ColumnBatch()


class SameCapsules:
    """A table that exports the same capsules each time."""

    def __init__(self, table: Any, export: str) -> None:
        capsules = getattr(table, export)()
        setattr(self, export, lambda requested_schema=None: capsules)


def test_an_array_that_is_passed_twice_is_rejected() -> None:
    table = SameCapsules(pyarrow.record_batch({"value": [b"v" * 1000]}), "__arrow_c_array__")
    (rows,) = import_rows(table)
    assert len(rows) == 1
    del rows  # releases the memory of the array
    with pytest.raises(ValueError, match="the Arrow capsule was used before; export the table again"):
        import_rows(table)


def test_a_stream_that_another_reader_has_taken_is_rejected() -> None:
    table = SameCapsules(pyarrow.table({"value": [b"v"]}), "__arrow_c_stream__")
    assert pyarrow.RecordBatchReader.from_stream(table).read_all().num_rows == 1
    with pytest.raises(ValueError, match="the Arrow capsule was used before"):
        import_rows(table)


def test_a_line_has_key_separator_value_and_end() -> None:
    builder = Builder()
    for key, value in ((b"k", b"v"), (None, b"w"), (b"", None), (b"long" * 100, b"x" * 5000)):
        builder.append(0, key, value)
    data = builder.build()
    assert bytes(batch_of(data, line_end=b"\r\n").value_bytes) == b"v\r\nw\r\n\r\n" + b"x" * 5000 + b"\r\n"
    lines = batch_of(data, line_end=b"\n", key_separator=b": ")
    expected = [b"k: v\n", b": w\n", b": \n", b"long" * 100 + b": " + b"x" * 5000 + b"\n"]
    assert bytes(lines.value_bytes) == b"".join(expected)
    assert arrow_reader.read_rows(lines) == [(each,) for each in expected], "each line is a value of the column"


def test_lines_end_with_the_record_that_reaches_the_limit() -> None:
    builder = Builder()
    for _ in range(10):
        builder.append(0, None, b"x" * 9)
    fetched_lines = fetched(builder.build())
    lines = ColumnBuilder(bytes_max=25, line_end=b"\n")
    assert fetched_lines.take_columns(lines) == 2, "each has 10 bytes, and 4 of its offset"
    assert bytes(lines.finish().value_bytes) == (b"x" * 9 + b"\n") * 2
