"""Decides the last stable offset of a partition: no record below it is of a transaction that may yet be aborted.

It is the high watermark or, if that is lower, the first offset of

1. the first open transaction;
2. an ended transaction whose marker is not below the high watermark: consumers do not see the marker yet.

`producer_state` has the transactions, and asks whenever the high watermark moves; read_committed consumers read up to
this offset (`cluster/partition/reads`). Source: UnifiedLog.lastStableOffset, ProducerStateManager.java
(firstUnstableOffset, onHighWatermarkUpdated), KIP-98.
"""

from libc.stdint cimport int64_t


cdef inline list unstable_spans(list ended, int64_t high_watermark):
    """Those of the ended transactions, (first, last offset), whose marker is not below the high watermark."""
    return [span for span in ended if span[1] >= high_watermark]


cdef inline int64_t last_stable_offset(int64_t high_watermark, int64_t first_open, list ended) except -1:
    """The last stable offset.

    Arguments:
        high_watermark: the upper limit.
        first_open: the first offset of the first open transaction, -1 where none is open.
        ended: the result of `unstable_spans`.
    """
    cdef int64_t stable = high_watermark
    for first, _ in ended:
        stable = min(stable, <int64_t> first)
    if first_open >= 0:
        stable = min(stable, first_open)
    return stable
