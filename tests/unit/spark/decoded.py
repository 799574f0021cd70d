"""Decodes batches of records without a broker."""

from collections.abc import Sequence
from typing import Any

import pyarrow
from pyspark_kafkalite.decoding import Decoding
from pyspark_kafkalite.decoding.records import Decoded, RecordDecoder
from pyspark_kafkalite.tables.columns import RAW_SCHEMA
from pyspark_kafkalite.tables.ddl import parse_ddl


def records(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[list[tuple[str, bytes]]] | None = None,
) -> pyarrow.RecordBatch:
    """Records of one partition, from offset 0 on."""
    count = len(values)
    named = [[{"key": name, "value": value} for name, value in each] for each in headers or [[]] * count]
    columns = {
        "_topic": ["orders"] * count,
        "_partition": [3] * count,
        "_offset": list(range(count)),
        "_timestamp": [1_000_000 * number for number in range(count)],
        "key": list(keys or [None] * count),
        "value": list(values),
        "headers": named,
    }
    arrays = [pyarrow.array(columns[each.name], each.type) for each in RAW_SCHEMA]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)


def decoder(known: str | None = None, **arguments: Any) -> RecordDecoder:
    """A decoder of records; `known` is the schema of the table."""
    return RecordDecoder(Decoding(**arguments).load_schemas(), None if known is None else parse_ddl(known))


def decode(values: Sequence[bytes | None], known: str | None = None, **arguments: Any) -> Decoded:
    """Decode values with a new decoder."""
    return decoder(known, **arguments).decode(records(values))


def dead(decoded: Decoded) -> list[tuple[int, str, str]]:
    """Offset, part and cause of the dead letters."""
    rows = [] if decoded.dead is None else decoded.dead.to_pylist()
    return [(row["_offset"], row["part"], row["cause"]) for row in rows]
