"""Reads and checks the framing of records (DefaultRecord.java) in one pass, without the GIL.

A record is: varint length, int8 attributes, varlong timestamp delta, varint offset delta, varint key size (-1 is null),
key, varint value size (-1 is null), value, varint header count, and per header: varint key size, key, varint value size
(-1 is null), value. `read_record` alone compares the lengths of a record with the bytes left.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkalite._speedups.wire.wire cimport Span, take, take_uvarint


cdef enum RecordFault:
    FAULT_NONE = 0
    # Invalid framing: later records cannot be read.
    FAULT_MISSING = 1         # the bytes end before the last record
    FAULT_LENGTH = 2          # a record's length is negative or reaches past the end
    FAULT_FRAMING = 3         # fields do not fill the record exactly, or a size in it is impossible
    FAULT_HEADERS = 4         # a header count or header size is impossible
    FAULT_TRAILING = 5        # bytes are left after the counted records
    FAULT_OFFSET = 6          # the offset delta is not the record's index
    FAULT_FRAMING_LAST = 6
    # A complete record that is not allowed: the walk can continue.
    FAULT_NO_KEY = 7
    FAULT_TIMESTAMP = 8


cdef struct RecordFields:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_size          # -1: null
    int32_t value_size        # -1: null
    int32_t headers_count
    const uint8_t *key
    const uint8_t *value
    Span headers


cdef struct Walk:
    # Position of the walk; set by `walk_begin`, advanced by `walk`.
    Span span
    int32_t count
    int32_t index             # of the next record; after a fault: one past the record that has it
    int64_t base_timestamp
    int64_t timestamp_min     # allowed range, both ends included; -1 (no timestamp) is always allowed
    int64_t timestamp_max
    bint keys_needed
    int64_t max_timestamp     # largest so far, -1 when there is none
    int32_t max_timestamp_at  # index of the first record that has it
    int64_t timestamp         # of the last record read
    int32_t offset_delta      # of the last record read


cdef inline uint64_t take_short(Span *span, int bytes_max) noexcept nogil:
    """`take_uvarint`, with the common cases of one and two bytes first."""
    cdef const uint8_t *p = span.at
    if span.left >= 2:
        if p[0] < 0x80:
            span.at = p + 1
            span.left -= 1
            return p[0]
        if p[1] < 0x80:
            span.at = p + 2
            span.left -= 2
            return (p[0] & 0x7f) | <uint64_t> p[1] << 7
    return take_uvarint(span, bytes_max)


cdef inline int32_t short_varint(Span *span) noexcept nogil:
    """Zig-zag varint of 32 bits."""
    cdef uint32_t raw = <uint32_t> take_short(span, 5)
    return <int32_t> (raw >> 1) ^ -<int32_t> (raw & 1)


cdef inline int64_t short_varlong(Span *span) noexcept nogil:
    """Zig-zag varint of 64 bits."""
    cdef uint64_t raw = take_short(span, 10)
    return <int64_t> (raw >> 1) ^ -<int64_t> (raw & 1)


cdef inline int skip_headers(Span *span, int32_t count) noexcept nogil:
    """Check the framing of `count` headers. Each has at least two bytes, so the bytes bound the loop."""
    cdef int32_t size
    cdef int32_t _i
    if count < 0 or count > span.left:
        return FAULT_HEADERS
    for _i in range(count):
        size = short_varint(span)
        if size < 0:
            return FAULT_HEADERS
        take(span, size)
        size = short_varint(span)
        if size > 0:
            take(span, size)
        if span.left < 0 or size < -1:
            return FAULT_HEADERS
    return FAULT_NONE


cdef inline int read_record(Span *span, RecordFields *out) noexcept nogil:
    """Read one record and advance `span` behind it. Returns a RecordFault. `out` points into the bytes of `span`."""
    cdef Span body
    cdef int32_t length
    cdef int fault
    if span.left <= 0:
        return FAULT_MISSING
    length = short_varint(span)
    if length < 0 or span.left < 0 or length > span.left:
        return FAULT_LENGTH
    body.at = span.at
    body.left = length
    span.at += length
    span.left -= length
    take(&body, 1)  # attributes: unused
    out.timestamp_delta = short_varlong(&body)
    out.offset_delta = short_varint(&body)
    out.key_size = short_varint(&body)
    out.key = body.at
    if out.key_size > 0:
        take(&body, out.key_size)
    out.value_size = short_varint(&body)
    out.value = body.at
    if out.value_size > 0:
        take(&body, out.value_size)
    out.headers_count = short_varint(&body)
    if body.left < 0 or out.key_size < -1 or out.value_size < -1:
        return FAULT_FRAMING
    out.headers = body
    if out.headers_count != 0:
        fault = skip_headers(&body, out.headers_count)
        if fault:
            return fault
    return FAULT_NONE if body.left == 0 else FAULT_FRAMING


cdef inline void walk_begin(
    Walk *w, const uint8_t *records, Py_ssize_t size, int32_t count, int64_t base_timestamp
) noexcept nogil:
    w.span.at = records
    w.span.left = size
    w.count = count
    w.index = 0
    w.base_timestamp = base_timestamp
    w.timestamp_min = <int64_t> (<uint64_t> 1 << 63)
    w.timestamp_max = ~w.timestamp_min
    w.keys_needed = False
    w.max_timestamp = -1
    w.max_timestamp_at = -1
    w.timestamp = -1
    w.offset_delta = 0


cdef inline int walk(Walk *w) noexcept nogil:
    """Check records until a fault or the end; called again, it continues after a fault that allows it."""
    cdef RecordFields fields
    cdef int fault
    while w.index < w.count:
        fault = read_record(&w.span, &fields)
        w.index += 1
        if fault:
            return fault
        w.offset_delta = fields.offset_delta
        if fields.offset_delta != w.index - 1:
            return FAULT_OFFSET
        w.timestamp = <int64_t> (<uint64_t> w.base_timestamp + <uint64_t> fields.timestamp_delta)
        if w.timestamp > w.max_timestamp:
            w.max_timestamp = w.timestamp
            w.max_timestamp_at = w.index - 1
        if w.keys_needed and fields.key_size < 0:
            return FAULT_NO_KEY
        if w.timestamp != -1 and (w.timestamp < w.timestamp_min or w.timestamp > w.timestamp_max):
            return FAULT_TIMESTAMP
    if w.span.left != 0:
        return FAULT_TRAILING
    return FAULT_NONE
