"""Decodes batches of records: which rows go to the table, and which to the dead letters. Needs pyarrow.

Columns of a table with decoded values: those of raw records, without `value` if the fields of values are columns of
their own. These columns are last, so that a schema grows at its end.
"""

from collections import Counter
from typing import NamedTuple

import pyarrow

from pyspark_kafkalite.decoding.drift import Drift
from pyspark_kafkalite.decoding.errors import DecodingError, SchemaMisfitError
from pyspark_kafkalite.decoding.options import FAIL, Decoding
from pyspark_kafkalite.decoding.schemas import merge_schemas
from pyspark_kafkalite.decoding.select import has_fields, value_decoder
from pyspark_kafkalite.decoding.values import BadValue, Values, mask_without
from pyspark_kafkalite.tables.columns import DEAD_LETTER_SCHEMA, RAW_SCHEMA, TOMBSTONE

FIXED = {name.lower() for name in (*RAW_SCHEMA.names, TOMBSTONE)} - {"value"}
"""Columns beside the fields of values."""


class Decoded(NamedTuple):
    """A decoded batch.

    Attributes:
        rows: of the table. The schema may have more columns than that of the batch before.
        dead: rows of DEAD_LETTER_SCHEMA; None = all are good.
    """

    rows: pyarrow.RecordBatch
    dead: pyarrow.RecordBatch | None


class RecordDecoder:
    """Decodes the batches of one task.

    Arguments:
        decoding: its schemas are loaded.
        known: schema of the table; None = the table is empty.

    Attributes:
        causes: number of bad values by cause.
        drift: how values differ from the declared schema.

    Raises:
        SchemaMisfitError: the declared schema does not fit the table.
    """

    def __init__(self, decoding: Decoding, known: pyarrow.Schema | None) -> None:
        self.causes: Counter[str] = Counter()
        self.drift = Drift()
        self._decoding = decoding
        self._known = known
        values = decoding.part(key=False)
        self._flat = not decoding.nested and has_fields(values)
        self._key = value_decoder(decoding, decoding.part(key=True), _known_type(known, "key"), Drift())
        fields = _known_fields(known) if self._flat else _known_type(known, "value")
        self._value = value_decoder(decoding, values, fields, self.drift)

    def schema(self) -> pyarrow.Schema | None:
        """Return the schema of the table as far as the decoders know it; None = it depends on the first values.

        Raises:
            SchemaMisfitError: it does not fit the table.
        """
        if self._key.type is None or self._value.type is None:
            return self._known
        return self._schema()

    def decode(self, batch: pyarrow.RecordBatch) -> Decoded:
        """Decode a batch with the columns of RAW_SCHEMA.

        Raises:
            SchemaMisfitError: a value has a schema that does not fit. DecodingError: the first bad value, if there are
                no dead letters.
        """
        if self._decoding.is_raw:
            return Decoded(pyarrow.RecordBatch.from_arrays(batch.columns, schema=RAW_SCHEMA), None)
        keys = self._key.decode(batch.column("key"), batch.column("headers"))
        values = self._value.decode(batch.column("value"), batch.column("headers"))
        rows = self._rows(batch, keys, values)
        if not keys.bad and not values.bad:
            return Decoded(rows, None)
        bad = _bad_rows(keys.bad, values.bad)
        self.causes.update(each.cause for _, each in bad.values())
        dead = dead_letters(batch, bad)
        if self._decoding.dead_letters == FAIL:
            raise _failure(dead)
        return Decoded(rows.filter(mask_without(bad, batch.num_rows)), dead)

    def _schema(self) -> pyarrow.Schema:
        """The schema of rows: that of the table, or one that has more columns."""
        fields = [each for each in RAW_SCHEMA if each.name != "value"]
        at = fields.index(RAW_SCHEMA.field("key"))  # its type is not known before its first schema
        fields[at : at + 1] = [] if self._key.type is None else [pyarrow.field("key", self._key.type)]
        if self._flat:
            if self._value.type is not None and not pyarrow.types.is_struct(self._value.type):
                raise SchemaMisfitError(f"values are no records but {self._value.type}; choose nested=True")
            values = list(self._value.type or ())
            for each in values:
                if each.name.lower() in FIXED:
                    raise SchemaMisfitError(
                        f"field {each.name} of values has the name of a column of the table; choose nested=True"
                    )
            fields += [pyarrow.field(TOMBSTONE, pyarrow.bool_()), *values]
        elif self._value.type is not None:
            fields.insert(len(fields) - 1, pyarrow.field("value", self._value.type))
        found = pyarrow.schema(fields)
        return found if self._known is None else merge_schemas(self._known, found, "the schema of the query")

    def _rows(self, batch: pyarrow.RecordBatch, keys: Values, values: Values) -> pyarrow.RecordBatch:
        schema = self._schema()
        self._known = schema
        found = {each.name: batch.column(at) for at, each in enumerate(RAW_SCHEMA) if each.name != "value"}
        found["key"] = keys.array
        if self._flat:
            found[TOMBSTONE] = batch.column("value").is_null()
            found.update(zip(values.array.type.names, values.array.flatten(), strict=True))
        else:
            found["value"] = values.array
        arrays = []
        for each in schema:
            array = found.get(each.name)
            if array is None:
                array = pyarrow.nulls(batch.num_rows, each.type)
            arrays.append(array if array.type == each.type else array.cast(each.type))
        return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def dead_letters(batch: pyarrow.RecordBatch, bad: dict[int, tuple[str, BadValue]]) -> pyarrow.RecordBatch:
    """Return the dead letters of a batch: its records with the reason.

    Arguments:
        batch: with the columns of RAW_SCHEMA.
        bad: by row: "key" or "value", and what is wrong.
    """
    rows = sorted(bad)
    columns = pyarrow.RecordBatch.from_arrays(batch.columns, schema=RAW_SCHEMA).take(pyarrow.array(rows)).columns
    reasons = [
        pyarrow.array([bad[row][0] for row in rows], pyarrow.string()),
        pyarrow.array([bad[row][1].cause for row in rows], pyarrow.string()),
        pyarrow.array([bad[row][1].detail for row in rows], pyarrow.string()),
    ]
    return pyarrow.RecordBatch.from_arrays([*columns, *reasons], schema=DEAD_LETTER_SCHEMA)


def _bad_rows(keys: list[BadValue], values: list[BadValue]) -> dict[int, tuple[str, BadValue]]:
    """What is wrong in each bad row; of a bad key and a bad value the key."""
    bad = {each.row: ("value", each) for each in values}
    bad.update({each.row: ("key", each) for each in keys})
    return bad


def _failure(dead: pyarrow.RecordBatch) -> DecodingError:
    named = [each for each in dead.schema.names if each != "_timestamp"]  # a datetime ends with the year 9999
    first = dead.slice(0, 1).select(named).to_pylist()[0]
    return DecodingError(
        f"{first['_topic']}-{first['_partition']} offset {first['_offset']}: {first['part']}: {first['cause']}: "
        f"{first['detail']}. dead_letters='table' or 'topic:NAME' continues without the record"
    )


def _known_type(known: pyarrow.Schema | None, name: str) -> pyarrow.DataType | None:
    """The type of a column of the table; None = it has no such column."""
    return None if known is None or name not in known.names else known.field(name).type


def _known_fields(known: pyarrow.Schema | None) -> pyarrow.StructType | None:
    """The fields of values of the table as a struct."""
    fields = [each for each in known or () if each.name.lower() not in FIXED]
    return pyarrow.struct(fields) if fields else None
