"""Delays fetches until their partitions have enough records: when a fetch must wait, and what completes it.

A `DelayedFetch` is attached to each partition that it reads. It is completed by the append that adds the missing bytes,
by an event that changes the response (deletion, a new leader epoch, a new log start offset), or by its deadline. A
read_committed fetch waits for the last stable offset: the records of an open transaction do not count. A fetch at a
follower is completed by the high watermark that the follower learns. Nothing polls.

Whether a response has enough bytes is decided by `bytes_missing_for_client` and `enough_for_follower`. The rules
differ: a client's response is also enough when a byte limit has left a partition unread. They ask their callers whether
a read ended before the last record (`reads.ends_early`): `server/requests/pending_fetch` for clients,
`server/handlers/replica_fetch` for followers.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from kafkalite.clock import Clock, Timer


class FetchedRecords(Protocol):
    """The part of the read of a partition that decides whether a fetch waits."""

    @property
    def size(self) -> int:
        """Of its records, in bytes."""

    @property
    def error(self) -> int:
        """A Kafka error code, 0 = none."""

    @property
    def diverging(self) -> object | None:
        """The epoch at which the log of the reader diverges; None = it does not."""


Read = TypeVar("Read", bound=FetchedRecords)
Part = TypeVar("Part")


def bytes_missing_for_client(
    reads: Sequence[Read], bytes_min: int, stops_early: Callable[[Sequence[Read]], bool]
) -> int:
    """How many bytes a response to a client lacks; 0 or less if it need not wait, as with an error.

    Arguments:
        reads: of all partitions.
        bytes_min: `min_bytes` of the request.
        stops_early: whether a read stopped before the last record: at a byte limit, a segment end or a page-cache miss.
            It is called only with too few records.

    Source: DelayedFetch.tryComplete.
    """
    size = sum(found.size for found in reads)
    if size >= bytes_min or any(found.error or found.diverging for found in reads):
        return 0
    return 0 if size and stops_early(reads) else bytes_min - size


def enough_for_follower(
    news: Iterable[tuple[Part, Read]], bytes_min: int, stops_early: Callable[[Part, Read], bool]
) -> bool:
    """Whether a response to a follower need not wait: it has enough bytes, an error or a diverging epoch.

    Arguments:
        news: the partitions with something to respond, and their reads.
        bytes_min: `min_bytes` of the request.
        stops_early: whether a read with records stopped before the last one.
    """
    size = 0
    early = False
    for part, found in news:
        if found.error or found.diverging is not None:
            return True
        size += found.size
        if found.size and bytes_min > size:
            early = early or stops_early(part, found)
    return bytes_min <= 0 or (size > 0 and (early or size >= bytes_min))


class FetchedPartition(Protocol):
    """The part of a partition that a delayed fetch uses."""

    delayed_fetches: "dict[DelayedFetch, None]"


class DelayedFetch:
    """A fetch that waits for records.

    Arguments:
        partitions: the partitions that it reads.
        bytes_missing: how many more bytes below the high watermark complete it (`min_bytes` minus the bytes so far).
        wake: called once, without arguments, when the fetch should read again and respond.
        missing: for a fetch that reads up to the last stable offset: returns how many bytes are missing now.
        recount: as `missing`, for a fetch up to the high watermark. None: what adds unknown bytes completes it.
    """

    __slots__ = ("_bytes_missing", "_missing", "_partitions", "_recount", "_timer", "_wake")

    def __init__(
        self,
        partitions: Sequence[FetchedPartition],
        bytes_missing: int,
        wake: Callable[[], None],
        missing: Callable[[], int] | None = None,
        recount: Callable[[], int] | None = None,
    ) -> None:
        self._partitions = partitions
        self._bytes_missing = bytes_missing
        self._missing = missing
        self._recount = missing or recount
        self._wake: Callable[[], None] | None = wake
        self._timer: Timer | None = None

    def watch(self, clock: Clock, wait_s: float) -> None:
        """Attach it to its partitions, for at most `wait_s` seconds."""
        for partition in self._partitions:
            partition.delayed_fetches[self] = None
        self._timer = clock.call_at(clock.monotonic() + wait_s, self.force_complete)

    def bytes_appended(self, size: int) -> None:
        """Note that `size` more bytes can be read from one of the partitions."""
        self._bytes_missing -= size
        if self._bytes_missing <= 0:
            self.force_complete()

    def unstable_bytes_appended(self, size: int, *, stable_moved: bool) -> None:
        """Note appended bytes as `bytes_appended` does, on a partition with an open transaction.

        Arguments:
            size: bytes below the high watermark that were added.
            stable_moved: whether the last stable offset is higher than before.
        """
        if self._missing is None:
            self.bytes_appended(size)
        elif stable_moved and self._wake is not None:
            self._bytes_missing = self._missing()
            self.bytes_appended(0)

    def bytes_committed(self) -> None:
        """Note that a follower's high watermark has risen, by bytes that are not counted."""
        if self._wake is None:
            return
        certain = self._missing is None and self._bytes_missing <= 1
        self._bytes_missing = 0 if certain or self._recount is None else self._recount()
        self.bytes_appended(0)

    def force_complete(self) -> None:
        """Complete the fetch now; later calls do nothing."""
        wake = self._wake
        self.cancel()
        if wake is not None:
            wake()

    def cancel(self) -> None:
        """Detach it from its partitions without a response (the client has disconnected)."""
        self._wake = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition in self._partitions:
            partition.delayed_fetches.pop(self, None)
        self._partitions = ()
