"""The appends of a partition that are written and not answered yet, in order of their end offsets.

1. What `Partition.write` has written at once is one `HeldWrite`. It waits for the flush that flush.messages requires;
   then its appends with acks=1 leave. It waits for the high watermark then, with the appends with acks=all. Appends
   with acks=0 are not held.
2. Each append leaves once: with the flush, with the high watermark, at its deadline, or rejected.
3. A write whose appends have left stays until the high watermark has passed it, for its bytes: delayed fetches count
   them. Such writes become one, so that a high watermark that has stopped does not fill the memory.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable

from kafkalite.clock import Clock, Timer
from kafkalite.cluster.partition.append import Append
from kafkalite.model import ACKS_ALL

NO_OFFSET = -1


class HeldWrite:
    """One write of a partition, with the appends that wait.

    Arguments:
        end_offset: the log end after it.
        flush_offset: the recovery point from which on it does not wait for a flush.
        size: its bytes.
        appends: with acks=1 and acks=all.
        now: the current time, in seconds of the monotonic clock.

    Attributes:
        deadline: when the first of its appends with acks=all has waited for its `timeout_ms`; infinite without any.
    """

    __slots__ = ("appends", "deadline", "end_offset", "flush_offset", "held_since", "size")

    def __init__(self, end_offset: int, flush_offset: int, size: int, appends: list[Append], now: float) -> None:
        self.end_offset = end_offset
        self.flush_offset = flush_offset
        self.size = size
        self.appends = appends
        self.held_since = now
        self.deadline = now + min(map(timeout_s, appends), default=math.inf)

    def take(self, leaves: Callable[[Append], bool]) -> list[Append]:
        """Remove and return the appends for which `leaves` is true, in order."""
        taken = [append for append in self.appends if leaves(append)]
        if taken:
            self.appends = [append for append in self.appends if not leaves(append)]
        return taken

    def take_expired(self, now: float) -> list[Append]:
        """Remove and return the appends whose deadline has passed."""
        if self.deadline > now:
            return []
        left, expired = list[Append](), list[Append]()
        for append in self.appends:
            (expired if self.held_since + timeout_s(append) <= now else left).append(append)
        deadline = self.held_since + min(map(timeout_s, left), default=math.inf)
        self.appends, self.deadline = left, deadline
        return expired


class HeldAppends:
    """The queue: the writes that wait for a flush are behind those that only wait for the high watermark.

    Attributes:
        flush_requested: a flush up to this offset was requested.
    """

    __slots__ = ("_uncommitted", "_unflushed", "flush_requested")

    def __init__(self) -> None:
        self.flush_requested = 0
        self._unflushed: deque[HeldWrite] = deque()
        self._uncommitted: deque[HeldWrite] = deque()

    def __len__(self) -> int:
        """Number of writes."""
        return len(self._unflushed) + len(self._uncommitted)

    def __contains__(self, append: Append) -> bool:
        """Whether an append is held."""
        return any(append in write.appends for write in self._writes())

    @property
    def unflushed(self) -> bool:
        """Whether a write waits for a flush; later ones wait behind it."""
        return bool(self._unflushed)

    def add(self, write: HeldWrite) -> None:
        """Add a write behind all others; it waits for a flush at first, perhaps for one that has ended."""
        self._unflushed.append(write)

    def remove(self, write: HeldWrite) -> None:
        """Remove a write whose flush was not requested; its appends are not held any more."""
        if write in self._unflushed:
            self._unflushed.remove(write)

    def can_leave(self, recovery_point: int) -> bool:
        """Whether a write that waits for a flush is on the disk."""
        return bool(self._unflushed) and self._unflushed[0].flush_offset <= recovery_point

    def take_flushed(self, recovery_point: int, taken: list[Append]) -> int:
        """Let the writes up to the recovery point wait for the high watermark only.

        Arguments:
            recovery_point: of the log.
            taken: the appends that leave are added to it.

        Returns the end offset of the last of these writes, -1 without any.
        """
        end_offset = NO_OFFSET
        while self.can_leave(recovery_point):
            write = self._unflushed[0]
            taken += write.take(is_local)
            end_offset = write.end_offset
            add_merged(self._uncommitted, self._unflushed.popleft())
        return end_offset

    def take_committed(self, high_watermark: int, taken: list[Append]) -> int:
        """Remove the flushed writes below the high watermark.

        Arguments:
            high_watermark: of the partition.
            taken: the appends that leave are added to it.

        Returns the bytes of these writes.
        """
        size = 0
        while self._uncommitted and self._uncommitted[0].end_offset <= high_watermark:
            write = self._uncommitted.popleft()
            taken += write.appends
            write.appends = []
            size += write.size
        return size

    def take_expired(self, now: float, taken: list[Append]) -> None:
        """Remove the appends with acks=all whose deadline has passed; their writes stay.

        Arguments:
            now: the current time, in seconds of the monotonic clock.
            taken: the appends that leave are added to it.
        """
        for write in self._writes():
            taken += write.take_expired(now)
        self._merge()

    def take_required(self, taken: list[Append]) -> None:
        """Remove the appends of clients with acks=all, and add them to `taken`; their writes stay."""
        for write in self._writes():
            taken += write.take(is_required)
        self._merge()

    def take_all(self) -> list[Append]:
        """Remove and return every append; no write stays."""
        taken = [append for write in self._writes() for append in write.appends]
        self._unflushed.clear()
        self._uncommitted.clear()
        return taken

    def next_deadline(self) -> float:
        """The earliest deadline, infinite if there is none."""
        return min((write.deadline for write in self._writes()), default=math.inf)

    def _merge(self) -> None:
        writes, self._uncommitted = self._uncommitted, deque()
        for write in writes:
            add_merged(self._uncommitted, write)

    def _writes(self) -> Iterable[HeldWrite]:
        yield from self._uncommitted
        yield from self._unflushed


class Deadline:
    """The next time at which something expires, with one timer: it is set for the earliest deadline, and stays while
    what waits for it comes and goes.

    Arguments:
        clock: of the timer.
        expire: called with the time (seconds of the monotonic clock) up to which deadlines have passed; calls `lower`
            for what still waits.
    """

    __slots__ = ("_at", "_clock", "_expire", "_timer")

    def __init__(self, clock: Clock, expire: Callable[[float], object]) -> None:
        self._clock = clock
        self._expire = expire
        self._timer: Timer | None = None
        self._at = math.inf

    def lower(self, deadline: float) -> None:
        """Let `expire` be called at a deadline (seconds of the monotonic clock; infinite: none), or before."""
        if deadline < self._at:
            self.cancel()
            self._timer = self._clock.call_at(deadline, self._fire)
            self._at = deadline

    def cancel(self) -> None:
        """Let nothing expire."""
        timer, self._timer, self._at = self._timer, None, math.inf
        if timer is not None:
            timer.cancel()

    def _fire(self) -> None:
        now = max(self._clock.monotonic(), self._at)  # a clock may round
        self._timer, self._at = None, math.inf
        self._expire(now)


def add_merged(writes: deque[HeldWrite], write: HeldWrite) -> None:
    """Add a write behind the others; two without appends become one."""
    if writes and not writes[-1].appends and not write.appends:
        writes[-1].end_offset = write.end_offset
        writes[-1].size += write.size
    else:
        writes.append(write)


def is_local(append: Append) -> bool:
    """Whether an append does not wait for other replicas (acks=1)."""
    return append.required_acks != ACKS_ALL


def is_required(append: Append) -> bool:
    """Whether an append of a client waits for all in-sync replicas; those of the broker wait as long as it leads."""
    return append.required_acks == ACKS_ALL and not append.own


def timeout_s(append: Append) -> float:
    """How long an append may wait for other replicas, in seconds."""
    return append.timeout_ms / 1000 if is_required(append) else math.inf
