"""`kafkalite serve` in which each step of an append raises an exception once: `python -m tests.kit.broken_broker`.

A step raises in its fifth execution, and not within `REQUESTS_BETWEEN` requests of the step before, so faults do not
add up: a producer whose batch was appended without a response has four later requests open, and sends the batch again
with four new ones. If the connection is closed then, the batch is no longer among the five that a broker recognises as
duplicates, here as in Apache Kafka. Each step is printed.
"""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

from kafkalite.cli.main import main
from tests.kit.brokers import Kafkalite
from tests.kit.steps import ROOT, Bug, Step, lines_with_calls

SOURCES = (
    "kafkalite/cluster/partition/append.py",
    "kafkalite/cluster/partition/partition.py",
    "kafkalite/cluster/replicas.py",
    "kafkalite/cluster/partition/validation.py",
    "kafkalite/server/handlers/produce.py",
    "kafkalite/storage/log/log.py",
    "kafkalite/storage/log/segment.py",
)
# An append ends with the first; an exception in one of the others takes the log directory offline.
WITHOUT = ("Append.finish", "Log.plan_flush", "Log.apply_flush", "Log.take_due_snapshots")
EXECUTION, REQUESTS_BETWEEN = 5, 12
RAISED = "raised in "


class BrokenKafkalite(Kafkalite):
    """A broker whose appends have bugs, until `broken` is false at its start."""

    broken = True

    def command(self) -> list[str]:
        command = super().command()
        if self.broken:
            command[command.index("kafkalite")] = "tests.kit.broken_broker"
        return command

    def raised(self) -> list[str]:
        """The steps that have raised."""
        return [line.removeprefix(RAISED) for line in self.said().splitlines() if line.startswith(RAISED)]


class Bugs:
    """The trace function: raises in the steps."""

    def __init__(self) -> None:
        functions = {name for source in SOURCES for name in lines_with_calls(source).values()}
        assert functions.issuperset(WITHOUT), f"renamed or without a call: {set(WITHOUT) - functions}"
        self._prefixes = tuple(str(ROOT / source) for source in SOURCES)
        self._executions: Counter[Step] = Counter()
        self._raised: set[Step] = set()
        self._requests = 0
        self._not_before = 0

    def called(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        """Trace a call of one of the sources."""
        if not frame.f_code.co_filename.startswith(self._prefixes):
            return None
        self._requests += frame.f_code.co_name == "produce"
        return self._line

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event != "line":
            return self._line
        file = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        function = lines_with_calls(file).get(frame.f_lineno)
        if function is None or function in WITHOUT:
            return self._line
        step = Step(file, frame.f_lineno, function)
        self._executions[step] += 1
        due = self._executions[step] >= EXECUTION and self._requests >= self._not_before
        if due and self._requests and step not in self._raised:
            self._raised.add(step)
            self._not_before = self._requests + REQUESTS_BETWEEN
            print(f"{RAISED}{step}", flush=True)
            sys.setprofile(self._resume)  # an exception of a trace function ends the trace
            raise Bug(str(step))
        return self._line

    def _resume(self, _frame: FrameType, _event: str, _argument: Any) -> None:
        sys.setprofile(None)
        sys.settrace(self.called)


if __name__ == "__main__":
    bugs = Bugs()
    sys.settrace(bugs.called)
    main()
