"""Raises KeyboardInterrupt in the main thread, as a signal handler does, where Python runs signal handlers.

The interrupts arrive at the entry of each function of the blocking clients, and before and behind each of their calls
of a compiled function that has an effect: those of the lock.
"""

import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from kafkalite_sdk._speedups.shared_sends import LoopLock
from kafkalite_sdk.blocking import loop_thread

from tests.kit.steps import ROOT

SOURCES = str(ROOT / "sdk/kafkalite_sdk/blocking")


class Interrupts:
    """Counts the moments at which a signal handler may run, and raises in some of them.

    Arguments:
        monkeypatch: of the test.

    Attributes:
        count: moments since `at`.
        raised: the functions in which it was raised.
        locks: clients that are created have a lock with moments; a producer accepts no such lock.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.locks = False
        self.raised: list[str] = []
        self._at: Collection[int] = ()
        self._active = False
        monkeypatch.setattr(loop_thread, "LoopLock", lambda: _Lock(self) if self.locks else LoopLock())

    @contextmanager
    def at(self, *numbers: int) -> Iterator[None]:
        """Raise at the moments with these numbers."""
        self.count, self._at, self._active, self.raised = 0, numbers, True, []
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)
            self._active = False

    def _called(self, frame: FrameType, _event: str, _argument: object) -> None:
        if frame.f_code.co_filename.startswith(SOURCES):
            self.moment(frame.f_code.co_name)

    def moment(self, name: str = "lock") -> None:
        if not self._active or threading.current_thread() is not threading.main_thread():
            return
        sys.settrace(self._called)  # an exception in a trace function has ended the trace
        self.count += 1
        if self.count - 1 in self._at:
            self.raised.append(name)
            raise KeyboardInterrupt


class _Lock:
    def __init__(self, interrupts: Interrupts) -> None:
        self._lock = LoopLock()
        self._interrupts = interrupts

    def _around(self, function: Callable[..., Any], *args: Any) -> Any:
        self._interrupts.moment()
        result = function(*args)
        self._interrupts.moment()
        return result

    def inside(self, function: Callable[..., Any], *args: object) -> Any:
        return self._around(self._lock.inside, function, *args)

    def pop(self, items: list[Any], receiver: Any) -> Any:
        result = self._lock.pop(items, receiver)
        self._interrupts.moment()
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)
