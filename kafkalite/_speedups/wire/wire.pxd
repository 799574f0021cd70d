"""Checked reads and unaligned stores of Kafka's big-endian integers, and the record batch header.

All other Cython modules read bytes through this file, so that bounds are checked in one place. `load_*` read without
a check: the caller has checked the bound. `take_*` consume bytes of a `Span` and set its `left` to -1 if bytes are
missing (check `span.left < 0` once after several reads).
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint16_t kl_load16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
    static inline uint32_t kl_load32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
    static inline uint64_t kl_load64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
    static inline void kl_store16(uint8_t *p, uint16_t v) { v = __builtin_bswap16(v); memcpy(p, &v, 2); }
    static inline void kl_store32(uint8_t *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
    static inline void kl_store64(uint8_t *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }
    """
    uint16_t load_u16 "kl_load16"(const uint8_t *p) noexcept nogil
    uint32_t load_u32 "kl_load32"(const uint8_t *p) noexcept nogil
    uint64_t load_u64 "kl_load64"(const uint8_t *p) noexcept nogil
    void store_u16 "kl_store16"(uint8_t *p, uint16_t v) noexcept nogil
    void store_u32 "kl_store32"(uint8_t *p, uint32_t v) noexcept nogil
    void store_u64 "kl_store64"(uint8_t *p, uint64_t v) noexcept nogil


cdef struct Span:
    # The bytes left to read. `left` is negative after a failed read; further reads return 0.
    const uint8_t *at
    Py_ssize_t left


# Offsets in the v2 batch header (DefaultRecordBatch.java), each derived from the one before.
cdef enum:
    BASE_OFFSET_AT = 0
    BATCH_LENGTH_AT = 8
    LEADER_EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21
    LAST_OFFSET_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    RECORDS_COUNT_AT = 57
    HEADER_SIZE = 61          # of the whole v2 batch header
    HEADER_SIZE_TO_MAGIC = 17
    LENGTH_OVERHEAD = 12      # bytes that batch_length does not count: base offset and itself
    LEGACY_OVERHEAD = 14      # smallest length of magic 0: crc, magic, attributes, two sizes

    CODEC_MASK = 0x07
    LOG_APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    DELETE_HORIZON_BIT = 0x40


cdef struct BatchHeader:
    int64_t base_offset
    int32_t batch_length
    int32_t leader_epoch
    int8_t magic
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t records_count


cdef inline int read_batch_header(const uint8_t *p, Py_ssize_t size, BatchHeader *out) noexcept nogil:
    """Fill `out` from `size` bytes at `p`. Returns 0, or -1 for fewer than HEADER_SIZE bytes."""
    if size < HEADER_SIZE:
        return -1
    out.base_offset = <int64_t> load_u64(p + BASE_OFFSET_AT)
    out.batch_length = <int32_t> load_u32(p + BATCH_LENGTH_AT)
    out.leader_epoch = <int32_t> load_u32(p + LEADER_EPOCH_AT)
    out.magic = <int8_t> p[MAGIC_AT]
    out.crc = load_u32(p + CRC_AT)
    out.attributes = <int16_t> load_u16(p + ATTRIBUTES_AT)
    out.last_offset_delta = <int32_t> load_u32(p + LAST_OFFSET_DELTA_AT)
    out.base_timestamp = <int64_t> load_u64(p + BASE_TIMESTAMP_AT)
    out.max_timestamp = <int64_t> load_u64(p + MAX_TIMESTAMP_AT)
    out.producer_id = <int64_t> load_u64(p + PRODUCER_ID_AT)
    out.producer_epoch = <int16_t> load_u16(p + PRODUCER_EPOCH_AT)
    out.base_sequence = <int32_t> load_u32(p + BASE_SEQUENCE_AT)
    out.records_count = <int32_t> load_u32(p + RECORDS_COUNT_AT)
    return 0


cdef inline const uint8_t *take(Span *span, Py_ssize_t n) noexcept nogil:
    """Consume `n` bytes and return their address; NULL (and span.left = -1) if bytes are missing."""
    cdef const uint8_t *p = span.at
    if n < 0 or n > span.left:
        span.left = -1
        return NULL
    span.at = p + n
    span.left -= n
    return p


cdef inline int8_t take_i8(Span *span) noexcept nogil:
    cdef const uint8_t *p = take(span, 1)
    return <int8_t> p[0] if p != NULL else 0


cdef inline int16_t take_i16(Span *span) noexcept nogil:
    cdef const uint8_t *p = take(span, 2)
    return <int16_t> load_u16(p) if p != NULL else 0


cdef inline int32_t take_i32(Span *span) noexcept nogil:
    cdef const uint8_t *p = take(span, 4)
    return <int32_t> load_u32(p) if p != NULL else 0


cdef inline int64_t take_i64(Span *span) noexcept nogil:
    cdef const uint8_t *p = take(span, 8)
    return <int64_t> load_u64(p) if p != NULL else 0


cdef inline uint64_t take_uvarint(Span *span, int bytes_max) noexcept nogil:
    """Unsigned LEB128 of at most `bytes_max` bytes (5 for 32 bits, 10 for 64); a longer one fails the span."""
    cdef const uint8_t *p = span.at
    cdef Py_ssize_t left = span.left
    cdef uint64_t value = 0
    cdef int i = 0
    while i < bytes_max and i < left:
        value |= <uint64_t> (p[i] & 0x7f) << (7 * i)
        if p[i] < 0x80:
            span.at = p + i + 1
            span.left = left - i - 1
            return value
        i += 1
    span.left = -1
    return 0


cdef inline int32_t take_varint(Span *span) noexcept nogil:
    """Zig-zag varint of 32 bits, as in records."""
    cdef uint32_t raw = <uint32_t> take_uvarint(span, 5)
    return <int32_t> (raw >> 1) ^ -<int32_t> (raw & 1)


cdef inline int64_t take_varlong(Span *span) noexcept nogil:
    """Zig-zag varint of 64 bits, as in record timestamps."""
    cdef uint64_t raw = take_uvarint(span, 10)
    return <int64_t> (raw >> 1) ^ -<int64_t> (raw & 1)


cdef inline int put_uvarint(uint8_t *p, uint64_t value) noexcept nogil:
    """Write `value` as LEB128 to `p` (up to 10 bytes). Returns the number of bytes."""
    cdef int i = 0
    while value >= 0x80:
        p[i] = <uint8_t> (value | 0x80)
        value >>= 7
        i += 1
    p[i] = <uint8_t> value
    return i + 1


cdef inline int put_varlong(uint8_t *p, int64_t value) noexcept nogil:
    return put_uvarint(p, (<uint64_t> value << 1) ^ <uint64_t> (value >> 63))


cdef inline int uvarint_size(uint64_t value) noexcept nogil:
    cdef int n = 1
    while value >= 0x80:
        value >>= 7
        n += 1
    return n
