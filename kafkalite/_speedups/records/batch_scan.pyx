"""Verifies the record batches in a buffer and returns their headers and positions.

The CRC is one call of the `crc32c` package per batch, about 100 ns for the smallest batch. Memory grows with the number
of valid batches, not with a length in the bytes.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc

from kafkalite._speedups.records.validator cimport crc_of
from kafkalite._speedups.wire.error_codes cimport CORRUPT_MESSAGE, UNSUPPORTED_FOR_MESSAGE_FORMAT
from kafkalite._speedups.wire.wire cimport (
    BATCH_LENGTH_AT,
    HEADER_SIZE,
    HEADER_SIZE_TO_MAGIC,
    LEGACY_OVERHEAD,
    LENGTH_OVERHEAD,
    MAGIC_AT,
    BatchHeader,
    load_u32,
    read_batch_header,
)

from collections import namedtuple

cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX

BatchLocation = namedtuple(
    "BatchLocation",
    "position size base_offset last_offset_delta records_count base_timestamp max_timestamp attributes leader_epoch "
    "producer_id producer_epoch base_sequence",
)


@cython.final
cdef class Scan:
    """The result of `scan_batches`: `count` valid batches up to `end`; C callers read `headers` and `positions`."""

    def __dealloc__(self):
        free(self.headers)
        free(self.positions)

    def __len__(self):
        return self.count

    def __iter__(self):
        return (self[i] for i in range(self.count))

    def __getitem__(self, Py_ssize_t i):
        cdef BatchHeader *h
        if not 0 <= i < self.count:
            raise IndexError(i)
        h = &self.headers[i]
        return BatchLocation(
            self.positions[i], h.batch_length + LENGTH_OVERHEAD, h.base_offset, h.last_offset_delta, h.records_count,
            h.base_timestamp, h.max_timestamp, h.attributes, h.leader_epoch, h.producer_id, h.producer_epoch,
            h.base_sequence,
        )

    cdef int add(self, const BatchHeader *header, Py_ssize_t position) except -1:
        cdef Py_ssize_t capacity
        cdef void *grown
        if self.count == self.capacity:
            capacity = max(64, 2 * self.capacity)
            grown = realloc(self.headers, capacity * sizeof(BatchHeader))
            if grown == NULL:
                raise MemoryError
            self.headers = <BatchHeader *> grown
            grown = realloc(self.positions, capacity * sizeof(Py_ssize_t))
            if grown == NULL:
                raise MemoryError
            self.positions = <Py_ssize_t *> grown
            self.capacity = capacity
        self.headers[self.count] = header[0]
        self.positions[self.count] = position
        self.count += 1
        return 0


def scan_batches(buffer, Py_ssize_t position=0, Py_ssize_t batches_max=PY_SSIZE_T_MAX):
    """Verify batches from `position` to the end of the buffer or the first invalid one; see the .pyi."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return scan(<const uint8_t *> view.buf, view.len, position, batches_max)
    finally:
        PyBuffer_Release(&view)


cdef Scan scan(const uint8_t *p, Py_ssize_t size, Py_ssize_t position, Py_ssize_t batches_max):
    """`scan_batches` of C callers."""
    cdef Scan found = Scan.__new__(Scan)
    cdef BatchHeader header
    if not 0 <= position <= size:
        raise ValueError(f"position {position} is outside the {size} bytes")
    found.end = position
    while found.count < batches_max and scan_one(found, p + found.end, size - found.end, &header):
        found.add(&header, found.end)
        found.end += header.batch_length + LENGTH_OVERHEAD
    return found


cdef bint scan_one(Scan found, const uint8_t *p, Py_ssize_t left, BatchHeader *header) except -1:
    """Whether a valid batch begins at `p`; sets `needs` or `error` if not."""
    cdef int64_t length
    if left < HEADER_SIZE_TO_MAGIC:
        found.needs = 0 if left == 0 else HEADER_SIZE_TO_MAGIC
        return False
    length = <int32_t> load_u32(p + BATCH_LENGTH_AT)
    if p[MAGIC_AT] < 2 and length >= LEGACY_OVERHEAD:
        found.error = UNSUPPORTED_FOR_MESSAGE_FORMAT
        found.message = f"magic {p[MAGIC_AT]} at position {found.end}"
    elif p[MAGIC_AT] != 2:
        found.error = CORRUPT_MESSAGE
        found.message = f"magic {p[MAGIC_AT]} at position {found.end}"
    elif length < HEADER_SIZE - LENGTH_OVERHEAD:
        found.error = CORRUPT_MESSAGE
        found.message = f"batch length {length} at position {found.end}"
    elif length + LENGTH_OVERHEAD > left:
        found.needs = length + LENGTH_OVERHEAD
    else:
        read_batch_header(p, left, header)
        if crc_of(p, length + LENGTH_OVERHEAD) == header.crc:
            return True
        found.error = CORRUPT_MESSAGE
        found.message = f"wrong CRC at position {found.end}"
    return False
