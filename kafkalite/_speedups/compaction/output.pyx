"""Writes the output of compaction: collects whole, partial or empty batches and writes them to the new segment.

1. A batch that loses records keeps its header except count, sizes, maximum timestamp, delete horizon and CRC.
2. Written batches are indexed as by an append.

Sources: MemoryRecords.buildRetainedRecordsInto, DefaultRecordBatch.writeEmptyHeader, KIP-534.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy
from posix.types cimport off_t

from kafkalite._speedups.compaction.input cimport AT_BATCH, AT_NO_MEMORY, BUFFER_MIN, Buffer, added, reserve
from kafkalite._speedups.wire.crc32c cimport crc32c
from kafkalite._speedups.storage.file cimport File, iovec
from kafkalite._speedups.storage.segment_core cimport SegmentCore
from kafkalite._speedups.records.record_walk cimport short_varint, short_varlong
from kafkalite._speedups.wire.wire cimport (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    BATCH_LENGTH_AT,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAX_TIMESTAMP_AT,
    RECORDS_COUNT_AT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Span,
    put_varlong,
    read_batch_header,
    store_u16,
    store_u32,
    store_u64,
    take,
)

cdef extern from "<unistd.h>" nogil:
    ssize_t c_pwrite "pwrite"(int fd, const void *buf, size_t count, off_t offset)

cdef enum:
    GROWTH_RECORD = 16         # bytes a record may grow by when its timestamp delta changes


cdef class Output:
    """Batches to write; `full` when they must be written.

    Argument: bytes to collect.
    """

    def __cinit__(self, int64_t capacity):
        self.capacity = max(capacity, <int64_t> BUFFER_MIN)

    def __dealloc__(self):
        free(self.ready.data)
        free(self.moved.data)

    cdef int begin(self) except -1:
        """Discard the output of a failed run."""
        self.ready.size = 0
        return 0

    cdef bint full(self) noexcept nogil:
        return self.ready.size >= self.capacity

    cdef uint8_t *emit(self, const uint8_t *header, const uint8_t *records, int64_t size) noexcept nogil:
        """Copy a header and its records to the output; return the address of the copy, NULL without memory."""
        cdef uint8_t *p
        if reserve(&self.ready, self.ready.size + HEADER_SIZE + size) < 0:
            return NULL
        p = self.ready.data + self.ready.size
        memcpy(p, header, HEADER_SIZE)
        if size:
            memcpy(p + HEADER_SIZE, records, size)
        self.ready.size += HEADER_SIZE + size
        return p

    cdef int put_whole(self, const uint8_t *batch, int64_t size) noexcept nogil:
        """Append a batch of `size` bytes unchanged."""
        return AT_BATCH if self.emit(batch, batch + HEADER_SIZE, size - HEADER_SIZE) != NULL else AT_NO_MEMORY

    cdef int put_part(self, const uint8_t *batch, const BatchHeader *header, const uint8_t *records, int64_t size,
                      const Kept *kept) noexcept nogil:
        """Append a batch with fewer records, which are in the codec of the batch already."""
        cdef uint8_t *p = self.emit(batch, records, size)
        if p == NULL:
            return AT_NO_MEMORY
        if kept.to_horizon:
            store_u16(p + ATTRIBUTES_AT, <uint16_t> (header.attributes | DELETE_HORIZON_BIT))
            store_u64(p + BASE_TIMESTAMP_AT, kept.horizon_ms)
        if not header.attributes & LOG_APPEND_TIME_BIT:
            store_u64(p + MAX_TIMESTAMP_AT, kept.max_timestamp)
        seal(p, HEADER_SIZE + size, kept.count)
        return AT_BATCH

    cdef int put_empty(self, const uint8_t *batch, const BatchHeader *header) noexcept nogil:
        """Append the header of a batch without its records."""
        cdef int bits = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
        cdef uint8_t *p = self.emit(batch, batch, 0)
        if p == NULL:
            return AT_NO_MEMORY
        store_u16(p + ATTRIBUTES_AT, <uint16_t> (header.attributes & bits))
        store_u64(p + BASE_TIMESTAMP_AT, -1)
        seal(p, HEADER_SIZE, 0)
        return AT_BATCH

    cdef Buffer *move_timestamps(self, const BatchHeader *header, const Buffer *plain, const Kept *kept) noexcept nogil:
        """The records with timestamp deltas counted from the delete horizon; NULL without memory."""
        cdef Span span
        cdef uint8_t delta[10]
        cdef uint8_t *p
        cdef const uint8_t *attributes
        cdef int64_t timestamp
        cdef int32_t length, rest, size
        if reserve(&self.moved, plain.size + <int64_t> kept.count * GROWTH_RECORD) < 0:
            return NULL
        p = self.moved.data
        span.at = plain.data
        span.left = plain.size
        while span.left > 0:
            # Length, attributes, timestamp delta, and from the offset delta on unchanged; the walk has validated it.
            length = short_varint(&span)
            rest = <int32_t> (span.left - length)
            attributes = take(&span, 1)
            timestamp = added(header.base_timestamp, short_varlong(&span))
            if header.attributes & LOG_APPEND_TIME_BIT:
                timestamp = header.max_timestamp
            rest = <int32_t> (span.left - rest)
            size = put_varlong(delta, added(timestamp, -kept.horizon_ms))
            p += put_varlong(p, 1 + size + rest)
            p[0] = attributes[0]
            memcpy(p + 1, delta, size)
            memcpy(p + 1 + size, take(&span, rest), rest)
            p += 1 + size + rest
        self.moved.size = p - self.moved.data
        return &self.moved

    cdef int64_t write_pending(self, SegmentCore target, int64_t interval) except -1:
        """Write the ready batches to the end of the new segment and index them; return their size in bytes."""
        cdef BatchHeader header
        cdef int64_t at = 0
        cdef int64_t size = self.ready.size
        if size == 0:
            return 0
        write_outside(target.file, self.ready.data, size, target.size)
        while at < size:
            read_batch_header(self.ready.data + at, size - at, &header)
            target.note(&header, header.base_offset + header.last_offset_delta,
                        LENGTH_OVERHEAD + <int64_t> header.batch_length, interval)
            at += LENGTH_OVERHEAD + header.batch_length
        self.ready.size = 0
        if self.ready.capacity > 4 * self.capacity:              # free the memory of one large batch
            free(self.ready.data)
            self.ready.data = NULL
            self.ready.capacity = 0
        return size


cdef void seal(uint8_t *p, int64_t size, int32_t count) noexcept nogil:
    """Set the count, length and CRC of a changed batch."""
    store_u32(p + BATCH_LENGTH_AT, <uint32_t> (size - LENGTH_OVERHEAD))
    store_u32(p + RECORDS_COUNT_AT, count)
    store_u32(p + CRC_AT, crc32c(p + ATTRIBUTES_AT, size - ATTRIBUTES_AT))


cdef int write_outside(File file, const uint8_t *data, int64_t size, int64_t offset) except -1:
    """Write all bytes, without the GIL for the plain file. Raises OSError."""
    cdef iovec part
    cdef ssize_t got = 0
    cdef int64_t done = 0
    if file.watched:
        part.iov_base = <void *> data
        part.iov_len = size
        return file.write_vec(&part, 1, offset)
    with nogil:
        while done < size:
            got = c_pwrite(file.fd, data + done, size - done, offset + done)
            if got < 0 and errno != EINTR:
                break
            done += max(got, <ssize_t> 0)
    if done < size:
        raise OSError(errno, "cannot write", file.path)
    return 0
