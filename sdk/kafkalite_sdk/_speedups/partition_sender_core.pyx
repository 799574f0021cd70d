# cython: nonecheck=True
"""The order and the sequences of the batches of one partition, without errors.

`kafkalite_sdk.producer.partition_sender` completes `PartitionSenderCore` with everything that follows errors, and
states its invariants.
"""

from libc.stdint cimport int32_t

from collections import deque

from kafkalite_sdk._speedups.deliveries cimport ProducerBatch

__all__ = ["PartitionSenderCore"]

cdef enum:
    NO_LEADER = -1
    SEQUENCE_MASK = 0x7fffffff
    REMEMBERED_BATCHES = 5     # of a producer, by the broker; MAX_IN_FLIGHT_IDEMPOTENT


cdef class PartitionSenderCore:
    """The order of the batches of one partition; see partition_sender_core.pyi."""

    def __init__(self, queue, int32_t max_in_flight, *, bint idempotent, producer_id):
        self.queue = queue
        self.full = queue.full
        self.leader = NO_LEADER
        self.retry_at = 0.0
        self.producer_id = producer_id
        self.in_flight = deque()
        self.window = deque()
        self.returned_batches = []
        self.max_in_flight = max_in_flight if idempotent else 1
        self.idempotent = idempotent
        self.proven = NO_LEADER

    cpdef object take(self, current, double now):
        """The batch that leaves next; see partition_sender_core.pyi."""
        cdef ProducerBatch batch
        if not self.full or self.returned_batches or now < self.retry_at:
            return None
        batch = self.full[0]
        if batch.compressing or len(self.in_flight) >= (self.max_in_flight if self.proven == self.leader else 1):
            return None
        if self.idempotent:
            if (self.needs_epoch or self.producer_id[0] < 0) and not self.may_leave(batch, current):
                return None
            if batch.base_sequence < 0 and not self.assign_sequence(batch):
                return None
        self.full.popleft()
        self.in_flight.append(batch)
        return batch

    cdef bint assign_sequence(self, ProducerBatch batch) except -1:
        """Give a batch the next sequence. False = the broker would forget the oldest batch without an outcome, which
        could then not be sent again: it counts accepted batches behind it, too.
        """
        while self.window and (<ProducerBatch> self.window[0]).done:
            self.window.popleft()
        if len(self.window) >= REMEMBERED_BATCHES:
            return False
        self.window.append(batch)
        batch.base_sequence = <int32_t> self.sequence
        self.sequence = (self.sequence + batch.records_count) & SEQUENCE_MASK
        return True

    def may_leave(self, batch, current):
        """Whether a batch may leave without an epoch; see partition_sender_core.pyi."""
        raise NotImplementedError

    cpdef object accepted(self, batch):
        """The broker has appended a batch; see partition_sender_core.pyi."""
        self.in_flight.remove(batch)
        self.failures = 0
        self.last_error = None
        self.proven = self.leader
        if self.returned_batches:
            self.requeue()

    def requeue(self):
        """Put returned batches back; see partition_sender_core.pyi."""
        raise NotImplementedError
