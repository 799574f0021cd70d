"""The columns of tables and of dead letters. Needs pyarrow."""

import pyarrow

HEADER = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
RAW_SCHEMA = pyarrow.schema(
    [
        ("_topic", pyarrow.string()),
        ("_partition", pyarrow.int32()),
        ("_offset", pyarrow.int64()),
        ("_timestamp", pyarrow.timestamp("us", "UTC")),
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        ("headers", pyarrow.list_(HEADER)),
    ]
)
"""Columns of a table of raw records. The names are stable: new columns are added behind these."""

TOMBSTONE = "_tombstone"
"""Whether the value is null; the column exists where the fields of values are columns."""

REASONS = (("part", pyarrow.string()), ("cause", pyarrow.string()), ("detail", pyarrow.string()))
DEAD_LETTER_SCHEMA = pyarrow.schema([*RAW_SCHEMA, *(pyarrow.field(*each) for each in REASONS)])
"""Columns of dead letters: the raw record; "key" or "value"; `BadValue.cause`; `BadValue.detail`."""
