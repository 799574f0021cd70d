"""Reads and writes the JSON of znodes. Invalid contents raise `ZnodeError`, whose message names the node."""

import json
from collections.abc import Mapping
from typing import Any


class ZnodeError(ValueError):
    """The content of a znode is invalid; the message is one line with its path."""


def dump(fields: Mapping[str, Any]) -> bytes:
    """JSON as Kafka's encoder writes it: no spaces, characters as they are, order kept."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def parse(path: str, data: bytes) -> dict[str, Any]:
    """A JSON object; raises ZnodeError."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ZnodeError(f"{path}: not JSON") from error
    if not isinstance(fields, dict):
        raise ZnodeError(f"{path}: not a JSON object")
    return fields


class ZnodeReader:
    """Typed fields of one node's JSON; every wrong one raises ZnodeError."""

    def __init__(self, path: str, fields: Mapping[str, Any]) -> None:
        self._path = path
        self._fields = fields

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        value = self._fields.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(name)
        return value

    def whole_text(self, name: str) -> int:
        """A whole number written as a string."""
        value = self._fields.get(name)
        if not isinstance(value, str) or not value.removeprefix("-").isdecimal() or len(value) > 20:
            raise self.wrong(name)
        return int(value)

    def text(self, name: str) -> str:
        """A text."""
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise self.wrong(name)
        return value

    def brokers(self, name: str) -> tuple[int, ...]:
        """A list of broker ids."""
        return self._ids(name, self._fields.get(name))

    def objects(self, name: str) -> list["ZnodeReader"]:
        """A list of objects."""
        value = self._fields.get(name)
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise self.wrong(name)
        return [ZnodeReader(self._path, entry) for entry in value]

    def object_by_name(self, name: str, *, optional: bool = False) -> dict[str, "ZnodeReader"]:
        """Objects by text; none if the field is missing or null and `optional`."""
        value = self._fields.get(name)
        if value is None and optional:
            return {}
        if not isinstance(value, dict) or not all(isinstance(entry, dict) for entry in value.values()):
            raise self.wrong(name)
        return {key: ZnodeReader(self._path, entry) for key, entry in value.items()}

    def assignment(self, name: str, *, optional: bool = False) -> dict[int, tuple[int, ...]]:
        """Broker ids by partition."""
        value = self._fields.get(name, {} if optional else None)
        if not isinstance(value, dict) or not all(key.isdecimal() and len(key) <= 10 for key in value):
            raise self.wrong(name)
        return {int(key): self._ids(name, ids) for key, ids in value.items()}

    def texts(self, name: str) -> dict[str, str]:
        """Texts by text."""
        value = self._fields.get(name)
        if not isinstance(value, dict) or not all(isinstance(entry, str) for entry in value.values()):
            raise self.wrong(name)
        return value

    def optional_texts(self, name: str) -> dict[str, str] | None:
        """Texts by text, or None when the field is missing or null."""
        return None if self._fields.get(name) is None else self.texts(name)

    def text_list(self, name: str) -> list[str]:
        """A list of texts."""
        value = self._fields.get(name)
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise self.wrong(name)
        return value

    def optional_text(self, name: str) -> str | None:
        """A text, or None when it is missing or null."""
        return None if self._fields.get(name) is None else self.text(name)

    def wrong(self, name: str) -> ZnodeError:
        """Return the error for an invalid field."""
        return ZnodeError(f"{self._path}: the field {name!r} is missing or wrong")

    def _ids(self, name: str, value: object) -> tuple[int, ...]:
        if not isinstance(value, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
            raise self.wrong(name)
        return tuple(value)
