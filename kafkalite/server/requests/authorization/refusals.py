"""Builds the responses and the entries of responses that say that something is refused.

An entry of a response repeats the names of its entry in the request, and has the error code at each level that has one,
as `getErrorResponse` of Kafka's requests does. Fields of both are found by their names.

A client without any right may send 200,000 entries, whose refusal takes more than a second: entries are built and
encoded in steps.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from kafkalite._speedups.codec import Encoded, encode_elements
from kafkalite.protocol.schema import Field, Response
from kafkalite.server.requests.authorization.table import Row
from kafkalite.server.requests.deferred_free import arrays_of, empty_in_steps
from kafkalite.server.requests.response_arrays import PIECE_STRUCTS, ResponseArray
from kafkalite.slicing import Steps

NAMES = ("name", "topic", "topic_name", "group_id", "transactional_id", "key")
INDEXES = ("partition_index", "index", "partition", "partition_id")
CODES = ("error_code", "partition_error_code")
COPIED = ("topic_id", "resource_type", "resource_name", "producer_id", "entity_type", "entity_name", "entity")
PARTS = ("partitions", "partition_indexes", "partition_data", "topics", "partition_states")
UNKNOWN = -1
UNKNOWN_FIELDS = (
    *("base_offset", "log_append_time_ms", "log_start_offset", "committed_offset", "offset", "low_watermark"),
    *("high_watermark", "last_stable_offset", "end_offset", "leader_epoch", "node_id", "port", "producer_epoch"),
    *("generation_id",),
)


def refuse_in_steps(message: type[Response], version: int, request: Any, error: int, row: Row) -> Steps:
    """Return the response for a request that is refused as a whole, in steps.

    Arguments:
        message: the class of the response.
        version: of the response.
        request: that is refused.
        error: the code; at the top, and in each entry where there is no code at the top.
        row: of the API key.
    """
    response = refused_entry(message, None, error)
    if row.entries is not None and (row.doubled or not message.has_error_code(version)):
        source, target = row.entries
        entries = getattr(request, source) or ()
        array = ResponseArray(message, version)
        setattr(response, target, (yield from refuse_entries(array, struct_of(message, target), entries, error)))
    return response


def refuse_entries(array: ResponseArray, struct: type[Any], entries: Iterable[Any], error: int) -> Steps:
    """Return an array of a response for entries of the request, structs or names, in steps.

    Arguments:
        array: empty; collects the entries.
        struct: their class.
        entries: of the request.
        error: the code.
    """
    for entry in entries:
        refused = yield from refuse_entry(array.like(), struct, entry, error)
        array.add(refused, structs_in(refused))
        yield
    return array.finish()


def keep_entries(request: Any, array: str, kept: list[Any], removed: list[Any]) -> Steps:
    """Replace an array of a request by its entries that are not refused, and free the refused ones in steps.

    Arguments:
        request: with the array.
        array: its field.
        kept, removed: the entries of the array; few of `removed` are left afterwards.
    """
    setattr(request, array, kept)
    yield from empty_in_steps(removed)


def structs_in(entry: Any) -> int:
    """Return the number of structs of an entry of a response."""
    return 1 + sum(len(getattr(entry, name)) for name in arrays_of(entry))


def refuse_entry(array: ResponseArray, struct: type[Any], entry: Any, error: int) -> Steps:
    """As `refused_entry`, in steps; `array` is empty, and collects the parts of an entry that has many."""
    many = [field for field in struct.__fields__ if len(parts_of(field, entry)) > PIECE_STRUCTS]
    if not many:
        return refused_entry(struct, entry, error)
    result = refused_entry(struct, entry, error, omitted=many)
    for field in many:
        parts = parts_of(field, entry)
        setattr(
            result, field.name, (yield from refuse_entries(array.like(), struct_of(struct, field.name), parts, error))
        )
    return result


def join_arrays(message: type[Any], version: int, *arrays: list[Any]) -> list[Any]:
    """Return the elements of several arrays as one: all as structs, or all as `Encoded` pieces."""
    if not any(isinstance(each, Encoded) for array in arrays for each in array[:1]):
        return [each for array in arrays for each in array]
    return [piece for array in arrays if array for piece in pieces_of(message, version, array)]


def pieces_of(message: type[Any], version: int, array: list[Any]) -> list[Any]:
    """Return an array that has elements as `Encoded` pieces."""
    return array if isinstance(array[0], Encoded) else [encode_elements(array, message, version)]


def struct_of(message: type[Any], name: str) -> type[Any]:
    """Return the class of the elements of an array."""
    (found,) = (each.wire.element.struct for each in message.__fields__ if each.name == name)
    element: type[Any] = found
    return element


def refused_entry(struct: type[Any], entry: Any, error: int, omitted: Sequence[Field] = ()) -> Any:
    """Return a struct with an error.

    Arguments:
        struct: its class.
        entry: of the request: a struct, a name or an index; None = the whole request.
        error: the code.
        omitted: fields that are not set.
    """
    result = struct()
    for each in struct.__fields__:
        value = None if each in omitted else value_of(each, entry, error)
        if value is not None:
            setattr(result, each.name, value)
        elif each.name == "error_message" and each.nullable_since < 1 << 15:
            setattr(result, each.name, None)
    return result


def value_of(field: Field, entry: Any, error: int) -> Any:
    """Return the value of one field; None = its default."""
    name, element = field.name, field.wire.element
    if name in CODES:
        return error
    if name in UNKNOWN_FIELDS:
        return UNKNOWN
    if entry is None:
        return None
    if element is not None and element.struct is not None and (name in COPIED or carries_error(element.struct)):
        return [refused_entry(element.struct, each, error) for each in parts_of(field, entry)]
    if name in COPIED:
        return getattr(entry, name, None)
    if name in NAMES:
        return entry if isinstance(entry, str) else first_of(entry, NAMES)
    if name in INDEXES:
        return entry if isinstance(entry, int) else first_of(entry, INDEXES)
    return None


def parts_of(field: Field, entry: Any) -> Sequence[Any]:
    """Return what an array of structs of a response repeats of an entry of the request: its partitions or others."""
    element = field.wire.element
    if entry is None or element is None or element.struct is None:
        return ()
    if field.name in COPIED:
        copied: Sequence[Any] = getattr(entry, field.name)
        return copied
    return first_of(entry, PARTS) or () if carries_error(element.struct) else ()


def carries_error(struct: type[Any]) -> bool:
    """Return whether a struct, or one in it, has an error code."""
    return any(
        each.name in CODES
        or (
            each.wire.element is not None
            and each.wire.element.struct is not None
            and carries_error(each.wire.element.struct)
        )
        for each in struct.__fields__
    )


def first_of(entry: Any, names: tuple[str, ...]) -> Any:
    """Return the field of an entry that has one of these names."""
    return next((getattr(entry, name) for name in names if hasattr(entry, name)), None)
