from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from kafkalite._speedups.wire.wire cimport BatchHeader


cdef enum:
    CODEC_NONE = 0
    CODEC_ZSTD = 4


cdef struct ValidationRules:       # of a topic; `default_rules` has the defaults
    int64_t size_max                # bytes of the whole batch
    int64_t decompressed_max        # bytes of its records; 0: see `decompressed_limit`
    int64_t timestamp_min
    int64_t timestamp_max
    bint compacted
    bint walk_compressed
    bint zstd_allowed
    bint control_allowed


cdef class ValidationResult:
    cdef readonly int error
    cdef readonly str message
    cdef list _record_errors
    cdef readonly int64_t base_offset
    cdef readonly int32_t last_offset_delta
    cdef readonly int32_t records_count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t header_max_timestamp
    cdef readonly int32_t offset_of_max_timestamp
    cdef readonly int16_t attributes
    cdef readonly int8_t codec
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence
    cdef readonly int32_t size
    cdef readonly int32_t leader_epoch
    cdef readonly bint walked
    cdef readonly int64_t decompressed_bytes

    cdef void refreshed(self, const BatchHeader *header) noexcept
    cdef ValidationResult reject(self, int error, str message)


cdef ValidationRules default_rules(int64_t size_max) noexcept nogil
cdef ValidationResult validate_bytes(const uint8_t *p, Py_ssize_t size, const ValidationRules *rules)
cdef int64_t crc_of(const uint8_t *p, Py_ssize_t size) except -1
cdef int64_t decompressed_limit(int64_t asked, int64_t size_max) noexcept nogil
cdef bytes decompressed(int codec, const uint8_t *p, Py_ssize_t size, int64_t size_max)
