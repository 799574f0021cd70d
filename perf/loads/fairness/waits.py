"""How long a request waited, and how much of that it waited for a processor core rather than for the broker.

On a machine with two cores that hostile clients keep busy, a wall-clock wait says little about the broker: the probe
and the broker both queue for a core. Linux counts that time for each thread (`schedstat`: nanoseconds on a core,
nanoseconds runnable without a core). A wait without those nanoseconds, of the probe's thread and of the broker's loop
thread, is the wait that the broker caused: by long loop iterations, by blocking in system calls, or by waiting for the
interpreter's lock while its holder runs. A holder of the lock that is runnable without a core blocks the loop thread
for as long as other processes keep the cores: while the loop thread is blocked, the time of the broker's other threads
without a core is taken off, too. kafkalite's loop runs in the main thread; for other brokers only the probe's time is
taken off.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Delay:
    """The time that a thread has been runnable without a core. Closed with its `with` block.

    Arguments:
        pid: of the process.
        thread: its thread; None = the main thread.
    """

    def __init__(self, pid: int, thread: int | None = None) -> None:
        self._fd = os.open(Path(f"/proc/{pid}/task/{thread or pid}/schedstat"), os.O_RDONLY)

    def __enter__(self) -> "Delay":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def seconds(self) -> float:
        """Since the thread began. Raises ProcessLookupError when the thread has ended."""
        return int(os.pread(self._fd, 100, 0).split()[1]) / 1e9


class ProcessTimes(NamedTuple):
    """Seconds since a process began.

    Attributes:
        on_core_s, queued_s: of its main thread, on a core and runnable without one.
        others_queued_s: of all its other threads, runnable without a core.
    """

    on_core_s: float = 0.0
    queued_s: float = 0.0
    others_queued_s: float = 0.0

    def machine_s(self, before: "ProcessTimes", wall_s: float) -> float:
        """How long the main thread waited for the machine in the `wall_s` seconds since `before`."""
        queued_s = self.queued_s - before.queued_s
        blocked_s = max(0.0, wall_s - queued_s - (self.on_core_s - before.on_core_s))
        return queued_s + min(blocked_s, self.others_queued_s - before.others_queued_s)


class ProcessDelay:
    """The times of all threads of a process. Closed with its `with` block."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._tasks = Path(f"/proc/{pid}/task")
        self._files: dict[str, int] = {}
        self._queued_ns: dict[str, int] = {}
        self._others_ns = 0
        self.times()

    def __enter__(self) -> "ProcessDelay":
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._files.values():
            os.close(fd)

    def times(self) -> ProcessTimes:
        """The times until now. Raises FileNotFoundError when the process has ended."""
        on_core_ns = queued_ns = 0
        for thread in os.listdir(self._tasks):
            times = self._read(thread)
            if times is None:
                continue
            if thread == str(self._pid):
                on_core_ns, queued_ns = times
            else:
                self._others_ns += times[1] - self._queued_ns.get(thread, 0)
                self._queued_ns[thread] = times[1]
        return ProcessTimes(on_core_ns / 1e9, queued_ns / 1e9, self._others_ns / 1e9)

    def _read(self, thread: str) -> tuple[int, int] | None:
        """Nanoseconds of a thread on a core and without one; None if it has just ended."""
        try:
            if thread not in self._files:
                self._files[thread] = os.open(self._tasks / thread / "schedstat", os.O_RDONLY)
            on_core, queued = os.pread(self._files[thread], 100, 0).split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            if thread in self._files:
                os.close(self._files.pop(thread))
            return None
        return int(on_core), int(queued)


@dataclass(frozen=True)
class Wait:
    """Seconds from the planned moment of a request to its response; `net_s` without those that both sides queued.

    planned: the moment, by the monotonic clock that all processes of a machine share.
    """

    wall_s: float
    net_s: float
    planned: float = 0.0


def summary_ms(waits: Sequence[Wait]) -> dict[str, float]:
    """Longest wait, longest net wait and both p99 (nearest rank), in milliseconds. Raises ValueError without waits."""
    if not waits:
        raise ValueError("no request was answered")
    wall, net = sorted(wait.wall_s for wait in waits), sorted(wait.net_s for wait in waits)
    at = min(len(wall) - 1, int(len(wall) * 0.99))
    found = {"longest": wall[-1], "net": net[-1], "p99": wall[at], "net_p99": net[at]}
    return {key: seconds * 1000 for key, seconds in found.items()}
