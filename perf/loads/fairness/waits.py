"""How long a request waited, and how much of that it waited for a processor core rather than for the broker.

On a machine with two cores that hostile clients keep busy, a wall-clock wait says little about the broker: the probe
and the broker both queue for a core. Linux counts that time for each thread (`schedstat`: nanoseconds on a core,
nanoseconds runnable without a core). A wait without those nanoseconds, of the probe's thread and of the broker's loop
thread, is the wait that the broker caused: by long loop iterations, by blocking in system calls, or by waiting for the
interpreter's lock. kafkalite's loop runs in the main thread; for a broker with many threads only the probe's is taken.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


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
