"""Reads and writes the JSON of znodes. Invalid contents raise `ZnodeError`, whose message names the node.

Values have the ranges of Kafka's protocol, because what is read here is sent to brokers and clients: one value that
cannot be encoded, or that a receiver rejects, would stop all requests that contain it.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from kafkalite.model import PARTITIONS_MAX

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
EPOCH_MAX = INT32_MAX - 1_000_000  # elections raise epochs: those that follow must fit in 32 bits, too
DIGITS_MAX = 10  # of a number of 32 bits
INTEGERS = frozenset((int,))  # without bool
TEXT_BYTES_MAX = 32_767  # of a string in Kafka's protocol


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

    def whole(
        self, name: str, default: int | None = None, *, minimum: int = -INT32_MAX - 1, maximum: int = INT32_MAX
    ) -> int:
        """A whole number from `minimum` to `maximum`; by default one of 32 bits."""
        value = self._fields.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise self.wrong(name)
        return value

    def broker(self, name: str) -> int:
        """A broker id."""
        return self.whole(name, minimum=0)

    def epoch(self, name: str) -> int:
        """An epoch of a leader or of a controller."""
        return self.whole(name, minimum=0, maximum=EPOCH_MAX)

    def broker_epochs(self, name: str) -> tuple[int, ...]:
        """A list of broker epochs, -1 for those that are not known; none if it is missing."""
        value = self._fields.get(name, [])
        if not isinstance(value, list) or not INTEGERS.issuperset(map(type, value)):
            raise self.wrong(name)
        if value and (min(value) < -1 or max(value) > INT64_MAX):
            raise self.wrong(name)
        return tuple(value)

    def whole_text(self, name: str) -> int:
        """A whole number of 64 bits, written as a string."""
        value = self._fields.get(name)
        if not isinstance(value, str) or not is_whole(value.removeprefix("-"), digits=19):
            raise self.wrong(name)
        if not -INT64_MAX - 1 <= int(value) <= INT64_MAX:
            raise self.wrong(name)
        return int(value)

    def text(self, name: str) -> str:
        """A text that Kafka's protocol can have."""
        value = self._fields.get(name)
        if not isinstance(value, str) or not is_encodable(value):
            raise self.wrong(name)
        return value

    def brokers(self, name: str) -> tuple[int, ...]:
        """A list of broker ids."""
        return self._ids(name, self._fields.get(name))

    def optional_brokers(self, name: str) -> tuple[int, ...]:
        """A list of broker ids; none if it is missing."""
        return self._ids(name, self._fields.get(name, []))

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
        """Broker ids by partition; a list may only be empty if the field is `optional`."""
        value = self._fields.get(name, {} if optional else None)
        if not isinstance(value, dict) or not are_partitions(value):
            raise self.wrong(name)
        found = dict(zip(map(int, value), [self._ids(name, ids) for ids in value.values()], strict=True))
        if len(found) < len(value) or not (optional or all(found.values())):
            raise self.wrong(name)
        return found

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
        if not isinstance(value, list) or not all(isinstance(entry, str) and is_encodable(entry) for entry in value):
            raise self.wrong(name)
        return value

    def optional_text(self, name: str) -> str | None:
        """A text, or None when it is missing or null."""
        return None if self._fields.get(name) is None else self.text(name)

    def optional_flag(self, name: str) -> bool:
        """A boolean; False if it is missing."""
        value = self._fields.get(name, False)
        if not isinstance(value, bool):
            raise self.wrong(name)
        return value

    def wrong(self, name: str) -> ZnodeError:
        """Return the error for an invalid field."""
        return ZnodeError(f"{self._path}: the field {name!r} is missing or wrong")

    def _ids(self, name: str, value: object) -> tuple[int, ...]:
        """The broker ids of a list; fast, because a topic has one for each partition."""
        if not isinstance(value, list) or not INTEGERS.issuperset(map(type, value)) or len(set(value)) < len(value):
            raise self.wrong(name)
        if value and (min(value) < 0 or max(value) > INT32_MAX):
            raise self.wrong(name)
        return tuple(value)


def is_whole(text: str, *, digits: int = DIGITS_MAX) -> bool:
    """Whether a text is a whole number without a sign, of at most so many ASCII digits."""
    return text.isascii() and text.isdecimal() and len(text) <= digits


def are_partitions(texts: Collection[str]) -> bool:
    """Whether all texts are indexes of partitions; without a Python loop, as a topic may have thousands."""
    if not (all(map(str.isascii, texts)) and all(map(str.isdecimal, texts))):
        return False
    return not texts or (max(map(len, texts)) <= DIGITS_MAX and max(map(int, texts)) < PARTITIONS_MAX)


def is_encodable(text: str) -> bool:
    """Whether a text fits in Kafka's protocol: UTF-8, so without lone surrogates, which JSON may have."""
    try:
        return len(text.encode()) <= TEXT_BYTES_MAX
    except UnicodeEncodeError:
        return False
