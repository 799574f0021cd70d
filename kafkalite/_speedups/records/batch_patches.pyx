"""Patches header fields of whole record batches in place, and compresses batches again with another codec.

Base offset and leader epoch are outside the CRC; a changed timestamp type or max timestamp changes the CRC too.
Source: DefaultRecordBatch.java.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from kafkalite._speedups.records.validator cimport CODEC_NONE, crc_of, decompressed, decompressed_limit
from kafkalite._speedups.wire.error_codes cimport CORRUPT_MESSAGE
from kafkalite._speedups.wire.wire cimport (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BATCH_LENGTH_AT,
    CODEC_MASK,
    CRC_AT,
    HEADER_SIZE,
    LEADER_EPOCH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAX_TIMESTAMP_AT,
    load_u16,
    load_u64,
    store_u16,
    store_u32,
    store_u64,
)

from kafkalite._speedups.records.validator import BatchError, codecs_in_use
from kafkalite._speedups.wire.concat import gathered


cdef extern from "Python.h":
    int PyBUF_READ


cdef int patch_max_timestamp(uint8_t *p, Py_ssize_t size, int64_t timestamp, bint log_append_time) except -1:
    """Set timestamp type and max timestamp, and the CRC if one of them changed (DefaultRecordBatch.setMaxTimestamp)."""
    cdef uint16_t attributes = load_u16(p + ATTRIBUTES_AT)
    cdef uint16_t wanted = attributes | LOG_APPEND_TIME_BIT if log_append_time else attributes & ~LOG_APPEND_TIME_BIT
    if wanted == attributes and <int64_t> load_u64(p + MAX_TIMESTAMP_AT) == timestamp:
        return 0
    store_u16(p + ATTRIBUTES_AT, wanted)
    store_u64(p + MAX_TIMESTAMP_AT, <uint64_t> timestamp)
    store_u32(p + CRC_AT, <uint32_t> crc_of(p, size))
    return 1


cdef uint8_t *writable(batch, Py_buffer *view) except NULL:
    PyObject_GetBuffer(batch, view, PyBUF_WRITABLE)
    if view.len < HEADER_SIZE:
        PyBuffer_Release(view)
        raise BatchError(CORRUPT_MESSAGE, f"{view.len} bytes are no batch")
    return <uint8_t *> view.buf


def set_base_offset(batch, int64_t base_offset):
    cdef Py_buffer view
    store_u64(writable(batch, &view) + BASE_OFFSET_AT, <uint64_t> base_offset)
    PyBuffer_Release(&view)


def set_leader_epoch(batch, int32_t leader_epoch):
    cdef Py_buffer view
    store_u32(writable(batch, &view) + LEADER_EPOCH_AT, <uint32_t> leader_epoch)
    PyBuffer_Release(&view)


def set_max_timestamp(batch, int64_t timestamp):
    """Set CreateTime and the max timestamp. Returns whether the batch changed."""
    return _set_timestamp(batch, timestamp, False)


def set_log_append_time(batch, int64_t timestamp):
    """Set LogAppendTime and the max timestamp. Returns whether the batch changed."""
    return _set_timestamp(batch, timestamp, True)


cdef bint _set_timestamp(batch, int64_t timestamp, bint log_append_time) except -1:
    cdef Py_buffer view
    cdef uint8_t *p = writable(batch, &view)
    try:
        return patch_max_timestamp(p, view.len, timestamp, log_append_time)
    finally:
        PyBuffer_Release(&view)


def recompress(batch, int codec, level=None, int64_t decompressed_max=0):
    """Compress a batch with another codec. See the .pyi."""
    cdef Py_buffer view
    cdef bytes out
    cdef uint8_t *p
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        p = <uint8_t *> view.buf
        if view.len < HEADER_SIZE:
            raise BatchError(CORRUPT_MESSAGE, f"{view.len} bytes are no batch")
        records = plain_records(p, view.len, decompressed_limit(decompressed_max, 0))
        if codec != CODEC_NONE:
            records = codecs_in_use()[0](codec, records, level)
        out = gathered([PyMemoryView_FromMemory(<char *> p, HEADER_SIZE, PyBUF_READ), records])
    finally:
        PyBuffer_Release(&view)
    p = <uint8_t *> PyBytes_AS_STRING(out)
    store_u32(p + BATCH_LENGTH_AT, <uint32_t> (PyBytes_GET_SIZE(out) - LENGTH_OVERHEAD))
    store_u16(p + ATTRIBUTES_AT, (load_u16(p + ATTRIBUTES_AT) & ~CODEC_MASK) | codec)
    store_u32(p + CRC_AT, <uint32_t> crc_of(p, PyBytes_GET_SIZE(out)))
    return out


cdef object plain_records(const uint8_t *p, Py_ssize_t size, int64_t limit):
    """The decompressed records of a whole batch: bytes, or a view that is valid as long as the batch."""
    cdef int codec = load_u16(p + ATTRIBUTES_AT) & CODEC_MASK
    if codec == CODEC_NONE:
        return PyMemoryView_FromMemory(<char *> p + HEADER_SIZE, size - HEADER_SIZE, PyBUF_READ)
    return decompressed(codec, p + HEADER_SIZE, size - HEADER_SIZE, limit)
