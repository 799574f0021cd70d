"""Records that other threads than that of the event loop append to the queues of a producer.

Invariants:
1. The thread of the loop holds the `LoopLock` of the client, except while it waits for sockets and timers. Another
   thread that holds the lock therefore finds every queue as between two callbacks of the loop.
2. After a queue was changed, `send` runs no Python code before it returns, so a signal handler that raises (Ctrl-C)
   leaves no record half queued. Waking the loop is one `send` of a socket.
3. `send` waits in two cases: the loop holds the lock, for one iteration, and the buffer is full.
"""

cimport cython

from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport (
    NOWAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_get_thread_ident,
    PyThread_release_lock,
    PyThread_type_lock,
)

from functools import partial

from kafkalite_sdk._speedups.accumulator cimport RecordAccumulator
from kafkalite_sdk._speedups.deliveries cimport FutureRecordMetadata
from kafkalite_sdk._speedups.loop_guard cimport forks

from kafkalite.errors import BufferExhaustedError

__all__ = ["LoopLock", "RecordFuture", "SharedSends"]

cdef extern from "Python.h":
    int PyThread_acquire_lock_timed(PyThread_type_lock lock, long long microseconds, int interruptible) nogil
    int PY_LOCK_ACQUIRED

cdef enum:
    SIGNAL_CHECK_US = 500000  # a signal that arrives just before the wait does not end it


@cython.final
cdef class LoopLock:
    """The lock of a client; see shared_sends.pyi."""
    cdef PyThread_type_lock lock
    cdef unsigned long owner
    cdef long forks
    cdef bint ended
    cdef bint signalled  # the signal handler that `enter` calls has raised

    def __cinit__(self):
        self.forks = forks
        self.lock = PyThread_allocate_lock()
        if self.lock is NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.lock is not NULL:
            PyThread_free_lock(self.lock)

    cdef bint enter(self) except -1:
        """Acquire the lock; 0 = this thread has it already, or no other thread uses it: this is a child process.

        Raises what a signal handler raises.
        """
        cdef int status
        if self.forks != forks:
            return False
        if not PyThread_acquire_lock(self.lock, NOWAIT_LOCK):
            if self.owner == <unsigned long> PyThread_get_thread_ident():
                return False
            while True:
                with nogil:
                    status = PyThread_acquire_lock_timed(self.lock, SIGNAL_CHECK_US, 1)
                if status == PY_LOCK_ACQUIRED:
                    break
                self.signalled = True
                PyErr_CheckSignals()
                self.signalled = False
        self.owner = PyThread_get_thread_ident()
        return True

    cdef void leave(self) noexcept:
        self.owner = 0
        PyThread_release_lock(self.lock)

    def acquire(self):
        """Acquire the lock; see shared_sends.pyi."""
        return self.enter()

    def release(self):
        """Release the lock; see shared_sends.pyi."""
        if self.owner != <unsigned long> PyThread_get_thread_ident():
            raise RuntimeError("this thread does not hold the lock")
        self.leave()

    def inside(self, function, *args):
        """Call a function with the lock; see shared_sends.pyi."""
        cdef bint entered = self.enter()
        try:
            return function(*args)
        finally:
            if entered:
                self.leave()

    def outside(self, function, *args):
        """Call a function without the lock; see shared_sends.pyi."""
        self.release()
        try:
            return function(*args)
        finally:
            self.enter()

    def interrupted(self):
        """Whether a signal handler has raised while a call waited; see shared_sends.pyi."""
        interrupted, self.signalled = self.signalled, False
        return interrupted

    def end(self):
        """Have `pop` return nothing; see shared_sends.pyi."""
        self.ended = True

    def pop(self, list items not None, receiver):
        """Remove the last item of a list; see shared_sends.pyi."""
        cdef bint entered
        cdef object item
        if self.ended or self.forks != forks:
            return None
        entered = self.enter()
        try:
            if not items:
                return None
            item = items.pop()
            receiver.iterated = item
            return item
        finally:
            if entered:
                self.leave()


