"""Decides which batches of a producer leave, in which requests, and which fail.

Pure: no I/O, no clock; randomness is a parameter. The driver (`driver`) sends the requests of `requests`, reports
their ends, asks for the metadata of `needs_metadata` and, when `needs_producer_id` is set, for an identity, and calls
`expire` and `requests` again at `wake_at`.

Invariants:
1. Each batch ends once: acknowledged, or failed with the error that a user sees, at its delivery timeout at the latest.
2. A request has at most one batch per partition, and at most `max_request_bytes` unless it has a single batch.
3. Each broker has at most `max_in_flight` open requests. A partition without a leader delays no other partition.
`retries` has what follows from an error: a retry after its back-off, a split, or a failure.
Sources: Sender.java and TransactionManager.java of Apache Kafka 4.3.
"""

from collections.abc import Callable
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Protocol

from kafkalite.errors import KafkaError, KafkaTimeoutError
from kafkalite_sdk._speedups.accumulator import RecordAccumulator
from kafkalite_sdk._speedups.deliveries import ProducerBatch
from kafkalite_sdk._speedups.producer_queues import PartitionQueue
from kafkalite_sdk._speedups.sender_core import ProduceCall, SenderCore
from kafkalite_sdk.client.cluster_view import NO_LEADER
from kafkalite_sdk.producer.partition_sender import NO_PRODUCER_ID, PartitionSender, ProducerId
from kafkalite_sdk.producer.settings import ProducerSettings

if TYPE_CHECKING:
    from kafkalite_sdk.producer.retries import PartitionResponse, Retries


class BatchStages(Protocol):
    """What an application does with sealed batches."""

    def before_send(self, batch: ProducerBatch, data: bytes) -> None:
        """A batch leaves with this data; an exception fails it."""
        ...

    def ended(self, batch: ProducerBatch, error: BaseException | None) -> None:
        """A batch is acknowledged, or its records have failed."""
        ...


