"""A broker process that records its slow loop iterations, and stalls its loop where a test plants that.

The loop beats every 5 ms. A late beat says how long the loop iteration before it took, and of what: CPU time
of the loop thread, time in which it was runnable without a core (the machine's), and the rest, in which it was blocked
by a system call or by the interpreter's lock.

Started by `Watched`: `python -m tests.kit.fairness.watched FILE STALL serve ...`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import IO, Any

from kafkalite.cli import serve as serve_module
from kafkalite.cli.main import main
from perf.loads.fairness.waits import Delay, Wait
from tests.kit.brokers import Kafkalite

BEAT_S = 0.005
SLOW_S = 0.02  # iterations that take longer, without waits for a core, are recorded
STALL_S = 0.06
STALL_EVERY_S = 0.2


def busy() -> None:
    """Use the processor for as long as a planted stall takes."""
    until = time.thread_time() + STALL_S
    while time.thread_time() < until:
        pass


def blocked() -> None:
    """Block the loop for as long as a planted stall takes."""
    Event().wait(STALL_S)


STALLS: dict[str, Callable[[], None]] = {"busy": busy, "blocked": blocked}


class Beats:
    """The beats of a loop; `install` is called on its thread, which is the main thread of the process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, out: IO[str]) -> None:
        self._loop, self._out = loop, out
        self._delay = Delay(os.getpid())
        self._last = self._now()

    def install(self) -> None:
        self._last = self._now()
        self._loop.call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        before, self._last = self._last, self._now()
        wall_s, cpu_s, queued_s = (now - then for now, then in zip(self._last, before, strict=True))
        if wall_s - queued_s - BEAT_S > SLOW_S:
            print(json.dumps([before[0], wall_s, cpu_s, queued_s]), file=self._out, flush=True)
        self._loop.call_later(BEAT_S, self._beat)

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic(), time.thread_time(), self._delay.seconds()


def plant(loop: asyncio.AbstractEventLoop, stall: Callable[[], None]) -> None:
    """Stall the loop now and every `STALL_EVERY_S` from now on."""
    stall()
    loop.call_later(STALL_EVERY_S, plant, loop, stall)


@dataclass(frozen=True)
class Iteration:
    """A slow loop iteration: when it began by the monotonic clock, and its seconds in all, on a core, without one."""

    began: float
    wall_s: float
    cpu_s: float
    queued_s: float

    def __str__(self) -> str:
        own_ms = (self.wall_s - self.queued_s) * 1000
        blocked_ms = own_ms - self.cpu_s * 1000
        return f"iteration of {own_ms:.0f} ms ({blocked_ms:.0f} blocked), {self.queued_s * 1000:.0f} without a core"

    def overlaps(self, wait: Wait) -> bool:
        return self.began < wait.planned + wait.wall_s and wait.planned < self.began + self.wall_s


class Watched(Kafkalite):
    """`kafkalite serve` with the record of its slow loop iterations.

    Arguments:
        directory, settings: as of `Kafkalite`.
        stall: the planted stall, a key of `STALLS`, or "" for none.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str], stall: str = "") -> None:
        super().__init__(directory, settings)
        self._stall = stall

    def command(self) -> list[str]:
        executable, _, _, *arguments = super().command()
        return [executable, "-m", "tests.kit.fairness.watched", str(self._record), self._stall, *arguments]

    @property
    def _record(self) -> Path:
        return self.directory / "iterations"

    def slow_iterations(self) -> list[Iteration]:
        """All since the start."""
        return [Iteration(*json.loads(line)) for line in self._record.read_text().splitlines()]


def run(record: str, stall: str) -> None:
    """Serve, with beats on the loop."""
    serve = serve_module.serve

    async def watched(*arguments: Any) -> None:
        loop = asyncio.get_running_loop()
        Beats(loop, out).install()
        if stall:
            plant(loop, STALLS[stall])
        await serve(*arguments)

    with open(record, "a", encoding="ascii") as out:
        serve_module.serve = watched
        main(prog_name="kafkalite")


if __name__ == "__main__":
    record, stall, *sys.argv[1:] = sys.argv[1:]
    run(record, stall)
