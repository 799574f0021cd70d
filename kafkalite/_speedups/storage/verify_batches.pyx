"""Walks over the valid batches of a file for `log verify`.

1. A run ends at the first batch with a violation; the caller checks that one.
2. Batches are validated without the GIL. Memory is that of one run, independent of damaged lengths.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalite._speedups.wire.crc32c cimport crc32c
from kafkalite._speedups.wire.wire cimport (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC_AT,
    BatchHeader,
    read_batch_header,
)

cdef enum:
    RUN_BATCHES = 4096
cdef int64_t INT32_MAX = 0x7fffffff


cdef class VerifiedRun:
    """Batches in line: `count`, `end` (where the last one ends in the buffer), `next_offset`, and `before_gap`: the
    offset expected before the last one, where that one left some out, else -1."""

    cdef readonly int count
    cdef readonly int64_t end
    cdef readonly int64_t next_offset
    cdef readonly int64_t before_gap
    cdef int64_t[RUN_BATCHES] position
    cdef int64_t[RUN_BATCHES] base_offset
    cdef int64_t[RUN_BATCHES] last_offset
    cdef int64_t[RUN_BATCHES] max_timestamp

    def columns(self):
        """Positions, base offsets, last offsets and highest timestamps, each as 64-bit integers of this machine."""
        return (
            column(self.position, self.count), column(self.base_offset, self.count),
            column(self.last_offset, self.count), column(self.max_timestamp, self.count),
        )


cdef bytes column(const int64_t *values, int count):
    return PyBytes_FromStringAndSize(<const char *> values, count * sizeof(int64_t))


cdef bint whole(const uint8_t *p, int64_t left, BatchHeader *out) noexcept nogil:
    """Whether `left` bytes begin with a batch with a valid CRC."""
    cdef int64_t size
    if read_batch_header(p, left, out) < 0:
        return False
    size = LENGTH_OVERHEAD + <int64_t> out.batch_length
    if out.magic != 2 or size < HEADER_SIZE or size > left:
        return False
    return crc32c(p + ATTRIBUTES_AT, size - ATTRIBUTES_AT) == out.crc


def run(bytes data not None, int64_t at, int64_t position, int64_t segment_base, int64_t next_offset,
        int32_t leader_epoch, bint gaps):
    """Walk the batches from `at` on while they are valid, in order and of the same leader epoch.

    Arguments:
        position: in the file, of the first byte of the buffer.
        segment_base: base offset of the segment.
        next_offset: at which the first one begins, or above where `gaps` are normal.
        leader_epoch: of all of them.
    """
    cdef VerifiedRun found = VerifiedRun.__new__(VerifiedRun)
    cdef BatchHeader header
    cdef const uint8_t *p = data
    cdef int64_t size = len(data)
    cdef int64_t last
    cdef int64_t before_gap = -1
    cdef int i = 0
    if not 0 <= at <= size:
        raise ValueError(f"{at} is outside the {size} bytes")
    if at < size:
        with nogil:
            while i < RUN_BATCHES and whole(p + at, size - at, &header):
                if header.base_offset < next_offset or header.base_offset > segment_base + INT32_MAX:
                    break
                last = header.base_offset + header.last_offset_delta
                if header.last_offset_delta < 0 or last > segment_base + INT32_MAX:
                    break
                if header.leader_epoch != leader_epoch or (header.base_offset != next_offset and not gaps):
                    break
                found.position[i] = position + at
                found.base_offset[i] = header.base_offset
                found.last_offset[i] = last
                found.max_timestamp[i] = header.max_timestamp
                before_gap = next_offset if header.base_offset > next_offset else -1
                next_offset = last + 1
                at += LENGTH_OVERHEAD + header.batch_length
                i += 1
    found.count = i
    found.end = at
    found.next_offset = next_offset
    found.before_gap = before_gap
    return found


def find_batch(bytes data not None, int64_t segment_base):
    """Where the first whole batch of a segment begins that another one or the buffer's end follows; -1 for none."""
    cdef BatchHeader header, following
    cdef const uint8_t *p = data
    cdef int64_t size = len(data)
    cdef int64_t at = 0
    cdef int64_t end
    if size < HEADER_SIZE:
        return -1
    with nogil:
        while at + HEADER_SIZE <= size:
            if p[at + MAGIC_AT] == 2 and whole(p + at, size - at, &header):
                end = at + LENGTH_OVERHEAD + header.batch_length
                if segment_base <= header.base_offset <= segment_base + INT32_MAX and (
                    end + HEADER_SIZE > size or whole(p + end, size - end, &following)
                ):
                    break
            at += 1
        else:
            at = -1
    return at
