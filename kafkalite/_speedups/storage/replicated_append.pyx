"""Validates the batches that a follower receives, one after another, and is the result of their append.

1. A batch is accepted if its length, format and CRC are right, its offsets are above those before it, and its leader
   epoch is not lower. Gaps between offsets are what the leader's compaction has left.
2. After the first rejected batch, none is accepted.

Sources: UnifiedLog.analyzeAndValidateRecords; Partition.appendRecordsToFollowerOrFutureReplica (`restart_offset`).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from kafkalite._speedups.storage.page_cache cimport last_offset_of
from kafkalite._speedups.wire.crc32c cimport crc32c
from kafkalite._speedups.wire.error_codes cimport (
    CORRUPT_MESSAGE,
    OFFSET_OUT_OF_RANGE,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
)
from kafkalite._speedups.wire.wire cimport (
    ATTRIBUTES_AT,
    BATCH_LENGTH_AT,
    HEADER_SIZE,
    HEADER_SIZE_TO_MAGIC,
    LENGTH_OVERHEAD,
    BatchHeader,
    load_u32,
    read_batch_header,
)

cdef int64_t INT64_MAX = 0x7fffffffffffffff


cdef class ReplicatedAppend:
    """Result of `LogCore.append_replicated`.

    Arguments:
        next_offset: the end of the log before.
        leader_epoch: the last one of the log, -1 for none.

    Attributes:
        next_offset: the log end once the queued batches are written.
        count, size: of the queued batches; bytes behind them are an incomplete batch, or begin with the rejected one.
        error: 0, or the Kafka error code of the rejected batch: CORRUPT_MESSAGE (length, CRC, offsets or leader epoch
            are wrong), UNSUPPORTED_FOR_MESSAGE_FORMAT (magic 0 or 1), OFFSET_OUT_OF_RANGE (the offsets go back),
            KAFKA_STORAGE_ERROR (the log is offline).
        offset: base offset of that batch as in its header; -1 where nothing was rejected, or the log is offline.
        reason: why it was rejected, with its offsets; empty where nothing was.
        restart_offset: where the empty log must restart (`LogManager.restart_at`) to accept the first batch, because
            the log start lies within it; -1 in all other cases.
    """

    def __cinit__(self, int64_t next_offset, int32_t leader_epoch):
        self.next_offset = next_offset
        self.epoch = leader_epoch
        self.offset = self.restart_offset = -1
        self.lowest = INT64_MAX
        self.reason = ""

    cdef ReplicatedAppend rejected(self, int error, int64_t offset, str reason):
        self.error = error
        self.offset = offset
        self.reason = reason
        return self

    cdef int64_t next_batch(self, const uint8_t *p, int64_t left, BatchHeader *header) except -1:
        """Accept the batch at `p`; return its bytes, 0 where it is incomplete or rejected."""
        cdef int64_t size
        cdef str reason
        if left < HEADER_SIZE_TO_MAGIC:
            return 0
        size = LENGTH_OVERHEAD + <int64_t> <int32_t> load_u32(p + BATCH_LENGTH_AT)
        if size > left:
            return 0
        read_header(p, size, header)
        if header.magic in (0, 1):
            reason = f"message format {header.magic} at offset {header.base_offset}, expected 2"
            self.rejected(UNSUPPORTED_FOR_MESSAGE_FORMAT, header.base_offset, reason)
            return 0
        reason = self.violation(p, size, header)
        if reason is not None:
            self.rejected(CORRUPT_MESSAGE, header.base_offset, reason)
            return 0
        if header.base_offset < self.next_offset and self.goes_back(header):
            reason = f"offsets {header.base_offset} to {last_offset_of(header)} where {self.next_offset} is next"
            self.rejected(OFFSET_OUT_OF_RANGE, header.base_offset, reason)
            return 0
        if header.leader_epoch < self.epoch:
            reason = f"leader epoch {header.leader_epoch} at offset {header.base_offset} follows {self.epoch}"
            self.rejected(CORRUPT_MESSAGE, header.base_offset, reason)
            return 0
        self.epoch = header.leader_epoch
        self.next_offset = last_offset_of(header) + 1
        self.lowest = INT64_MAX
        self.count += 1
        self.size += size
        return size

    cdef str violation(self, const uint8_t *p, int64_t size, const BatchHeader *header):
        """Describe what makes a batch unusable at any offset; None if nothing does."""
        cdef int64_t base = header.base_offset
        if size < HEADER_SIZE or header.magic != 2:
            return f"a batch of {size} bytes with magic {header.magic} at offset {base}"
        if crc32c(p + ATTRIBUTES_AT, size - ATTRIBUTES_AT) != header.crc:
            return f"wrong CRC of the batch at offset {base}"
        if base < 0 or header.last_offset_delta < 0 or base >= INT64_MAX - header.last_offset_delta:
            return f"offset {base} with last offset delta {header.last_offset_delta}"
        return None

    cdef bint goes_back(self, const BatchHeader *header) noexcept:
        """Whether a batch that begins below the log end is not the first one, in which the log start lies."""
        if self.lowest == INT64_MAX or last_offset_of(header) < self.next_offset:
            return True
        if header.base_offset < self.lowest:
            self.restart_offset = header.base_offset
            return True
        return False


cdef void read_header(const uint8_t *p, int64_t size, BatchHeader *header) noexcept nogil:
    """Read the fields that `size` bytes have, at least those up to the magic; the others are 0."""
    cdef uint8_t padded[HEADER_SIZE]
    if size >= HEADER_SIZE:
        read_batch_header(p, size, header)
        return
    memset(padded, 0, HEADER_SIZE)
    memcpy(padded, p, HEADER_SIZE_TO_MAGIC)
    read_batch_header(padded, HEADER_SIZE, header)
