"""A histogram over int64 values in logarithmic buckets with linear steps inside an octave: each is at most 3 % wide."""

from libc.stdint cimport int64_t

cdef enum:
    BUCKETS_OCTAVE = 32
    BUCKETS = 32 * 48


cdef inline int bucket_of(int64_t value) noexcept nogil:
    """The bucket that `value` falls into; values below 0 fall into the first."""
    cdef int octave = 0
    cdef int64_t rest = value
    if value < BUCKETS_OCTAVE:
        return <int> max(value, <int64_t> 0)
    while rest >= 2 * BUCKETS_OCTAVE:
        rest >>= 1
        octave += 1
    return min(BUCKETS - 1, (octave + 1) * BUCKETS_OCTAVE + <int> (rest - BUCKETS_OCTAVE))


cdef inline int64_t bucket_value(int bucket) noexcept nogil:
    """The smallest value of a bucket."""
    cdef int octave = bucket // BUCKETS_OCTAVE
    if octave == 0:
        return bucket
    return <int64_t> (BUCKETS_OCTAVE + bucket % BUCKETS_OCTAVE) << (octave - 1)
