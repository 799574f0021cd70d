"""Which batches of a producer leave, in which requests, and what their responses mean.

Pure: no I/O, no clock; randomness is a parameter. The driver (`dispatcher`) sends the requests of `requests`, reports
their ends, asks for the metadata of `needs_metadata` and, when `needs_producer_id` is set, for an identity, and calls
`expire` and `requests` again at `wake_at`.

Invariants:
1. Each batch ends once: acknowledged, or failed with the error that a user sees.
2. A request has at most one batch per partition, and at most `max_request_bytes` unless it has a single batch.
3. Each broker has at most `max_in_flight` open requests. A partition without a leader delays no other partition.
Sources: Sender.java and TransactionManager.java of Apache Kafka 4.3.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from math import inf

from kafkalite.errors import DecodeError, KafkaError, KafkaErrorCode, KafkaTimeoutError, error_class, error_for
from kafkalite.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkalite_sdk._speedups.accumulator import PartitionQueue, RecordAccumulator
from kafkalite_sdk._speedups.deliveries import ProducerBatch
from kafkalite_sdk.client.cluster_view import NO_LEADER
from kafkalite_sdk.producer.partition_sender import NO_PRODUCER_ID, SEQUENCE_MASK, PartitionSender, ProducerId
from kafkalite_sdk.producer.settings import ProducerSettings

PartitionResponse = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
TopicData = ProduceRequest.TopicProduceData

NONE, DUPLICATE = KafkaErrorCode.NONE, KafkaErrorCode.DUPLICATE_SEQUENCE_NUMBER
TOO_LARGE = (KafkaErrorCode.MESSAGE_TOO_LARGE, KafkaErrorCode.RECORD_LIST_TOO_LARGE)
OUT_OF_ORDER = KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
MAYBE_APPENDED = (
    KafkaErrorCode.REQUEST_TIMED_OUT,
    KafkaErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaErrorCode.KAFKA_STORAGE_ERROR,
)
SEQUENCE_LOST = (OUT_OF_ORDER, KafkaErrorCode.UNKNOWN_PRODUCER_ID, KafkaErrorCode.INVALID_PRODUCER_EPOCH)


class ProduceCall:
    """A request to one broker, and its batches.

    Attributes:
        node: broker id.
        topics: data of the partitions by topic.
        batches: partition and batch, in the order of the request.
    """

    __slots__ = ("batches", "node", "size", "topics")

    def __init__(self, node: int) -> None:
        self.node = node
        self.topics: dict[str, list[TopicData.PartitionProduceData]] = {}
        self.batches: list[tuple[PartitionSender, ProducerBatch]] = []
        self.size = 0

    def add(self, partition: PartitionSender, batch: ProducerBatch, data: bytes) -> None:
        """Add the encoded batch of a partition."""
        queue = partition.queue
        self.topics.setdefault(queue.topic, []).append(
            TopicData.PartitionProduceData(index=queue.partition, records=data)
        )
        self.batches.append((partition, batch))
        self.size += len(data)


class Sender:
    """Decides what a producer sends.

    Arguments:
        accumulator: the unsent records.
        settings: of the producer.
        leader_of: broker id of the leader of a topic's partition; NO_LEADER = none is known.
        random: returns a number from 0 to below 1; spreads retries.
        failed: called with each batch that has failed.

    Attributes:
        producer_id: the identity; NO_PRODUCER_ID = none yet.
        needs_producer_id: the driver must get an identity, or a newer epoch of `producer_id`.
        needs_metadata: topics of which a leader is unknown or wrong.
        acknowledged, retried, divided: number of batches.
        records_acknowledged: number of records.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        settings: ProducerSettings,
        leader_of: Callable[[str, int], int],
        random: Callable[[], float],
        failed: Callable[[ProducerBatch], object],
    ) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.needs_producer_id = settings.idempotent
        self.needs_metadata: set[str] = set()
        self.acknowledged = 0
        self.records_acknowledged = 0
        self.retried = 0
        self.divided = 0
        self._accumulator = accumulator
        self._settings = settings
        self._leader_of = leader_of
        self._random = random
        self._failed = failed
        self._partitions: dict[tuple[str, int], PartitionSender] = {}
        self._waiting: dict[int, dict[PartitionSender, None]] = {}  # by leader, in the order in which they are served
        self._open_requests: dict[int, int] = {}
        self._closed_by: BaseException | None = None
        self._wake_at = inf  # never later than the first deadline or end of a back-off

    @property
    def open_requests(self) -> int:
        """Number of requests without a response."""
        return sum(self._open_requests.values())

    @property
    def idle(self) -> bool:
        """Whether no full batch is unsent or open."""
        return not self._accumulator.ready and not any(self._waiting.values()) and not any(self._open_requests.values())

    def requests(self, now: float) -> Iterator[ProduceCall]:
        """Yield the requests that leave now.

        Arguments:
            now: in seconds of the loop's clock.
        """
        ready, open_requests, max_in_flight = self._accumulator.ready, self._open_requests, self._settings.max_in_flight
        while ready:
            queue = ready.popleft()
            partition = queue.sender
            self._admit(partition if isinstance(partition, PartitionSender) else self._new_partition(queue))
        for node, waiting in list(self._waiting.items()):
            if node == NO_LEADER:
                continue
            while waiting and (count := open_requests.get(node, 0)) < max_in_flight:
                call = self._fill(ProduceCall(node), waiting, now)
                if not call.batches:
                    break
                open_requests[node] = count + 1
                yield call

    def _new_partition(self, queue: PartitionQueue) -> PartitionSender:
        settings = self._settings
        partition = PartitionSender(queue, settings.max_in_flight, idempotent=settings.idempotent)
        self._partitions[queue.topic, queue.partition] = queue.sender = partition
        return partition

    def _admit(self, partition: PartitionSender) -> None:
        """Let a partition wait for its leader if it has batches to send."""
        queue = partition.queue
        if self._closed_by is not None:
            while queue.full:
                self._fail(queue.full.popleft(), self._closed_by)
        elif queue.full:
            if partition.leader == NO_LEADER:
                self._find_leader(partition)
            waiting = self._waiting.get(partition.leader)
            if waiting is None:
                waiting = self._waiting[partition.leader] = {}
            if partition.waits_in is not None:
                partition.waits_in.pop(partition, None)  # of its former leader
            partition.waits_in = waiting
            waiting[partition] = None
            deadline = queue.full[0].created_s + self._settings.delivery_timeout_s
            if deadline < self._wake_at:
                self._wake_at = deadline
            if partition.failures and partition.retry_at < self._wake_at:
                self._wake_at = partition.retry_at

    def _find_leader(self, partition: PartitionSender) -> None:
        queue = partition.queue
        partition.leader = self._leader_of(queue.topic, queue.partition)
        if partition.leader == NO_LEADER:
            self.needs_metadata.add(queue.topic)

    def _fill(self, call: ProduceCall, waiting: dict[PartitionSender, None], now: float) -> ProduceCall:
        """Add a batch of each waiting partition, as many as fit. A partition that waits for a response is removed."""
        for partition in list(waiting):
            full = partition.queue.full
            if full and call.size and call.size + full[0].builder.size > self._settings.max_request_bytes:
                continue
            batch = partition.take(self.producer_id, now) if full else None
            if partition.needs_epoch and partition.producer_id == self.producer_id:
                self.needs_producer_id = True
            if batch is not None:
                self._add(call, partition, batch)
            if partition.in_flight or not full:
                del waiting[partition]
            if batch is not None and full:
                waiting[partition] = None  # behind the others
        return call

    def _add(self, call: ProduceCall, partition: PartitionSender, batch: ProducerBatch) -> None:
        """Add a batch to a request; one that cannot be compressed fails."""
        identity = partition.producer_id
        try:
            data = batch.builder.build(
                self._settings.codec,
                self._settings.level,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=batch.base_sequence,
            )
        except Exception as error:
            partition.rejected(batch)
            self._fail(batch, error)
        else:
            call.add(partition, batch, data)

    def compressed(self, batch: ProducerBatch) -> None:
        """A thread has compressed a batch; `requests` sends it."""
        batch.compressing = False
        partition = self._partitions.get((batch.topic, batch.partition))
        if partition is not None:
            self._admit(partition)

    def set_producer_id(self, identity: ProducerId) -> None:
        """Take over a new identity, or a newer epoch."""
        self.producer_id = identity
        self.needs_producer_id = False

    def leaders_changed(self) -> None:
        """Metadata has arrived: look up all leaders again."""
        self.needs_metadata.clear()
        waiting, self._waiting = self._waiting, {}
        for partition in list(chain.from_iterable(waiting.values())):
            partition.leader = NO_LEADER
            self._admit(partition)

    def topic_recreated(self, topic: str) -> None:
        """A topic was deleted and created again: the broker has forgotten all sequences of its partitions."""
        for partition in self._partitions.values():
            if partition.queue.topic == topic:
                partition.needs_epoch = self._settings.idempotent

    def fail_topic(self, topic: str, error: BaseException, first_partition: int = 0) -> None:
        """Fail the unsent full batches of a topic.

        Arguments:
            topic: its name.
            error: what the records fail with.
            first_partition: batches of lower partitions are kept.
        """
        for (name, number), partition in self._partitions.items():
            if name == topic and number >= first_partition:
                for batch in partition.expired(inf, 0.0):
                    self._fail(batch, error)

    def sent(self, call: ProduceCall) -> None:
        """A request without a response (acks=0) was written."""
        self._close(call)
        for partition, batch in call.batches:
            partition.accepted(batch)
            self._acknowledge(batch, -1, -1)
            self._admit(partition)

    def answered(self, call: ProduceCall, response: ProduceResponse, now: float) -> None:
        """The response to a request has arrived.

        Arguments:
            call: the request.
            response: its response.
            now: in seconds of the loop's clock.
        """
        self._close(call)
        outcomes = {
            (topic.name, each.index): each for topic in response.responses for each in topic.partition_responses
        }
        for partition, batch in call.batches:
            outcome = outcomes.get((partition.queue.topic, partition.queue.partition))
            if outcome is None:
                batch.in_doubt = True
                self._retry(partition, batch, now)
            else:
                self._end(partition, batch, outcome, now, call.node)
            if partition.queue.full or self._closed_by is not None:
                self._admit(partition)

    def lost(self, call: ProduceCall, error: KafkaError, now: float) -> None:
        """A request has no response: its connection ended, or it timed out.

        Arguments:
            call: the request.
            error: why; one that is not retriable fails the batches. A response that does not parse is a lost one: the
                broker may have appended the batches.
            now: in seconds of the loop's clock.
        """
        self._close(call)
        for partition, batch in call.batches:
            if error.retriable or isinstance(error, DecodeError):
                self.needs_metadata.add(batch.topic)
                batch.in_doubt = True
                self._retry(partition, batch, now)
            else:
                partition.rejected(batch)
                self._fail(batch, self._closed_by or error)
            self._admit(partition)

    def _close(self, call: ProduceCall) -> None:
        self._open_requests[call.node] -= 1

    def _end(
        self, partition: PartitionSender, batch: ProducerBatch, outcome: PartitionResponse, now: float, node: int
    ) -> None:
        """End an attempt to send a batch: complete or retry it, by the response."""
        code = outcome.error_code
        if code in (NONE, DUPLICATE):
            partition.accepted(batch)
            self._acknowledge(batch, outcome.base_offset, outcome.log_append_time_ms)
        elif code in TOO_LARGE and batch.records_count > 1:
            self._split(partition, batch, now)
        elif code in SEQUENCE_LOST and self._settings.idempotent:
            partition.sequence_lost(batch)
            self._retry(partition, batch, now)
        elif (error := _error_of(batch, outcome)).retriable:
            partition.leader = NO_LEADER
            self.needs_metadata.add(batch.topic)
            batch.in_doubt |= code in MAYBE_APPENDED
            moved = self._leader_of(batch.topic, batch.partition) not in (NO_LEADER, node)
            self._retry(partition, batch, now, at_once=moved and not partition.failures)
        else:
            partition.rejected(batch)
            self._fail(batch, error)

    def _split(self, partition: PartitionSender, batch: ProducerBatch, now: float) -> None:
        self.divided += 1
        first, second = halves = self._accumulator.split(batch)
        if batch.base_sequence >= 0:
            first.base_sequence = batch.base_sequence
            second.base_sequence = (batch.base_sequence + first.records_count) & SEQUENCE_MASK
        partition.returned(*halves, instead_of=batch, retry_at=now)

    def _retry(self, partition: PartitionSender, batch: ProducerBatch, now: float, *, at_once: bool = False) -> None:
        """Return a batch to its partition; it leaves again after a back-off, or at once to a leader that is known."""
        self.retried += 1
        settings = self._settings
        pause = min(settings.retry_backoff_s * 2 ** min(partition.failures, 30), settings.retry_backoff_max_s)
        partition.failures += 1
        retry_at = now if at_once else now + pause * (0.8 + 0.4 * self._random())
        partition.returned(batch, instead_of=batch, retry_at=retry_at)
        self._wake_at = min(self._wake_at, retry_at)

    def _acknowledge(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        self.acknowledged += 1
        self.records_acknowledged += batch.records_count
        self._accumulator.complete(batch, base_offset, log_append_time_ms)

    def _fail(self, batch: ProducerBatch, error: BaseException) -> None:
        self._accumulator.fail(batch, error)
        self._failed(batch)

    def expire(self, now: float) -> None:
        """Fail the unsent batches whose delivery timeout has passed; `now` in seconds of the loop's clock."""
        timeout_s = self._settings.delivery_timeout_s
        for partition in list(chain.from_iterable(self._waiting.values())):
            for batch in partition.expired(now, timeout_s):
                queue = partition.queue
                text = f"{queue.topic}-{queue.partition}: not acknowledged in {self._settings.delivery_timeout_s} s"
                self._fail(batch, KafkaTimeoutError(text))

    def wake_at(self, now: float) -> float:
        """Return when `expire` and `requests` may have something to do without a response; infinity = never."""
        if self._wake_at <= now:
            self._wake_at = self._next_wake(now)
        return self._wake_at

    def _next_wake(self, now: float) -> float:
        at = inf
        for partition in chain.from_iterable(self._waiting.values()):
            full = partition.queue.full
            if full and not partition.in_flight:
                at = min(at, full[0].created_s + self._settings.delivery_timeout_s)
                if partition.retry_at > now:
                    at = min(at, partition.retry_at)
        return at

    def close(self, error: BaseException) -> None:
        """Fail all full batches that are not open; the open ones fail instead of being sent again."""
        self._closed_by = error
        ready = self._accumulator.ready
        while ready:
            queue = ready.popleft()
            if queue.sender is None:
                self._new_partition(queue)
        for partition in self._partitions.values():
            self._admit(partition)


def _error_of(batch: ProducerBatch, outcome: PartitionResponse) -> KafkaError:
    """The error of a batch as a user sees it."""
    reasons = (outcome.error_message, *(each.batch_index_error_message for each in outcome.record_errors))
    reason = next(filter(None, reasons), None) or error_class(outcome.error_code).code.message
    return error_for(outcome.error_code, f"{batch.topic}-{batch.partition}: {reason}")
