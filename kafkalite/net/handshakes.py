"""Starts TLS handshakes in the order of their first records, a bounded number at a time, each within a deadline.

1. A connection has no TLS state before its first record has arrived: a client that sends nothing, or a part of it,
   costs a socket.
2. At most `RUNNING_MAX` handshakes run. When others wait, the oldest ones that have lasted `SLOW_S` are ended, some per
   iteration, so that clients that never finish a handshake do not keep others out.
3. An iteration of the loop starts one handshake, as each costs up to a millisecond in later iterations; while others
   wait, as many as take a quarter of the CPU time of the previous iteration, at most `STARTS_MAX`. So their rate does
   not decrease with the load, and they prolong an iteration by about a third. Time in which the thread had no core does
   not count: it would start many at once on a busy machine. Connections past their deadline do not count, either.
4. A client without TLS is closed at its first byte, and reported.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

LOGGER = logging.getLogger("kafkalite.net")
RUNNING_MAX = 256
STARTS_MAX = 16
START_EACH_S = 0.004  # of CPU time: four times the cost of a handshake
LATE_S = 0.001  # for connections past their deadline, per iteration
ENDS_MAX = 16  # slow handshakes per iteration; each takes 0.1 ms of the next one
SLOW_S = 1.0
DEADLINE_S = 10.0  # from the connection to the end of its handshake
DISCARD_BYTES = 64 * 1024
HANDSHAKE_RECORD = 0x16  # the first byte of TLS
HEADER_BYTES = 5  # of a record: its type, version and length
RECORD_BYTES_MAX = 16 * 1024
WRONG, ENDED = -1, -2


class Waiting(NamedTuple):
    """A connection that waits for its first record, or for its handshake; `protocol` is for its owner."""

    socket: socket.socket
    protocol: Any
    peer: tuple[str, int]
    ends_at: float


class Handshakes:
    """The handshakes of one listener.

    Arguments:
        loop: the event loop.
        begin: starts a handshake: socket, protocol, address of the client, limit in seconds.
        discarded: called with socket and host of a connection that is closed before its handshake.
        report: logs a line about an address.
        cpu_time: the CPU time of the thread of the loop in seconds.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        begin: Callable[[socket.socket, Any, tuple[str, int], float], asyncio.Task[None]],
        discarded: Callable[[socket.socket, str], None],
        report: Callable[[tuple[str, int], str], None],
        cpu_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._loop = loop
        self._begin = begin
        self._discarded = discarded
        self._report = report
        self._cpu_time = cpu_time
        self._silent: dict[int, Waiting] = {}  # by descriptor, in the order of their deadlines
        self._wanted: dict[int, int] = {}  # bytes of the first record of those whose beginning has arrived
        self._ready: deque[Waiting] = deque()
        self._running: dict[asyncio.Task[None], float] = {}  # with the time of the start, the oldest first
        self._pumping: asyncio.Handle | None = None
        self._pumped_at: float | None = None  # the CPU time of the previous iteration, if connections still waited
        self._sweep: asyncio.Handle | None = None

    @property
    def waiting(self) -> int:
        """Number of connections whose handshake has not begun."""
        return len(self._silent) + len(self._ready)

    def add(self, connected: socket.socket, protocol: Any, peer: tuple[str, int]) -> None:
        """Start the handshake of a connection once its first record has arrived."""
        fd = connected.fileno()
        self._loop.add_reader(fd, self._readable, fd)
        self._silent[fd] = Waiting(connected, protocol, peer, self._loop.time() + DEADLINE_S)
        self._schedule_sweep()

    def abort(self) -> None:
        """Close the connections whose handshake has not begun; the owner ends those that run."""
        for handle in (self._sweep, self._pumping):
            if handle is not None:
                handle.cancel()
        self._sweep = self._pumping = None
        for fd in list(self._silent):
            self._discard(self._forget(fd))
        while self._ready:
            self._discard(self._ready.popleft())

    def _forget(self, fd: int) -> Waiting:
        self._loop.remove_reader(fd)
        self._wanted.pop(fd, None)
        return self._silent.pop(fd)

    def _discard(self, waiting: Waiting) -> None:
        self._discarded(waiting.socket, waiting.peer[0])

    def _readable(self, fd: int) -> None:
        """Bytes of a first record, or the end of the stream, have arrived."""
        waiting = self._silent[fd]
        try:
            missing = self._missing(fd, waiting.socket)
        except OSError as error:
            LOGGER.debug("%s:%d: closed before the handshake: %s", *waiting.peer, error)
            self._discard(self._forget(fd))
            return
        if missing == WRONG:
            text = "a client without TLS on a port with TLS: set security.protocol=SSL or SASL_SSL at the client"
            self._report(waiting.peer, text)
        if missing in (WRONG, ENDED):
            self._discard(self._forget(fd))
        elif missing == 0:
            self._ready.append(self._forget(fd))
            self._pump_soon()

    def _missing(self, fd: int, connected: socket.socket) -> int:
        """Return 0 if the first record is whole; wait for its end if it is not. WRONG: no TLS; ENDED: no more follows.

        The socket is readable again when all of it has arrived (SO_RCVLOWAT), or at the end of the stream.
        """
        begin = connected.recv(HEADER_BYTES, socket.MSG_PEEK)
        if begin and begin[0] != HANDSHAKE_RECORD:
            connected.recv(DISCARD_BYTES)  # closing with unread bytes would reset the connection
            return WRONG
        size = HEADER_BYTES
        if len(begin) == HEADER_BYTES:
            size = min(HEADER_BYTES + int.from_bytes(begin[3:], "big"), RECORD_BYTES_MAX)
            begin = connected.recv(size, socket.MSG_PEEK)
        if len(begin) == size:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            return 0
        if not begin or self._wanted.get(fd) == size:
            return ENDED
        self._wanted[fd] = size
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
        return size - len(begin)

    def _pump_soon(self) -> None:
        if self._pumping is None:
            self._pumping = self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = None
        now = self._loop.time()
        cpu_now = self._cpu_time()
        passed_s = 0.0 if self._pumped_at is None else cpu_now - self._pumped_at
        self._pumped_at = None
        starts = min(max(1, int(passed_s / START_EACH_S)), STARTS_MAX)
        while starts and self._ready and len(self._running) < RUNNING_MAX:
            waiting = self._ready.popleft()
            if waiting.ends_at > now:
                self._start(waiting, now)
                starts -= 1
                continue
            self._end_late(waiting)
            if self._loop.time() - now >= LATE_S:
                break
        if self._ready and len(self._running) < RUNNING_MAX:
            self._pumped_at = cpu_now
            self._pump_soon()
        elif self._ready:
            self._schedule_sweep()

    def _start(self, waiting: Waiting, now: float) -> None:
        try:
            task = self._begin(waiting.socket, waiting.protocol, waiting.peer, waiting.ends_at - now)
        except BaseException:
            self._discard(waiting)
            raise
        self._running[task] = now
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if self._ready:
            self._pump_soon()

    def _schedule_sweep(self) -> None:
        if self._sweep is None:
            self._sweep = self._loop.call_later(SLOW_S, self._end_slow)

    def _end_slow(self) -> None:
        """End connections without a record at their deadline, and the slow handshakes that keep others waiting."""
        self._sweep = None
        now = self._loop.time()
        if self._end_silent(now):
            self._sweep = self._loop.call_soon(self._end_slow)
            return
        if self._ready and len(self._running) >= RUNNING_MAX:
            slow = [task for task, began_at in self._running.items() if began_at <= now - SLOW_S]
            self._end_running(slow[: len(self._ready)])
        if self._silent or self._ready:
            self._schedule_sweep()

    def _end_silent(self, now: float) -> bool:
        """End connections without a record at their deadline, for `LATE_S`; returns whether others are left."""
        for fd, waiting in list(self._silent.items()):
            if waiting.ends_at > now:
                break
            if self._loop.time() - now >= LATE_S:
                return True
            self._end_late(self._forget(fd))
        return False

    def _end_running(self, slow: list[asyncio.Task[None]]) -> None:
        """End handshakes, some in each iteration: those of a sweep together would stop the loop."""
        for task in slow[:ENDS_MAX]:
            task.cancel()
        if slow[ENDS_MAX:]:
            self._loop.call_soon(self._end_running, slow[ENDS_MAX:])

    def _end_late(self, waiting: Waiting) -> None:
        self._report(waiting.peer, f"no TLS handshake within {DEADLINE_S:.0f} s, the connection is closed")
        self._discard(waiting)
