"""Rows of bad keys and values are dead letters with their bytes; all other rows are in the table."""

import pyarrow
import pytest
from pyspark_kafkalite.decoding.errors import DecodingError, SchemaMisfitError
from pyspark_kafkalite.tables.columns import DEAD_LETTER_SCHEMA, RAW_SCHEMA

from tests.unit.spark.decoded import dead, decode, decoder, records


def test_raw_records_are_not_changed() -> None:
    batch = records([b"\xff", None], [b"k", None])
    decoded = decoder().decode(batch)
    assert decoded.rows.equals(batch) and decoded.dead is None
    assert decoder().schema() == RAW_SCHEMA


def test_text_that_is_not_utf8_is_a_dead_letter_with_cause_origin_headers_and_bytes() -> None:
    batch = records([b"a", b"\xff\xfe", None, "ü".encode()], headers=[[], [("h", b"1")], [], []])
    decoded = decoder(value="string").decode(batch)
    assert decoded.rows.schema == RAW_SCHEMA.set(5, pyarrow.field("value", pyarrow.string()))
    assert decoded.rows.column("value").to_pylist() == ["a", None, "ü"]
    assert decoded.rows.column("_offset").to_pylist() == [0, 2, 3]
    assert decoded.dead is not None and decoded.dead.schema == DEAD_LETTER_SCHEMA
    (letter,) = decoded.dead.to_pylist()
    assert letter.pop("_timestamp").timestamp() == 1
    assert letter == {
        "_topic": "orders",
        "_partition": 3,
        "_offset": 1,
        "key": None,
        "value": b"\xff\xfe",
        "headers": [{"key": "h", "value": b"1"}],
        "part": "value",
        "cause": "utf8",
        "detail": "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
    }


def test_row_with_a_bad_key_and_a_bad_value_is_one_dead_letter() -> None:
    several = decoder(key="string", value="string")
    decoded = several.decode(records([b"\xff", b"a", b"\xff"], [b"\xff", b"\xff", b"k"]))
    assert dead(decoded) == [(0, "key", "utf8"), (1, "key", "utf8"), (2, "value", "utf8")]
    assert decoded.rows.num_rows == 0
    assert several.causes == {"utf8": 3}


def test_first_bad_value_fails_a_query_without_dead_letters() -> None:
    with pytest.raises(DecodingError, match=r"orders-3 offset 1: value: utf8: .*0xff"):
        decode([b"a", b"\xff"], value="string", dead_letters="fail")


def test_type_of_a_column_of_the_table_cannot_change() -> None:
    known = "_topic string, _partition int, _offset bigint, _timestamp timestamp, key binary, value binary, "
    known += "headers array<struct<key: string, value: binary>>"
    with pytest.raises(SchemaMisfitError, match="column value is binary, in the data string"):
        decoder(known, value="string").schema()
