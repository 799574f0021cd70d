"""The base of the serializers of all formats: the registration of their schema, and the reference to it."""

from typing import Any
from uuid import UUID

from kafkalite.errors import SchemaError
from kafkalite_sdk.producer.serializers import Headers
from kafkalite_sdk.registry.client import SchemaRegistry
from kafkalite_sdk.registry.wire import Key, header_name, prefix


class RegisteredSerializer:
    """A serializer with a schema of a registry.

    Arguments:
        registry: where the schema is registered.
        text, kind: the schema.
        key: it serializes keys; the subject is `TOPIC-key`, else `TOPIC-value`.
        header: the reference to the schema is a header, with the GUID of the schema; else it precedes the data.
        indexes: of a Protobuf message.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        text: str,
        kind: str,
        *,
        key: bool = False,
        header: bool = False,
        indexes: tuple[int, ...] = (),
    ) -> None:
        self._registry = registry
        self._text = text
        self._kind = kind
        self._key = key
        self._header = header
        self._indexes = indexes
        self._prefixes: dict[str, bytes] = {}

    async def prepare(self, *topics: str) -> None:
        """Register the schema for topics; `send` does not wait for a registry.

        Raises:
            SchemaError: the registry rejects the schema or is not available, or has no GUIDs for headers.
        """
        for topic in topics:
            subject = f"{topic}-{'key' if self._key else 'value'}"
            registered = await self._registry.register(subject, self._text, self._kind)
            reference: Key = registered.id
            if self._header:
                if registered.guid is None:
                    raise SchemaError(f"{subject}: the registry returns no GUID; use header=False")
                reference = _guid(subject, registered.guid)
            self._prefixes[topic] = prefix(reference, self._indexes)

    def serialize(self, topic: str, headers: Headers, data: Any, /) -> bytes:
        """Return the bytes of an object, with the reference to its schema. Raises SchemaError before `prepare`."""
        reference = self._prefixes.get(topic)
        if reference is None:
            raise SchemaError(f"the schema of {topic} is not registered: await serializer.prepare({topic!r}) first")
        encoded = self.encode(data)
        if not self._header:
            return reference + encoded
        headers.append((header_name(key=self._key), reference))
        return encoded

    def encode(self, data: Any) -> bytes:
        """Return the bytes of an object."""
        raise NotImplementedError


def _guid(subject: str, text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise SchemaError(f"{subject}: the registry returned {text[:100]!r}, which is no GUID") from None
