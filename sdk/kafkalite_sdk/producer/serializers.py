"""Turns keys and values of users into bytes."""

from collections.abc import Callable
from typing import Protocol, TypeVar

Headers = list[tuple[str | bytes, bytes | None]]
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class TopicSerializer(Protocol[T_contra]):
    """A serializer that needs the topic or the headers of a record, or adds headers."""

    def serialize(self, topic: str, headers: Headers, data: T_contra, /) -> bytes | None:
        """Return the bytes of a key or a value.

        Arguments:
            topic: of the record.
            headers: of the record; those that are added are sent.
            data: the key or the value, never None.
        """
        ...


Serializer = Callable[[T], bytes | None] | TopicSerializer[T]
"""A function of the data, or an object with `serialize(topic, headers, data)`. None is sent as null without a call."""


def bind_serializer(serializer: Serializer[T] | None, name: str) -> Callable[[str, Headers, T], bytes | None] | None:
    """Return a serializer as a function of topic, headers and data; None = the data is bytes.

    Raises:
        TypeError: it is neither a function nor has it a method `serialize`; `name` is that of the argument.
    """
    if serializer is None:
        return None
    serialize = getattr(serializer, "serialize", None)
    if serialize is not None:
        return serialize  # type: ignore[no-any-return]
    if not callable(serializer):
        raise TypeError(f"{name} is {serializer!r}, expected a function or an object with serialize()")
    function = serializer
    return lambda _topic, _headers, data: function(data)
