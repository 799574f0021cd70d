"""Which columns of a Parquet file have a dictionary and statistics."""

import io

import pyarrow
import pytest
from pyarrow import parquet
from pyspark_kafkalite.tables.column_options import SAMPLE_ROWS, ColumnOptions, column_options

ROWS = 2 * SAMPLE_ROWS


def options(**columns: pyarrow.Array) -> ColumnOptions:
    return column_options(pyarrow.record_batch(columns))


@pytest.mark.parametrize("kind", [pyarrow.binary(), pyarrow.string(), pyarrow.large_binary(), pyarrow.large_string()])
def test_long_values_that_differ_have_neither(kind: pyarrow.DataType) -> None:
    assert options(value=pyarrow.array([f"{row:0100}" for row in range(ROWS)]).cast(kind)) == ([], [])


def test_short_values_that_differ_have_statistics() -> None:
    found = options(_offset=pyarrow.array(range(ROWS)), key=pyarrow.array([f"{row:036}" for row in range(ROWS)]))
    assert found == ([], ["_offset", "key"])


def test_values_that_repeat_have_a_dictionary() -> None:
    found = options(
        topic=pyarrow.array(["orders"] * ROWS),
        state=pyarrow.array([f"{row % 500:0100}" for row in range(ROWS)]),
        paid=pyarrow.array([True, None] * SAMPLE_ROWS),
    )
    assert found == (["topic", "state", "paid"], ["topic", "paid"])


def test_null_columns_and_nested_columns_have_both() -> None:
    header = pyarrow.struct({"key": pyarrow.string(), "value": pyarrow.binary()})
    found = options(
        key=pyarrow.nulls(ROWS, pyarrow.binary()),
        none=pyarrow.nulls(ROWS),
        headers=pyarrow.array([[{"key": f"{row:0100}", "value": None}] for row in range(ROWS)], pyarrow.list_(header)),
        price=pyarrow.array(range(ROWS)).cast(pyarrow.decimal128(20)),
    )
    every = ["key", "none", "price", "headers.list.element.key", "headers.list.element.value"]
    assert set(found.use_dictionary) == set(found.write_statistics) == set(every)


def test_parquet_knows_the_paths() -> None:
    """The writer would ignore a path that no column has."""
    names = pyarrow.array([["a"]] * ROWS)
    batch = pyarrow.record_batch({"names": names, "value": pyarrow.array([f"{row:0100}" for row in range(ROWS)])})
    file = io.BytesIO()
    with parquet.ParquetWriter(file, batch.schema, **column_options(batch)._asdict()) as writer:
        writer.write_batch(batch)
    group = parquet.read_metadata(file).row_group(0)
    found = {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}
    assert {path: (each.has_dictionary_page, each.is_stats_set) for path, each in found.items()} == {
        "names.list.element": (True, True),
        "value": (False, False),
    }
