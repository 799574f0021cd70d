from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkalite._speedups.wire.wire cimport BatchHeader

cdef enum:
    BATCHES_KEPT = 5
    NEW_BATCH = -1               # the result of `check`: in order, to be appended
    UNVERIFIED = -999            # the result of `check`: the coordinator must verify or add the partition before
    MARKER_BYTES = 256           # more than a control batch of a transaction has: 78 bytes by Kafka


cdef struct SeenBatch:
    int32_t last_sequence
    int32_t offset_delta
    int64_t last_offset
    int64_t timestamp


cdef struct EndMarker:
    # The content of a control batch; `ends` is 0 if it ends no transaction (emptied by compaction, or of another type).
    bint ends
    bint aborts
    int32_t coordinator_epoch


cdef int read_marker(const uint8_t *batch, Py_ssize_t size, const BatchHeader *header, EndMarker *out) noexcept nogil


cdef class Producer:
    cdef readonly int64_t producer_id
    cdef readonly int16_t epoch
    cdef readonly int32_t coordinator_epoch
    cdef readonly int64_t first_offset_of_transaction
    cdef readonly int64_t last_timestamp
    cdef SeenBatch batches[BATCHES_KEPT]
    cdef int count
    cdef bint begins              # its first batch, with sequence 0, is not in the file yet
    cdef int64_t appended_ms      # when `expire` first saw its last batch; -1 = not yet

    cdef Producer copy(self)
    cdef int64_t duplicate(self, const BatchHeader *header) noexcept nogil
    cdef int note(self, const BatchHeader *header, int64_t base_offset) noexcept nogil
    cdef uint8_t *pack(self, uint8_t *p) noexcept nogil
    cdef int32_t sequence(self) noexcept nogil


cdef class Verification:
    cdef int16_t epoch
    cdef int32_t lowest_sequence
    cdef bint adds
    cdef int attempts             # that may succeed yet
    cdef int64_t begun_ms         # when `expire` first saw it; -1 = not yet

    cdef int update(self, int16_t epoch, int32_t sequence) noexcept nogil
    cdef bint rejects(self, Producer entry, int32_t sequence) noexcept


cdef class ProducerState:
    cdef readonly dict entries
    cdef readonly dict verifications   # by producer id
    cdef dict undo
    cdef readonly int64_t duplicates
    cdef dict open                # first offset of each open transaction -> producer id, in the order of offsets
    cdef int64_t first_open       # the first of them, -1 where none is open
    cdef list ended               # (first, last offset) of transactions whose marker may be at or above the watermark
    cdef list aborted             # (producer id, first, last, last stable offset) since `keep` or `take_aborted`

    cdef int64_t check(
        self, const BatchHeader *header, const EndMarker *marker, bint client, Verification verification, int version
    ) except? -1000
    cdef bint is_early(self, Producer entry, const BatchHeader *header) except -1
    cdef Verification begin_verification(
        self, int64_t producer_id, int16_t epoch, int32_t sequence, bint adds, Verification before
    )
    cdef int end_verification(self, int64_t producer_id, Verification verification) except -1
    cdef int transaction_error(
        self, Producer entry, int64_t producer_id, int16_t epoch, Verification verification
    ) except -1
    cdef int marker_error(self, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int version) except -1
    cdef int64_t check_sequence(self, Producer entry, const BatchHeader *header) noexcept nogil
    cdef int note(self, const BatchHeader *header, int64_t base_offset, const EndMarker *marker) except -1
    cdef int expect_first(self, const BatchHeader *header) except -1
    cdef int note_end(self, Producer entry, int64_t offset, bint aborts) except -1
    cdef int order(self) except -1
    cdef int64_t stable_below(self, int64_t high_watermark) except -1
    cdef ProducerState as_kept(self)
    cdef list stored(self)