class Sender(SenderCore):
    """Decides what a producer sends.

    Arguments:
        accumulator: the unsent records.
        settings: of the producer.
        leader_of: broker id of the leader of a topic's partition; NO_LEADER = none is known.
        random: returns a number from 0 to below 1; spreads retries.
        failed: called with each batch that has failed.
        unreachable: returns why no broker is reachable; None = one is.
        stages: called with each batch that leaves or is acknowledged; None = the application has none.

    Attributes:
        producer_id: the identity; NO_PRODUCER_ID = none yet.
        needs_producer_id: the driver must get an identity, or a newer epoch of `producer_id`.
        needs_metadata: topics of which a leader is unknown or wrong.
        acknowledged: number of batches.
        records_acknowledged: number of records.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        settings: ProducerSettings,
        leader_of: Callable[[str, int], int],
        random: Callable[[], float],
        failed: Callable[[ProducerBatch], object],
        unreachable: Callable[[], KafkaError | None] = lambda: None,
        stages: BatchStages | None = None,
    ) -> None:
        super().__init__(accumulator, settings, NO_PRODUCER_ID, stages)
        self.needs_metadata: set[str] = set()
        self._leader_of = leader_of
        self._random = random
        self._retries: Retries | None = None
        self._failed = failed
        self._unreachable = unreachable
        self._forgotten_in = NO_PRODUCER_ID  # the identity whose sequences of some partitions are forgotten

    @property
    def retries(self) -> "Retries":
        """What follows when a broker does not accept a batch."""
        if self._retries is None:
            from kafkalite_sdk.producer.retries import Retries  # a first import of the SDK does not need it

            self._retries = Retries(self, self.needs_metadata, self._leader_of, self._random)
        return self._retries

    @property
    def retried(self) -> int:
        """Number of batches that were sent again."""
        return 0 if self._retries is None else self._retries.retried

    @property
    def divided(self) -> int:
        """Number of batches that were split."""
        return 0 if self._retries is None else self._retries.divided

    def not_accepted(
        self,
        call: ProduceCall,
        partition: PartitionSender,
        batch: ProducerBatch,
        outcome: "PartitionResponse | None",
        now: float,
    ) -> None:
        """End an attempt to send a batch that has failed.

        Arguments: as of `Retries.not_accepted`.
        """
        self.retries.not_accepted(call, partition, batch, outcome, now)

    @property
    def idle(self) -> bool:
        """Whether no full batch is unsent or open."""
        return not self.accumulator.ready and not any(self.waiting.values()) and not self.open_calls

    def new_partition(self, queue: PartitionQueue) -> PartitionSender:
        """Create the sender of a queue."""
        settings = self.settings
        partition = PartitionSender(queue, settings.max_in_flight, idempotent=settings.idempotent)
        if self.producer_id == self._forgotten_in != NO_PRODUCER_ID:
            partition.producer_id, partition.needs_epoch = self.producer_id, True
        queue.sender = partition
        return partition

    def _sender_of(self, queue: PartitionQueue) -> PartitionSender:
        sender: PartitionSender | None = queue.sender
        return self.new_partition(queue) if sender is None else sender

    def fail_unsent(self, partition: PartitionSender) -> None:
        """Fail the full batches of a partition: it is closed, or the whole sender."""
        error = partition.closed_by or self.closed_by
        assert error is not None
        while partition.full:
            self._fail(partition.full.popleft(), error)

    def find_leader(self, partition: PartitionSender) -> None:
        """Look up the leader of a partition; without one, its metadata is needed."""
        queue = partition.queue
        partition.leader = self._leader_of(queue.topic, queue.partition)
        if partition.leader == NO_LEADER:
            self.needs_metadata.add(queue.topic)

    def fail_rejected(self, partition: PartitionSender, batch: ProducerBatch, error: BaseException) -> None:
        """Fail a batch that was taken, and is given up."""
        partition.rejected(batch)
        self._fail(batch, error)

    def compressed(self, batch: ProducerBatch) -> None:
        """A thread has compressed a batch; `requests` sends it."""
        batch.compressing = False
        if batch.queue is not None and batch.queue.sender is not None:
            self.admit(batch.queue.sender)

    def set_producer_id(self, identity: ProducerId) -> None:
        """Take over a new identity, or a newer epoch."""
        self.producer_id = identity
        self.needs_producer_id = False

    def leaders_changed(self) -> None:
        """Metadata has arrived: look up all leaders again."""
        self.needs_metadata.clear()
        waiting, self.waiting = self.waiting, {}
        for partition in list(chain.from_iterable(waiting.values())):
            partition.leader = NO_LEADER
            self.admit(partition)

    def topic_recreated(self, topic: str) -> None:
        """A topic was deleted and created again: the broker has forgotten all sequences of its partitions."""
        for queue in self.accumulator.partitions_of(topic) or ():
            self._sender_of(queue).needs_epoch = self.settings.idempotent

    def forget_topic(self, topic: str) -> bool:
        """Forget a topic that has no records, unless it has open requests; return whether it is forgotten.

        The broker may remember sequences of its partitions, so a partition that is used afterwards begins an epoch.
        """
        queues = self.accumulator.partitions_of(topic) or ()
        if any(queue.sender is not None and queue.sender.in_flight for queue in queues):
            return False
        self.accumulator.forget_topic(topic)
        self.needs_metadata.discard(topic)
        if self.settings.idempotent:
            self._forgotten_in = self.producer_id
        return True

    def partitions_removed(self, queues: list[PartitionQueue], error: BaseException) -> None:
        """Fail the unsent batches of partitions that no longer exist; the open ones fail instead of being sent again.

        Arguments:
            queues: what `RecordAccumulator.remove_partitions` has returned.
            error: what the records fail with.
        """
        for queue in queues:
            partition = self._sender_of(queue)
            partition.closed_by = error
            self.admit(partition)

    def fail_topic(self, topic: str, error: BaseException) -> None:
        """Fail the unsent full batches of a topic with an error."""
        for queue in self.accumulator.partitions_of(topic) or ():
            partition = self._sender_of(queue)
            if not partition.in_flight:
                for batch in partition.take_expired(inf, 0.0):
                    self._fail(batch, error)

    def sent(self, call: ProduceCall) -> None:
        """A request without a response (acks=0) was written."""
        self.close_call(call)
        for partition, batch in call.batches:
            partition.accepted(batch)
            self.acknowledge(batch, -1, -1)
            self.admit(partition)

    def _fail(self, batch: ProducerBatch, error: BaseException) -> None:
        """Fail a batch, unless its records have failed at their deadline."""
        if batch.done:
            return
        self.accumulator.fail(batch, self.error_of_records(error))
        self._failed(batch)

    def error_of_records(self, error: BaseException) -> BaseException:
        """Return the error that users of a failed batch see."""
        return error

    def expire(self, now: float) -> None:
        """Fail the batches whose delivery timeout has passed; `now` in seconds of the loop's clock."""
        timeout_s = self.settings.delivery_timeout_s
        for queue in self.accumulator.queues_of_incomplete(now, timeout_s):
            partition = self._sender_of(queue)
            for batch in partition.take_expired(now, timeout_s):
                text = f"{batch.topic}-{batch.partition}: not acknowledged in {timeout_s:g} s"
                self._fail(batch, KafkaTimeoutError(f"{text}: {self._cause(partition)}"))

    def _cause(self, partition: PartitionSender) -> object:
        """What the batches of a partition wait for, or why the last attempt has failed."""
        if partition.leader == NO_LEADER:
            return "the partition has no leader"
        if partition.last_error is not None:
            return partition.last_error
        if partition.in_flight:
            return f"broker {partition.leader} has not answered"
        if self.needs_producer_id:
            reason = self._unreachable()
            return f"no broker has assigned a producer id{'' if reason is None else f': {reason}'}"
        return f"broker {partition.leader} has not answered earlier requests"

    def earliest_wake(self, now: float) -> float:
        """Return the first deadline or end of a back-off; infinity = there is none."""
        at: float = self.accumulator.oldest_created_s() + self.settings.delivery_timeout_s
        for partition in chain.from_iterable(self.waiting.values()):
            if partition.queue.full and not partition.in_flight and partition.retry_at > now:
                at = min(at, partition.retry_at)
        return at

    def abort(self, error: BaseException) -> None:
        """Fail all batches, those of open requests, too: nothing is sent any more."""
        for queue in self.accumulator.queues_of_incomplete(inf, 0.0):
            for batch in self._sender_of(queue).take_expired(inf, 0.0):
                self._fail(batch, error)

    def close(self, error: BaseException) -> None:
        """Fail all batches that are not in flight; those that are fail instead of being sent again."""
        self.closed_by = error
        for queue in self.accumulator.queues_of_incomplete(inf, 0.0):
            self.admit(self._sender_of(queue))
        self.accumulator.ready.clear()
