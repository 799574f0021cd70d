"""The growth of the schema of a table: columns are added, and a column keeps its type. Needs pyarrow."""

import pyarrow

from pyspark_kafkalite.decoding.errors import SchemaMisfitError
from pyspark_kafkalite.tables.ddl import ddl_text, type_text

INTEGERS = (pyarrow.int8(), pyarrow.int16(), pyarrow.int32(), pyarrow.int64())


def merge_schemas(known: pyarrow.Schema, added: pyarrow.Schema, origin: str) -> pyarrow.Schema:
    """Return the schema of a table after data with another schema was added.

    A column of the table keeps its type; a narrower integer or float of the data is widened. A column that only the
    data has is added behind the others; one that only the table has is null in the data.

    Arguments:
        known: of the table.
        added: of the data.
        origin: of the data, for errors.

    Raises:
        SchemaMisfitError: a column has another type; the text shows both schemas.
    """
    try:
        return pyarrow.schema(_merged_fields(list(known), list(added), ""))
    except _Misfit as misfit:
        raise SchemaMisfitError(
            f"{origin} does not fit the table: {misfit}. Schema of the table: {ddl_text(known)}. Schema of the data: "
            f"{ddl_text(added)}. Write to another table, or choose misfits='dead_letters'"
        ) from None


class _Misfit(Exception):
    """Names the column and both types."""


def _merged_fields(known: list[pyarrow.Field], added: list[pyarrow.Field], prefix: str) -> list[pyarrow.Field]:
    new = {each.name.lower(): each for each in added}
    fields = []
    for each in known:
        other = new.pop(each.name.lower(), None)
        if other is None:
            fields.append(each)
            continue
        if other.name != each.name:
            raise _Misfit(f"columns {prefix}{each.name} and {prefix}{other.name} differ in case only")
        fields.append(pyarrow.field(each.name, _merged_type(each.type, other.type, prefix + each.name)))
    return fields + [pyarrow.field(each.name, each.type) for each in new.values()]


def _merged_type(known: pyarrow.DataType, added: pyarrow.DataType, name: str) -> pyarrow.DataType:
    types = pyarrow.types
    if known == added or _widens(known, added):
        return known
    if types.is_struct(known) and types.is_struct(added):
        return pyarrow.struct(_merged_fields(list(known), list(added), f"{name}."))
    if types.is_list(known) and types.is_list(added):
        return pyarrow.list_(_merged_type(known.value_type, added.value_type, f"{name}[]"))
    if types.is_map(known) and types.is_map(added) and known.key_type == added.key_type:
        return pyarrow.map_(known.key_type, _merged_type(known.item_type, added.item_type, f"{name}[]"))
    raise _Misfit(f"column {name} is {type_text(known)}, in the data {type_text(added)}")


def _widens(known: pyarrow.DataType, added: pyarrow.DataType) -> bool:
    if known in INTEGERS and added in INTEGERS:
        return INTEGERS.index(added) < INTEGERS.index(known)
    return bool(known == pyarrow.float64() and added == pyarrow.float32())
