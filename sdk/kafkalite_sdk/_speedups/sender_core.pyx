# cython: nonecheck=True
"""The steps of a producer that each request needs: choose batches, encode them, acknowledge them.

`kafkalite_sdk.producer.sender` completes `SenderCore` with everything that follows errors, and states its invariants.
"""

cimport cython

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t

from math import inf

from kafkalite_sdk._speedups.deliveries cimport ProducerBatch
from kafkalite_sdk._speedups.partition_sender_core cimport PartitionSenderCore

from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.protocol.schema import ZERO_UUID

__all__ = ["ProduceCall", "SenderCore"]

cdef enum:
    NO_LEADER = -1
    NO_ERROR = 0
    DUPLICATE_SEQUENCE_NUMBER = 46

cdef object produce_request = ProduceRequest.of
cdef object topic_data = ProduceRequest.TopicProduceData.of
cdef object partition_data = ProduceRequest.TopicProduceData.PartitionProduceData.of


@cython.final
@cython.freelist(16)
cdef class ProduceCall:
    """A request to one broker, and its batches; see sender_core.pyi."""
    cdef readonly int32_t node
    cdef readonly double created_s
    cdef readonly Py_ssize_t size
    cdef readonly dict topics
    cdef readonly list batches

    def __cinit__(self, int32_t node, double created_s):
        self.node = node
        self.created_s = created_s
        self.topics = {}
        self.batches = []

    cdef int add(self, PartitionSenderCore partition, ProducerBatch batch, bytes data) except -1:
        cdef list partitions = self.topics.get(batch.topic)
        if partitions is None:
            partitions = self.topics[batch.topic] = []
        partitions.append(partition_data(batch.partition, data))
        self.batches.append((partition, batch))
        self.size += PyBytes_GET_SIZE(data)
        return 0

    def request(self, int acks, int32_t timeout_ms, transactional_id=None):
        """The message; see sender_core.pyi."""
        topics = [topic_data(topic, ZERO_UUID, partitions) for topic, partitions in self.topics.items()]
        return produce_request(transactional_id, acks, timeout_ms, topics)


