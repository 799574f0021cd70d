"""Compares the replicas of a compacted partition: the last value of each key.

Each replica compacts its log on its own, so only what compaction keeps is equal. A key whose last record is a tombstone
may be gone. One with a record above the compared offsets is not compared: it may have lost its records below.

Pure.
"""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from kafkalite.cli.verify.batch_comparison import Difference

DIGEST_BYTES = 16
KEY_BYTES_MAX = 40  # of a key in a line


class LastValue(NamedTuple):
    """The last record of a key: its offset, and a digest of value and headers; None = a tombstone."""

    offset: int
    digest: bytes | None


class KeyTable:
    """The last value of each key in one replica.

    Arguments:
        end: records at this offset and above are not compared.

    Attributes:
        values: by key, below `end`.
        newer: the keys with later records.
    """

    def __init__(self, end: int) -> None:
        self.values: dict[bytes, LastValue] = {}
        self.newer: set[bytes] = set()
        self._end = end

    def add(
        self, offset: int, key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
    ) -> None:
        """Add a record; those without a key are not kept by compaction."""
        if key is None:
            return
        if offset >= self._end:
            self.newer.add(key)
            return
        digest = None
        if value is not None:
            digest = blake2b(repr(headers).encode() + value if headers else value, digest_size=DIGEST_BYTES).digest()
        self.values[key] = LastValue(offset, digest)

    def value(self, key: bytes, start: int) -> LastValue | None:
        """The value that compaction keeps; None for a tombstone, and for a record below `start`."""
        found = self.values.get(key)
        return None if found is None or found.digest is None or found.offset < start else found


def compare_tables(tables: Mapping[int, KeyTable], start: int) -> Iterator[Difference]:
    """Yield the keys whose last values differ, by offset.

    Arguments:
        tables: by broker id; the first one is what the others are compared with.
        start: the highest log start of the replicas.
    """
    if not tables:
        return
    model, expected = next(iter(tables.items()))
    newer = set[bytes]().union(*(table.newer for table in tables.values()))
    found: list[Difference] = []
    for key in set[bytes]().union(*(table.values for table in tables.values())) - newer:
        right = expected.value(key, start)
        for replica, table in tables.items():
            value = table.value(key, start)
            if value != right:
                offset = min(each.offset for each in (right, value) if each is not None)
                text = f"key {key[:KEY_BYTES_MAX]!r} has {text_of(value)}, on broker {model} {text_of(right)}"
                found.append(Difference(offset, replica, text))
    yield from sorted(found)


def text_of(value: LastValue | None) -> str:
    """The last value of a key in a line."""
    return "no value" if value is None else f"the value at offset {value.offset}"
