"""Checks in a few nanoseconds whether the caller runs in the event loop, thread and process that own a client."""

from cpython.ref cimport PyObject


cdef extern from *:
    """
    static inline PyObject *kl_run_of_loop(void) { return PyThreadState_Get()->async_gen_firstiter; }
    """
    PyObject *run_of_loop "kl_run_of_loop"() noexcept

cdef long forks               # of this process and its ancestors: it differs between a parent and its child


cdef class LoopGuard:
    cdef PyObject *run        # of the loop when `passes` was true; `passes` decides if it differs
    cdef object kept
    cdef object loop
    cdef long forks
    cdef readonly bint closed

    cdef bint passes(self) except -1
    cdef bint same_process(self) noexcept