cdef class SenderCore:
    """Which batches leave, and the end of those that are accepted; see sender_core.pyi."""
    cdef readonly object accumulator
    cdef readonly object settings
    cdef readonly object stages
    cdef public object producer_id
    cdef public bint needs_producer_id
    cdef public int acknowledged
    cdef public int64_t records_acknowledged
    cdef public dict waiting
    cdef readonly dict open_calls
    cdef dict open_by_node
    cdef public object closed_by
    cdef public dict unconfirmed
    cdef public object confirmed
    cdef public int version_max
    cdef public double next_wake
    cdef bint transactional
    cdef int max_in_flight
    cdef Py_ssize_t max_request_bytes
    cdef double delivery_timeout_s
    cdef object codec
    cdef object level
    cdef object ready
    cdef object complete

    def __init__(self, accumulator, settings, producer_id, stages=None):
        self.accumulator = accumulator
        self.stages = stages
        self.settings = settings
        self.producer_id = producer_id
        self.transactional = settings.transactional_id is not None
        self.needs_producer_id = settings.idempotent and not self.transactional
        self.unconfirmed = {}
        self.waiting = {}
        self.open_calls = {}
        self.open_by_node = {}
        self.next_wake = inf
        self.max_in_flight = settings.max_in_flight
        self.max_request_bytes = settings.max_request_bytes
        self.delivery_timeout_s = settings.delivery_timeout_s
        self.codec = settings.codec
        self.level = settings.level
        self.ready = accumulator.ready
        self.complete = accumulator.complete

    @property
    def open_requests(self):
        return len(self.open_calls)

    def requests(self, double now):
        """The requests that leave now; see sender_core.pyi."""
        cdef ProduceCall call
        cdef dict waiting
        cdef int count
        while self.ready:
            queue = self.ready.popleft()
            self.admit(self.new_partition(queue) if queue.sender is None else queue.sender)
        for node, waiting in list(self.waiting.items()):
            if node == NO_LEADER:
                continue
            while waiting and (count := self.open_by_node.get(node, 0)) < self.max_in_flight:
                call = ProduceCall.__new__(ProduceCall, node, now)
                self.fill(call, waiting, now)
                if not call.batches:
                    break
                self.open_by_node[node] = count + 1
                self.open_calls[call] = None
                yield call

    cpdef object admit(self, PartitionSenderCore partition):
        """Let a partition wait for its leader; see sender_core.pyi."""
        cdef dict waiting
        cdef double deadline
        if self.closed_by is not None or partition.closed_by is not None:
            self.fail_unsent(partition)
        elif partition.full:
            if partition.leader == NO_LEADER:
                self.find_leader(partition)
            waiting = self.waiting.get(partition.leader)
            if waiting is None:
                waiting = self.waiting[partition.leader] = {}
            if partition.waits_in is not None:
                partition.waits_in.pop(partition, None)  # of its former leader
            partition.waits_in = waiting
            waiting[partition] = None
            deadline = (<ProducerBatch> partition.full[0]).created_s + self.delivery_timeout_s
            if deadline < self.next_wake:
                self.next_wake = deadline
            if partition.failures and partition.retry_at < self.next_wake:
                self.next_wake = partition.retry_at

    cdef int fill(self, ProduceCall call, dict waiting, double now) except -1:
        """Add a batch of each waiting partition, as many as fit. A partition that waits for a response is removed."""
        cdef PartitionSenderCore partition
        for partition in list(waiting):
            if (
                partition.full and call.size
                and call.size + (<ProducerBatch> partition.full[0]).builder.size > self.max_request_bytes
            ):
                continue
            if self.transactional and not self.may_send(partition):
                continue
            batch = partition.take(self.producer_id, now) if partition.full else None
            if partition.needs_epoch and partition.producer_id == self.producer_id:
                self.needs_producer_id = True
            if batch is not None:
                self.add(call, partition, batch)
            if partition.in_flight or not partition.full:
                del waiting[partition]
            if batch is not None and partition.full:
                waiting[partition] = None  # behind the others
        return 0

    cdef bint may_send(self, PartitionSenderCore partition) except -1:
        """Whether batches of a partition may leave in the open transaction. Each epoch has its own sequences."""
        if self.confirmed is not None and partition not in self.confirmed:
            self.unconfirmed[partition] = None
            return False
        if partition.producer_id is not self.producer_id:
            partition.needs_epoch = True
        return True

    cdef int add(self, ProduceCall call, PartitionSenderCore partition, ProducerBatch batch) except -1:
        """Add a batch to a request; one that cannot be compressed or that an interceptor rejects fails."""
        producer_id, epoch = partition.producer_id
        try:
            data = batch.builder.build(
                self.codec,
                self.level,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=batch.base_sequence,
                transactional=self.transactional,
            )
            if self.stages is not None:
                self.stages.before_send(batch, data)
        except Exception as error:
            self.fail_rejected(partition, batch, error)
            return 0
        return call.add(partition, batch, data)

    def answered(self, ProduceCall call not None, response, double now):
        """End the batches of a request by its response; see sender_core.pyi."""
        cdef PartitionSenderCore partition
        cdef ProducerBatch batch
        cdef object outcomes = None
        self.close_call(call)
        for partition, batch in call.batches:
            outcome = only_outcome(response, batch)
            if outcome is None:
                outcomes = outcomes_of(response) if outcomes is None else outcomes
                outcome = outcomes.get((batch.topic, batch.partition))
            if outcome is not None and (
                outcome.error_code == NO_ERROR or outcome.error_code == DUPLICATE_SEQUENCE_NUMBER
            ):
                partition.accepted(batch)
                self.acknowledge(batch, outcome.base_offset, outcome.log_append_time_ms)
            else:
                self.not_accepted(call, partition, batch, outcome, now)
            if partition.full or self.closed_by is not None:
                self.admit(partition)

    cpdef object close_call(self, ProduceCall call):
        """A request has ended; see sender_core.pyi."""
        self.open_by_node[call.node] -= 1
        del self.open_calls[call]

    cpdef object acknowledge(self, ProducerBatch batch, int64_t base_offset, int64_t log_append_time_ms):
        """Complete a batch, unless its records have failed at their deadline; see sender_core.pyi."""
        if batch.done:
            return
        self.acknowledged += 1
        self.records_acknowledged += batch.records_count
        self.complete(batch, base_offset, log_append_time_ms)
        if self.stages is not None:
            self.stages.ended(batch, None)

    def new_partition(self, queue):
        """Create the sender of a queue; see sender_core.pyi."""
        raise NotImplementedError

    def find_leader(self, partition):
        """Look up a leader; see sender_core.pyi."""
        raise NotImplementedError

    def fail_unsent(self, partition):
        """Fail batches that do not leave; see sender_core.pyi."""
        raise NotImplementedError

    def fail_rejected(self, partition, batch, error):
        """Fail a batch that was taken; see sender_core.pyi."""
        raise NotImplementedError

    def not_accepted(self, call, partition, batch, outcome, now):
        """A broker has not accepted a batch; see sender_core.pyi."""
        raise NotImplementedError

    def earliest_wake(self, now):
        """When something is due, exactly; see sender_core.pyi."""
        raise NotImplementedError

    def wake_at(self, double now):
        """When something is due; see sender_core.pyi."""
        if self.next_wake <= now:
            self.next_wake = self.earliest_wake(now)
        return self.next_wake


cdef object only_outcome(response, ProducerBatch batch):
    """The outcome of a batch in a response for one partition; None = it has more, or another one."""
    cdef list topics = response.responses
    cdef list partitions
    if len(topics) == 1 and topics[0].name == batch.topic:
        partitions = topics[0].partition_responses
        if len(partitions) == 1 and partitions[0].index == batch.partition:
            return partitions[0]
    return None


cdef dict outcomes_of(response):
    """The outcomes of a response by topic and partition."""
    return {(topic.name, each.index): each for topic in response.responses for each in topic.partition_responses}
