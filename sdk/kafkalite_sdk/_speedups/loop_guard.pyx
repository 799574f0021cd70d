"""Checks in a few nanoseconds whether the caller runs in the event loop, thread and process that own a client.

While an event loop runs, asyncio and uvloop set a hook for asynchronous generators in the thread, a new object in each
`run_forever`. As long as the hook is the one that was seen when `asyncio` had confirmed the loop, the loop is the same,
and so are thread and interpreter. Another hook, or none, costs one call of `asyncio`.
"""

cimport cython
from cpython.ref cimport PyObject

import os
from asyncio import _get_running_loop

__all__ = ["LoopGuard"]

cdef long forks = 0


def count_fork():
    """A forked process cannot use the guards of its parent."""
    global forks
    forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=count_fork)


@cython.final
cdef class LoopGuard:
    """See loop_guard.pyi."""

    def __cinit__(self, loop):
        self.loop = loop
        self.forks = forks
        self.run = <PyObject *> self  # it is no hook

    cdef bint passes(self) except -1:
        """Whether the caller runs in the loop, and the guard is not closed."""
        if self.closed or forks != self.forks or _get_running_loop() is not self.loop:
            return False
        if run_of_loop() != NULL:
            self.run = run_of_loop()
            self.kept = <object> self.run  # its address must not be used again
        return True

    cdef bint same_process(self) noexcept:
        """Whether no fork separates the caller from the thread that created the guard."""
        return forks == self.forks

    def close(self):
        """Let no caller pass; see loop_guard.pyi."""
        self.closed = True
        self.run = <PyObject *> self

    def open(self):
        """Let callers pass again; see loop_guard.pyi."""
        self.closed = False
