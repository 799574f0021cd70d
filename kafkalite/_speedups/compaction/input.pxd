"""The input of compaction: validated batches and transactions."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport realloc

from kafkalite._speedups.storage.file cimport File
from kafkalite._speedups.wire.wire cimport BatchHeader


cdef enum:
    # Why a loop without the GIL returned.
    AT_BATCH = 0               # there is a current batch
    AT_MORE = 1                # the reader must be filled
    AT_END = 2
    AT_PACKED = 3              # the current batch must be decompressed
    AT_UNPACKED = 4            # the retained records must be compressed
    AT_FLUSH = 5               # the writer is full
    AT_FULL = 6                # the map is full
    AT_STOPPED = 7
    AT_NO_MEMORY = 8
    BAD_HEADER = 20
    BAD_ORDER = 21
    BAD_LENGTH = 22
    BAD_CRC = 23
    BAD_RECORD = 24
    BAD_OFFSET = 25
    BAD_MARKER = 26

    BUFFER_MIN = 4096


cdef struct Buffer:
    uint8_t *data
    int64_t capacity
    int64_t size


cdef inline int reserve(Buffer *buffer, int64_t capacity) noexcept nogil:
    """Allocate memory for this many bytes in all: 0, or -1 without memory."""
    cdef uint8_t *data
    if capacity > buffer.capacity:
        data = <uint8_t *> realloc(buffer.data, max(capacity, 2 * buffer.capacity))
        if data == NULL:
            return -1
        buffer.data = data
        buffer.capacity = max(capacity, 2 * buffer.capacity)
    return 0


cdef inline int64_t added(int64_t a, int64_t b) noexcept nogil:
    """The sum, wrapping as Java's does: a record may claim any timestamp."""
    return <int64_t> (<uint64_t> a + <uint64_t> b)


cdef class BatchReader:
    cdef File file
    cdef Buffer buffer
    cdef int64_t start         # of the buffer in the file
    cdef int64_t at            # of the next batch in the buffer
    cdef int64_t size          # of the file
    cdef int64_t needs         # bytes the buffer must hold before the next batch can be read
    cdef int64_t next_offset   # no batch may begin below
    cdef int64_t capacity_first
    cdef const uint8_t *batch  # the current batch
    cdef int64_t batch_size
    cdef BatchHeader header    # of the current batch

    cdef int begin(self, File file, int64_t position, int64_t size, int64_t next_offset) except -1
    cdef int advance(self) noexcept nogil
    cdef int64_t refill(self) except -1


cdef struct Aborted:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset
    bint seen                  # a batch of it is still there


cdef class Transactions:
    cdef Aborted *waiting      # by first offset
    cdef Aborted *ongoing
    cdef Aborted *kept
    cdef int64_t *committed    # producers with an open transaction that will be committed
    cdef int waiting_count
    cdef int waiting_at
    cdef int ongoing_count
    cdef int kept_count
    cdef int committed_count
    cdef int committed_room

    cdef void consume(self, int64_t offset) noexcept nogil
    cdef int find(self, int64_t producer_id) noexcept nogil
    cdef int on_batch(self, const BatchHeader *header) noexcept nogil
    cdef int on_marker(self, const BatchHeader *header, int kind) noexcept nogil


cdef int marker_kind(const BatchHeader *header, const uint8_t *records, int64_t size) noexcept nogil
