"""An async iterator over a batch of records: `async for` takes the next one without a coroutine or generator for it.

`__anext__` returns an awaitable that has its result already. CPython asks it through the slot `am_send` (PEP 479 needs
an exception for each result otherwise), which Cython does not fill by itself. A step takes half of the CPU time of one
of an async generator (perf/micro/test_zk_consumer).
"""

cimport cython
from cpython.exc cimport PyErr_SetString
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF

from types import GenericAlias

__all__ = ["ReadyRecord", "RecordIterator"]

cdef const char *AWAITED_AGAIN = "a record that was awaited is awaited again"

cdef extern from *:
    """
    static void kafkalite_set_send(PyTypeObject *type, sendfunc send) { type->tp_as_async->am_send = send; }
    """
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
    ctypedef PySendResult (*sendfunc)(PyObject *, PyObject *, PyObject **) noexcept
    void kafkalite_set_send(PyTypeObject *type, sendfunc send) noexcept


@cython.final
@cython.freelist(8)
cdef class ReadyRecord:
    """An awaitable that has its result. It may be awaited once."""

    cdef object record

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration(take_ready(self))

    def send(self, _value):
        raise StopIteration(take_ready(self))

    def throw(self, *error):
        self.record = None
        raise error[0] if len(error) == 1 else error[1]

    def close(self):
        self.record = None


cdef object take_ready(ReadyRecord ready):
    record, ready.record = ready.record, None
    if record is None:
        raise RuntimeError(AWAITED_AGAIN.decode())
    return record


cdef PySendResult send_ready(PyObject *awaited, PyObject *_value, PyObject **result) noexcept:
    cdef ReadyRecord ready = <ReadyRecord> awaited
    if ready.record is None:
        PyErr_SetString(RuntimeError, AWAITED_AGAIN)
        result[0] = NULL
        return PYGEN_ERROR
    Py_INCREF(ready.record)
    result[0] = <PyObject *> ready.record
    ready.record = None
    return PYGEN_RETURN


kafkalite_set_send(<PyTypeObject *> ReadyRecord, send_ready)


cdef class RecordIterator:
    """The records of a batch, then those of the next one; a subclass has `next_record` for a batch without records."""

    cdef readonly list batch
    cdef Py_ssize_t returned      # that many records of `batch`
    cdef ReadyRecord ready

    def __cinit__(self):
        self.batch = []
        self.ready = ReadyRecord()

    def next_record(self):
        """A coroutine that waits for records, and returns the first one; StopAsyncIteration at the end."""
        raise NotImplementedError

    @property
    def left(self):
        """The number of records that were not returned yet."""
        return max(0, len(self.batch) - self.returned)

    def rest(self):
        """The records that were not returned yet."""
        return self.batch[self.returned:]

    @classmethod
    def __class_getitem__(cls, kind, /):
        return GenericAlias(cls, kind)

    def take(self):
        """Return the next record, which must exist."""
        record = self.batch[self.returned]
        self.returned += 1
        return record

    def take_all(self):
        """Return the records that were not returned yet, and count them as returned."""
        records = self.batch[self.returned:]
        self.returned = len(self.batch)
        return records

    def refill(self, list records):
        """Return these records next, in place of those that are left."""
        self.batch = records
        self.returned = 0

    def __aiter__(self):
        return self

    def __anext__(self):
        cdef ReadyRecord ready = self.ready
        cdef Py_ssize_t at = self.returned
        if at >= len(self.batch):
            return self.next_record()
        if ready.record is not None:     # its awaitable is not awaited yet
            ready = ReadyRecord()
        ready.record = self.batch[at]
        self.returned = at + 1
        return ready
