"""Decides when a segment is rolled: how many queued batches the active segment accepts, and where the next one begins.

`log_core` asks before each write; `Log.roll` creates the segment. A segment is rolled

1. at `segment.bytes`, unless the segment is empty: a batch above it, which only a leader can have sent, gets a segment
   of its own (KIP-74);
2. at `segment.ms`, by the timestamps of its batches;
3. when an index is full, or the relative offset of a batch would not fit into an entry.

A leader epoch ends a run of batches, but no segment. Retention rolls the active segment, too, when it deletes all that
is in it (`storage/retention.take_first`). Source: LogSegment.shouldRoll.
"""

from libc.stdint cimport int64_t

from kafkalite._speedups.storage.segment_core cimport Queued, SegmentCore

cdef enum:
    RELATIVE_OFFSET_MAX = 0x7fffffff


cdef struct RollLimits:
    int64_t segment_bytes
    int64_t segment_ms
    int64_t index_interval_bytes


cdef inline int batches_before_roll(
    SegmentCore active, const Queued *queue, int count, const RollLimits *limits
) noexcept:
    """How many of these batches the active segment accepts with one call; 0 = it is rolled before the first one."""
    cdef int64_t size = active.size
    cdef int64_t first_timestamp = active.first_timestamp
    cdef const Queued *queued
    cdef int i = 0
    # An index receives one entry per interval at most, which bounds the bytes that one call may write.
    cdef int64_t bytes_max = <int64_t> (active.offset_index.entries_max - active.offset_index.count)
    bytes_max = min(bytes_max, <int64_t> (active.time_index.entries_max - 1 - active.time_index.count))
    bytes_max = size + bytes_max * (limits.index_interval_bytes + 1)
    while i < count:
        queued = &queue[i]
        if queued.leader_epoch != queue[0].leader_epoch:
            break
        if queued.last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
            break
        if size and (size > limits.segment_bytes - queued.view.len or size >= bytes_max):
            break
        if size and first_timestamp >= 0 and queued.max_timestamp - first_timestamp > limits.segment_ms:
            break
        if size == 0:
            first_timestamp = queued.max_timestamp
        size += queued.view.len
        i += 1
    return i


cdef inline int64_t base_of_next_segment(const Queued *first, int64_t end) noexcept:
    """Where the segment of a batch begins: at the end of the batch before it, unless that is too far away for the
    indexes of the segment."""
    return end if first.last_offset - end <= RELATIVE_OFFSET_MAX else first.base_offset
