"""Builds the responses and the entries of responses that say that something is refused.

An entry of a response repeats the names of its entry in the request, and has the error code at each level that has one,
as `getErrorResponse` of Kafka's requests does. Fields of both are found by their names.
"""

from collections.abc import Iterable
from typing import Any

from kafkalite.protocol.schema import Field, Response
from kafkalite.server.requests.authorization.table import Row

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


def refuse_all(message: type[Response], version: int, request: Any, error: int, row: Row) -> Any:
    """Return the response for a request that is refused as a whole.

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
        setattr(response, target, refused_entries(message, target, getattr(request, source) or (), error))
    return response


def refused_entries(message: type[Any], target: str, refused: Iterable[Any], error: int) -> list[Any]:
    """Return the entries of an array of a response for entries of the request, structs or names."""
    struct = struct_of(message, target)
    return [refused_entry(struct, each, error) for each in refused]


def struct_of(message: type[Any], name: str) -> type[Any]:
    """Return the class of the elements of an array."""
    (found,) = (each.wire.element.struct for each in message.__fields__ if each.name == name)
    element: type[Any] = found
    return element


def refused_entry(struct: type[Any], entry: Any, error: int) -> Any:
    """Return a struct with an error.

    Arguments:
        struct: its class.
        entry: of the request: a struct, a name or an index; None = the whole request.
        error: the code.
    """
    result = struct()
    for each in struct.__fields__:
        value = value_of(each, entry, error)
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
    if name in COPIED and element is not None and element.struct is not None:
        return [refused_entry(element.struct, each, error) for each in getattr(entry, name)]
    if name in COPIED:
        return getattr(entry, name, None)
    if name in NAMES:
        return entry if isinstance(entry, str) else first_of(entry, NAMES)
    if name in INDEXES:
        return entry if isinstance(entry, int) else first_of(entry, INDEXES)
    if element is not None and element.struct is not None and carries_error(element.struct):
        return [refused_entry(element.struct, each, error) for each in first_of(entry, PARTS) or ()]
    return None


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
