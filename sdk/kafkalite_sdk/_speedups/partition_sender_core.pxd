from libc.stdint cimport int32_t, int64_t

from kafkalite_sdk._speedups.deliveries cimport ProducerBatch


cdef class PartitionSenderCore:
    cdef readonly object queue
    cdef readonly object full
    cdef readonly bint idempotent
    cdef public int32_t leader
    cdef public double retry_at
    cdef public int failures
    cdef public object last_error
    cdef public bint needs_epoch
    cdef public object producer_id
    cdef public object in_flight
    cdef public object window
    cdef public list returned_batches
    cdef public dict waits_in
    cdef public int64_t sequence
    cdef public int32_t proven
    cdef public object closed_by
    cdef int32_t max_in_flight

    cpdef object take(self, current, double now)
    cdef bint assign_sequence(self, ProducerBatch batch) except -1
    cpdef object accepted(self, batch)
