"""Reads and writes the records of one internal topic by their record types.

```python
type_id, key = RECORDS.read_key(record.key)
if key is not None and record.value is not None:
    value = RECORDS.read_value(type_id, record.value)
```
"""

import struct
from typing import ClassVar

from kafkalite._speedups.codec import decode, encode
from kafkalite.errors import DecodeError
from kafkalite.protocol.schema import Message

PREFIX_SIZE = 2
_INT16 = struct.Struct(">h")  # the fastest reader: a broker with many groups reads millions at its start


class StoredValue(Message):
    """The value of a record. `written` is the version that is written."""

    written: ClassVar[int] = 0

    def __init_subclass__(cls, written: int = 0, **options: object) -> None:
        super().__init_subclass__(**options)  # type: ignore[arg-type]
        cls.written = written

    def version_written(self) -> int:
        """The version in which this value is written."""
        return self.written


class StoredKey(Message):
    """The key of a record. `type_id` is its record type, `value_class` the class of its value."""

    type_id: ClassVar[int] = -1
    value_class: ClassVar[type[StoredValue]] = StoredValue

    def __init_subclass__(cls, type_id: int = -1, value: type[StoredValue] = StoredValue, **options: object) -> None:
        super().__init_subclass__(versions=(0, 0), **options)  # type: ignore[arg-type]
        cls.type_id = type_id
        cls.value_class = value


class RecordTypes:
    """The record types of one topic, by number. `keys`: the key class of each."""

    def __init__(self, *keys: type[StoredKey]) -> None:
        self.keys = {cls.type_id: cls for cls in keys}

    def read_key(self, key: bytes) -> tuple[int, StoredKey | None]:
        """The record type and the key; None for an unknown type.

        Raises: DecodeError; its position counts from behind the record type.
        """
        type_id = _prefix(key, "record type")
        cls = self.keys.get(type_id)
        return type_id, None if cls is None else decode(cls, 0, key[PREFIX_SIZE:])

    def read_value(self, type_id: int, value: bytes) -> StoredValue:
        """The value of a record of a known type; not for tombstones.

        Raises: DecodeError, also for an unknown type or version; its position counts from behind the version.
        """
        cls = self.keys.get(type_id)
        if cls is None:
            raise DecodeError("version", f"record type {type_id} is not known")
        return decode(cls.value_class, _prefix(value, "value version"), value[PREFIX_SIZE:])


def _prefix(data: bytes, what: str) -> int:
    if len(data) < PREFIX_SIZE:
        raise DecodeError("truncated", f"no {what} in {len(data)} bytes")
    number: int = _INT16.unpack_from(data)[0]
    return number


def write(key: StoredKey, value: StoredValue | None, version: int | None = None) -> tuple[bytes, bytes | None]:
    """Key and value of a record as bytes.

    Args:
        key: its class has the record type.
        value: the value; None = a tombstone.
        version: of the value; None = the one that Kafka 4.3 writes.

    Raises:
        TypeError: the value does not belong to the key.
        EncodeError: a value does not fit into its field.
    """
    key_bytes = _INT16.pack(key.type_id) + encode(key, 0)
    if value is None:
        return key_bytes, None
    if type(value) is not key.value_class:
        raise TypeError(f"{type(value).__name__} is not a value of {type(key).__name__}")
    chosen = value.version_written() if version is None else version
    body = encode(value, chosen)
    return key_bytes, _INT16.pack(chosen) + body
