"""Decides how long compaction keeps tombstones, and what else it keeps besides the last record of each key.

1. Tombstones and markers of transactions stay for `delete.retention.ms` after a cleaning has met them first.
2. The batch with the last sequence of a remembered producer stays, perhaps empty.

Sources: LogCleaner.scala, RecordBatch.deleteHorizonMs of Apache Kafka.
"""

from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport free, malloc

from kafkalite._speedups.wire.wire cimport CONTROL_BIT, DELETE_HORIZON_BIT, BatchHeader


cdef class RetentionRules:
    """Decides which records are kept besides the last record of each key.

    Arguments:
        now_ms: wall time.
        delete_retention_ms: for how long tombstones and markers stay once they were met.
        upper_offset: the end of this cleaning; the batch that ends there stays, perhaps empty.
        last_records: (producer id, last offset of its data or -1, epoch) of each producer that is remembered.
    """

    def __cinit__(self, int64_t now_ms, int64_t delete_retention_ms, int64_t upper_offset, last_records):
        cdef int i
        self.now_ms = now_ms
        self.horizon_ms = now_ms + min(delete_retention_ms, INT64_MAX - now_ms)
        self.upper_offset = upper_offset
        self.last = <LastRecord *> malloc((len(last_records) + 1) * sizeof(LastRecord))
        if self.last == NULL:
            raise MemoryError
        for i, (producer_id, last_offset, epoch) in enumerate(sorted(last_records)):
            self.last[i].producer_id = producer_id
            self.last[i].last_offset = last_offset
            self.last[i].epoch = epoch
        self.last_count = len(last_records)

    def __dealloc__(self):
        free(self.last)

    cdef bint at_horizon(self, const BatchHeader *header) noexcept nogil:
        """Whether the tombstones or the marker of a batch have stayed for long enough: its delete horizon has passed.

        The cleaning that meets them first writes the horizon, `horizon_ms`, into the header of their batch.
        """
        return header.attributes & DELETE_HORIZON_BIT and header.base_timestamp <= self.now_ms

    cdef bint is_last(self, const BatchHeader *header) noexcept nogil:
        """Whether a batch has the last sequence (or, without data, the epoch) of a known producer."""
        cdef int low = 0
        cdef int high = self.last_count
        cdef int middle
        if header.producer_id < 0:
            return False
        while low < high:
            middle = low + (high - low) // 2
            if self.last[middle].producer_id < header.producer_id:
                low = middle + 1
            else:
                high = middle
        if low == self.last_count or self.last[low].producer_id != header.producer_id:
            return False
        if self.last[low].last_offset >= 0:
            return header.base_offset + header.last_offset_delta == self.last[low].last_offset
        return header.attributes & CONTROL_BIT and header.producer_epoch == self.last[low].epoch