@cython.final
cdef class SharedSends:
    """The sends of a producer from any thread; see shared_sends.pyi."""
    cdef RecordAccumulator accumulator
    cdef LoopLock lock
    cdef unsigned long loop_thread
    cdef object schedule
    cdef object signal
    cdef object refuse
    cdef object wait_for_space
    cdef object wait_for_drain
    cdef object wait_for_record
    cdef object call_soon
    cdef bint signalled

    def __init__(
        self, RecordAccumulator accumulator not None, LoopLock lock not None, *,
        signal, refuse, wait_for_space, wait_for_drain, wait_for_record, call_soon, monotonic_s
    ):
        self.accumulator = accumulator
        self.lock = lock
        self.loop_thread = PyThread_get_thread_ident()
        self.schedule = accumulator.wake
        self.signal = signal
        self.refuse = refuse
        self.wait_for_space = wait_for_space
        self.wait_for_drain = wait_for_drain
        self.wait_for_record = wait_for_record
        self.call_soon = call_soon
        accumulator.share(monotonic_s=monotonic_s, wake=self.wake)

    def wake(self):
        """Have the loop send what is due; see shared_sends.pyi."""
        if PyThread_get_thread_ident() == self.loop_thread:
            self.schedule()
        elif not self.signalled:
            self.signalled = True
            self.signal(b"\0")

    def woken(self):
        """The loop has received the signal; see shared_sends.pyi."""
        self.signalled = False
        self.schedule()

    def send(self, topic, value=None, key=None, *, partition=None, timestamp_ms=None, headers=None):
        """Queue a record; see shared_sends.pyi."""
        cdef RecordFuture sent = RecordFuture.__new__(RecordFuture)
        cdef bint entered
        sent.sends = self
        while True:
            if not self.accumulator.usable():
                self.refuse()
            entered = self.lock.enter()
            try:
                sent.future = self.accumulator.enqueue(topic, value, key, partition, timestamp_ms, headers)
                return sent
            except BufferExhaustedError:
                if PyThread_get_thread_ident() == self.loop_thread:
                    raise
            finally:
                if entered:
                    self.lock.leave()
            self.wait_for_space()

    def drain(self):
        """Wait for space; see shared_sends.pyi."""
        if not self.accumulator.usable():
            self.refuse()
        if self.accumulator.has_to_wait():
            self.wait_for_drain()


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class RecordFuture:
    """The outcome of a record; see shared_sends.pyi."""
    cdef FutureRecordMetadata future
    cdef SharedSends sends

    def __repr__(self):
        return f"<RecordFuture {'done' if self.is_done() else 'pending'}>"

    cdef bint is_done(self):
        return self.future.batch.done

    def done(self):
        return self.is_done()

    def result(self, timeout=None):
        """The metadata; see shared_sends.pyi."""
        cdef bint entered
        if not self.is_done():
            self.sends.wait_for_record(self.future, timeout)
        entered = self.sends.lock.enter()
        try:
            return self.future.outcome()
        finally:
            if entered:
                self.sends.lock.leave()

    def exception(self, timeout=None):
        """The error; see shared_sends.pyi."""
        cdef bint entered
        if not self.is_done():
            self.sends.wait_for_record(self.future, timeout)
        entered = self.sends.lock.enter()
        try:
            return self.future.exception()
        finally:
            if entered:
                self.sends.lock.leave()

    def add_done_callback(self, callback):
        """Call a function with this future; see shared_sends.pyi."""
        self.sends.call_soon(self.future.add_done_callback, partial(call_with, callback, self))


def call_with(callback, RecordFuture sent, _future):
    """Call the callback of an application with the future that it knows; it may wait for other threads that send."""
    sent.sends.lock.outside(callback, sent)
