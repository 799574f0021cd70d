"""Which columns of a Parquet file have a dictionary."""

import io
from random import Random

import pyarrow
import pytest
from pyarrow import parquet
from pyspark_kafkalite.tables.dictionaries import LEAST_ROWS, dictionary_columns

ROWS = 2 * LEAST_ROWS


def chosen(rows: int = ROWS, **columns: pyarrow.Array) -> list[str]:
    return dictionary_columns(pyarrow.record_batch(columns).slice(0, rows))


@pytest.mark.parametrize("kind", [pyarrow.binary(), pyarrow.string(), pyarrow.large_binary(), pyarrow.large_string()])
def test_values_that_differ_have_none(kind: pyarrow.DataType) -> None:
    values = pyarrow.array([f"{row:0100}" for row in range(ROWS)]).cast(kind)
    assert chosen(_offset=pyarrow.array(range(ROWS)), value=values, paid=pyarrow.array([True, None] * LEAST_ROWS)) == [
        "paid"
    ]


@pytest.mark.parametrize("rows", [ROWS, 100_000])
def test_values_that_repeat_have_one(rows: int) -> None:
    """Also if the first thousand differ."""
    random = Random(1)
    found = chosen(
        rows,
        topic=pyarrow.array(["orders"] * rows),
        customer=pyarrow.array([f"{random.randrange(3000):036}" for _ in range(rows)]),
        cyclic=pyarrow.array([f"{row % min(3000, rows // 2):036}" for row in range(rows)]),
    )
    assert found == ["topic", "customer", "cyclic"]


def test_few_rows_keep_all() -> None:
    """A first batch of one row says nothing of the others."""
    columns = {"_topic": pyarrow.array(["orders"] * ROWS), "_offset": pyarrow.array(range(ROWS))}
    assert chosen(1, **columns) == chosen(LEAST_ROWS - 1, **columns) == ["_topic", "_offset"]
    assert chosen(LEAST_ROWS, **columns) == ["_topic"]


def test_null_columns_and_nested_columns_have_one() -> None:
    header = pyarrow.struct({"key": pyarrow.string(), "value": pyarrow.binary()})
    found = chosen(
        key=pyarrow.nulls(ROWS, pyarrow.binary()),
        none=pyarrow.nulls(ROWS),
        headers=pyarrow.array([[{"key": f"{row:0100}", "value": None}] for row in range(ROWS)], pyarrow.list_(header)),
        price=pyarrow.array(range(ROWS)).cast(pyarrow.decimal128(20)),
    )
    assert found == ["key", "none", "headers.list.element.key", "headers.list.element.value", "price"]


def test_parquet_knows_the_paths() -> None:
    """The writer would ignore a path that no column has."""
    names = pyarrow.array([["a"]] * ROWS)
    batch = pyarrow.record_batch({"names": names, "value": pyarrow.array([f"{row:0100}" for row in range(ROWS)])})
    file = io.BytesIO()
    with parquet.ParquetWriter(file, batch.schema, use_dictionary=dictionary_columns(batch)) as writer:
        writer.write_batch(batch)
    group = parquet.read_metadata(file).row_group(0)
    found = {each.path_in_schema: each.has_dictionary_page for each in map(group.column, range(group.num_columns))}
    assert found == {"names.list.element": True, "value": False}
