"""The types that all clients write and read, independent of a library."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

DEADLINE_S = 120.0
EARLIEST = "earliest"
LATEST = "latest"

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class At:
    """Start at the first record whose timestamp is at least this."""

    timestamp_ms: int


Start = int | str | At


@dataclass(frozen=True)
class Record:
    """One record; `offset` is -1 until a broker has acknowledged it (with acks=0 it stays -1)."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0
    offset: int = -1

    def at(self, offset: int) -> Record:
        return replace(self, offset=offset)

    def content(self) -> tuple[bytes | None, bytes | None, Headers]:
        """What must come back as it was sent, whatever the time and place."""
        return self.key, self.value, self.headers


class Refused(Exception):
    """The broker answered with a Kafka error; `code` is its number."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(f"Kafka error {code} {message}")
        self.code = code
        self._message = message

    def __reduce__(self) -> tuple[type[Refused], tuple[int, str]]:
        return Refused, (self.code, self._message)


class Deadline:
    """One deadline for a whole conversation; asking it for the time left fails once it has passed."""

    def __init__(self, what: str, seconds: float = DEADLINE_S) -> None:
        self.what = what
        self.end = time.monotonic() + seconds

    def left(self, at_most: float = DEADLINE_S) -> float:
        seconds = self.end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError(f"not in time: {self.what}")
        return min(seconds, at_most)


class Client(Protocol):
    """A foreign library that produces, and reads by assignment.

    `write` returns the records with their offsets (acks=0: unchanged) or raises `Refused`;
    `read` returns exactly `count` records from `start` on, or raises TimeoutError;
    `bounds` returns the earliest and the end offset of a partition; `find` the offset of the first record at or after
    a timestamp, or None.
    """

    name: str

    def write(
        self,
        address: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        request_bytes_max: int | None = None,
    ) -> list[Record]: ...

    def read(
        self,
        address: str,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        start: Start = EARLIEST,
        seconds: float = DEADLINE_S,
    ) -> list[Record]: ...

    def bounds(self, address: str, topic: str, partition: int = 0) -> tuple[int, int]: ...

    def find(self, address: str, topic: str, timestamp_ms: int, partition: int = 0) -> int | None: ...
