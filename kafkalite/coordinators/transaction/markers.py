"""Sends the markers of decided transactions to their partitions, until all have them, and then completes the decision.

1. A transaction is sent once its decision is committed. It ends here when each of its partitions has the marker or does
   not exist any more: `markers_written` is submitted to its machine, once.
2. Partitions of this broker are written immediately, without a request. Each other broker has one WriteTxnMarkers
   request in flight; what is sent meanwhile waits, and leaves as the next request, for many transactions.
3. A request that fails is repeated after a pause that grows from 50 ms to 1 s, with jitter; only the transactions with
   partitions on this broker wait. A partition that rejects the marker is repeated after a pause of its transaction.
   The leader is read again each time. Partitions without a live leader wait for another image.
4. A partition that the image does not have is looked up in the tree: the image of a new coordinator may be older than
   the transaction. If it does not exist there, it was deleted.
5. A transaction that is sent again, because its shard was loaded again, replaces the earlier one. `forget` ends all
   transactions of a shard. Their late results are ignored.
6. TRANSACTION_COORDINATOR_FENCED: another broker is the coordinator, so the transaction is not sent any more.

Deviation: INVALID_PRODUCER_EPOCH means that the partition has a newer epoch, so that this transaction has ended there;
Kafka stops to send the transaction, which then stays prepared until the coordinator moves (KAFKA-19999).
Source: TransactionMarkerChannelManager.scala, TransactionMarkerRequestCompletionHandler.scala of Apache Kafka.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from kafkalite.backoff import Backoff
from kafkalite.callbacks import Completion
from kafkalite.clock import Clock, Random, Timer
from kafkalite.cluster.broker_peers import CallDone, CallResult
from kafkalite.cluster.metadata.image import ClusterImage
from kafkalite.cluster.replicas import Replicas
from kafkalite.coordinators.transaction.marker_requests import errors_of, request_for
from kafkalite.coordinators.transaction.sent_transactions import BrokerQueue, Partitions, SentTransaction, extend
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.schema import Request
from kafkalite.records.control import TransactionMarker
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.transactions.requests import SendMarkers

LOGGER = logging.getLogger("kafkalite.coordinators")
RETRY_S, RETRY_MAX_S = 0.05, 1.0
RANDOM_STEPS = 1 << 20
DISPATCHED_AT_ONCE = 2_000  # partitions of a transaction in one loop iteration, about a millisecond
LOG_EACH = 60  # failures in a row, about a minute
DONE = frozenset(
    {
        KafkaErrorCode.NONE,
        KafkaErrorCode.INVALID_PRODUCER_EPOCH,
        KafkaErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
RETRIED = frozenset(
    {
        KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaErrorCode.NOT_LEADER_OR_FOLLOWER,
        KafkaErrorCode.NOT_ENOUGH_REPLICAS,
        KafkaErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaErrorCode.REQUEST_TIMED_OUT,
        KafkaErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class BrokerCalls(Protocol):
    """Calls to the other brokers (`cluster.broker_peers`)."""

    def call(self, broker_id: int, request: Request, then: CallDone, *, version_max: int | None = None) -> None: ...


class Writer(Protocol):
    """Writes markers to partitions of this broker (`server.hosting.marker_writer`)."""

    def write(
        self,
        marker: TransactionMarker,
        partitions: Iterable[TopicPartition],
        then: Callable[[dict[TopicPartition, int]], object],
    ) -> None: ...


class MarkerHost(Protocol):
    """The broker, as markers need it. `peers` None: it is alone."""

    broker_id: int
    random: Random
    replicas: Replicas

    @property
    def clock(self) -> Clock: ...

    @property
    def image(self) -> ClusterImage: ...

    @property
    def peers(self) -> BrokerCalls | None: ...

    @property
    def marker_writer(self) -> Writer: ...

    def count_partitions(self, topic: str, then: Callable[[int], object]) -> None:
        """Call `then` with the number of partitions of a topic in the tree, 0 = it does not exist."""


class TransactionMachineCommands(Protocol):
    """The part of the machine that is called."""

    def markers_written(self, transactional_id: str, producer_id: int, epoch: int, now: Now) -> Effects: ...


Submit = Callable[[int, Callable[[Any, Token, Now], Effects], Completion[object]], object]


class MarkerSender:
    """Sends markers for all shards of this broker.

    Arguments:
        host: the broker.
        submit: submits a command to a shard of `__transaction_state`, as `CoordinatorRuntime.submit`.
        level: returns the finalized `transaction.version`; 0: other brokers have WriteTxnMarkers 1.
    """

    def __init__(self, host: MarkerHost, submit: Submit, level: Callable[[], int]) -> None:
        self._host = host
        self._submit = submit
        self._level = level
        self._backoff = Backoff(RETRY_S, RETRY_MAX_S, lambda: host.random.below(RANDOM_STEPS) / RANDOM_STEPS)
        self._sent: dict[int, dict[str, SentTransaction]] = {}
        self._queues: dict[int, BrokerQueue] = {}
        self._without_leader: Partitions = {}
        self._lookups: dict[str, Partitions] = {}  # by topic: wait for the tree
        self._closed = False

    def __len__(self) -> int:
        """The number of transactions that are not complete."""
        return sum(map(len, self._sent.values()))

    def send(self, state_partition: int, request: SendMarkers, coordinator_epoch: int) -> None:
        """Write the markers of a transaction whose decision is committed.

        Arguments:
            state_partition: of `__transaction_state`.
            request: of its machine.
            coordinator_epoch: the leader epoch of `state_partition`.
        """
        if self._closed:
            return
        transaction = SentTransaction(state_partition, request, coordinator_epoch)
        of_shard = self._sent.setdefault(state_partition, {})
        if (before := of_shard.get(request.transactional_id)) is not None:
            before.stop_timer()
        of_shard[request.transactional_id] = transaction
        if transaction.left:
            few = len(transaction.left) <= DISPATCHED_AT_ONCE
            self._dispatch_next(transaction, sorted(transaction.left) if few else list(transaction.left))
        else:
            self._complete(transaction)

    def _dispatch_next(self, transaction: SentTransaction, partitions: list[TopicPartition]) -> None:
        """Dispatch some partitions of a new transaction, and the others in later loop iterations."""
        others = partitions[DISPATCHED_AT_ONCE:]
        self._dispatch({transaction: partitions[:DISPATCHED_AT_ONCE]})
        if others:
            self._host.clock.call_at(self._host.clock.monotonic(), self._dispatch_others, transaction, others)

    def _dispatch_others(self, transaction: SentTransaction, partitions: list[TopicPartition]) -> None:
        if self._is_current(transaction):
            self._dispatch_next(transaction, partitions)
            self._host.replicas.write_pending()

    def forget(self, state_partition: int) -> None:
        """Send no markers of a shard any more: its machine was dropped."""
        for transaction in self._sent.pop(state_partition, {}).values():
            transaction.stop_timer()

    def image_changed(self) -> None:
        """Leaders or brokers have changed: partitions that wait are sent to their present leaders."""
        waiting, self._without_leader = self._without_leader, {}
        for queue in self._queues.values():
            if queue.timer is not None:
                extend(waiting, queue.waiting)
                queue.waiting = {}
        for of_shard in self._sent.values():
            for transaction in of_shard.values():
                if transaction.delayed:
                    extend(waiting, {transaction: transaction.stop_timer()})
        self._dispatch(waiting)

    def close(self) -> None:
        """Send nothing any more."""
        self._closed = True
        for state_partition in list(self._sent):
            self.forget(state_partition)
        for queue in self._queues.values():
            if queue.timer is not None:
                queue.timer.cancel()

    # partitions and their leaders

    def _is_current(self, transaction: SentTransaction) -> bool:
        of_shard = self._sent.get(transaction.state_partition, {})
        return of_shard.get(transaction.request.transactional_id) is transaction

    def _end(self, transaction: SentTransaction) -> None:
        """Send a transaction no more, unless a later one has replaced it."""
        transaction.stop_timer()
        if self._is_current(transaction):
            del self._sent[transaction.state_partition][transaction.request.transactional_id]

    def _dispatch(self, waiting: Partitions) -> None:
        """Give partitions to the writer, to the queues of their leaders, or let them wait."""
        own: Partitions = {}
        brokers: dict[int, BrokerQueue] = {}
        for transaction, partitions in waiting.items():
            if self._is_current(transaction):
                self._distribute(transaction, partitions, own, brokers)
        for broker_id, queue in brokers.items():
            self._send_next(broker_id, queue)
        for transaction, partitions in own.items():
            self._host.marker_writer.write(transaction.marker, partitions, partial(self._use_errors, transaction))

    def _distribute(
        self,
        transaction: SentTransaction,
        partitions: Sequence[TopicPartition],
        own: Partitions,
        brokers: dict[int, BrokerQueue],
    ) -> None:
        """Add partitions to `own` or to the queues of `brokers`, or let them wait."""
        image = self._host.image
        for each in partitions:
            topic = image.topics.get(each.topic)
            state = None if topic is None else topic.partition(each.partition)
            if state is None:
                self._look_up(transaction, each)
            elif state.leader == self._host.broker_id:
                own.setdefault(transaction, []).append(each)
            elif state.leader in image.brokers.ids:
                queue = brokers[state.leader] = self._queues.setdefault(state.leader, BrokerQueue())
                queue.waiting.setdefault(transaction, []).append(each)
            else:
                self._without_leader.setdefault(transaction, []).append(each)

    def _look_up(self, transaction: SentTransaction, partition: TopicPartition) -> None:
        lookup = self._lookups.get(partition.topic)
        if lookup is not None:
            lookup.setdefault(transaction, []).append(partition)
            return
        self._lookups[partition.topic] = {transaction: [partition]}
        self._host.clock.call_at(self._host.clock.monotonic(), self._count, partition.topic)

    def _count(self, topic: str) -> None:
        if not self._closed:
            self._host.count_partitions(topic, partial(self._counted, topic))

    def _counted(self, topic: str, count: int) -> None:
        """Partitions that exist in the tree wait for the image, unless it has them by now; the others were deleted."""
        image, known = self._host.image.topics.get(topic), Partitions()
        for transaction, partitions in self._lookups.pop(topic).items():
            if not self._is_current(transaction):
                continue
            for each in partitions:
                if image is not None and image.partition(each.partition) is not None:
                    known.setdefault(transaction, []).append(each)
                elif each.partition < count:
                    self._without_leader.setdefault(transaction, []).append(each)
            gone = {each: 0 for each in partitions if each.partition >= count}
            if gone:
                self._use_errors(transaction, gone)
        self._dispatch(known)
        self._host.replicas.write_pending()

    # results

    def _use_errors(self, transaction: SentTransaction, errors: dict[TopicPartition, int]) -> None:
        """Use the results of partitions of a transaction."""
        if not self._is_current(transaction):
            return
        if KafkaErrorCode.TRANSACTION_COORDINATOR_FENCED in errors.values():
            LOGGER.warning("%s: another broker coordinates the transaction", transaction.request.transactional_id)
            self._end(transaction)
            return
        transaction.left.difference_update(each for each, error in errors.items() if error in DONE)
        rejected = {each: error for each, error in errors.items() if error not in DONE}
        if rejected:
            self._repeat_later(transaction, rejected)
        elif not transaction.left:
            self._complete(transaction)

    def _repeat_later(self, transaction: SentTransaction, rejected: dict[TopicPartition, int]) -> None:
        transaction.failures += 1
        if transaction.failures % LOG_EACH == 0 or not RETRIED.issuperset(rejected.values()):
            partition, error = next(iter(rejected.items()))
            text = "%s: %d partitions reject the marker, such as %s with %s; it is sent again"
            name = transaction.request.transactional_id
            LOGGER.warning(text, name, len(rejected), partition, KafkaErrorCode(error).name)
        transaction.delayed += rejected
        if transaction.timer is None:
            transaction.timer = self._after(transaction.failures, self._repeat, transaction)

    def _repeat(self, transaction: SentTransaction) -> None:
        partitions = transaction.stop_timer()
        if self._is_current(transaction):
            self._dispatch({transaction: partitions})
            self._host.replicas.write_pending()

    def _complete(self, transaction: SentTransaction) -> None:
        """Submit `markers_written`. A machine that runs it writes the result, or is loaded again and sends again."""
        request = transaction.request

        def complete(machine: TransactionMachineCommands, token: Token, now: Now) -> Effects:
            self._end(transaction)
            effects = machine.markers_written(request.transactional_id, request.producer_id, request.epoch, now)
            effects.answer(token, None)
            return effects

        refused = partial(self._not_completed, transaction)
        self._submit(transaction.state_partition, complete, Completion(completed, refused))

    def _not_completed(self, transaction: SentTransaction, error: int) -> None:
        """The shard accepts no records now, or it is being loaded: then the machine sends the transaction again."""
        if not self._is_current(transaction):
            return
        if error == KafkaErrorCode.COORDINATOR_NOT_AVAILABLE:
            transaction.failures += 1
            transaction.timer = self._after(transaction.failures, self._complete_again, transaction)
        else:
            self._end(transaction)

    def _complete_again(self, transaction: SentTransaction) -> None:
        transaction.stop_timer()
        if self._is_current(transaction):
            self._complete(transaction)
            self._host.replicas.write_pending()

    def _after(self, failures: int, function: Callable[..., object], *args: object) -> Timer:
        clock = self._host.clock
        return clock.call_at(clock.monotonic() + self._backoff.delay_s(failures), function, *args)

    # requests to other brokers

    def _send_next(self, broker_id: int, queue: BrokerQueue) -> None:
        if queue.in_flight is not None or queue.timer is not None or self._closed:
            return
        queue.waiting = {each: parts for each, parts in queue.waiting.items() if self._is_current(each)}
        peers = self._host.peers
        if not queue.waiting or peers is None:
            return
        queue.in_flight = queue.take()
        request = request_for({each.marker: partitions for each, partitions in queue.in_flight.items()})
        version_max = None if self._level() else 1
        peers.call(broker_id, request, partial(self._ended, broker_id, queue), version_max=version_max)

    def _ended(self, broker_id: int, queue: BrokerQueue, result: CallResult) -> None:
        """Use the end of a request, and send the next one: now, or after a pause if it has failed."""
        sent, queue.in_flight = queue.in_flight or {}, None
        if self._closed:
            return
        if result.error:
            self._failed(broker_id, queue, sent)
            return
        queue.failures = 0
        self._send_next(broker_id, queue)
        by_producer = errors_of(result.response)
        for transaction, partitions in sent.items():
            found = by_producer.get(transaction.marker.producer_id, {})
            unknown = int(KafkaErrorCode.REQUEST_TIMED_OUT)  # a partition that the response does not name
            self._use_errors(transaction, {each: found.get(each, unknown) for each in partitions})
        self._host.replicas.write_pending()

    def _failed(self, broker_id: int, queue: BrokerQueue, sent: Partitions) -> None:
        queue.failures += 1
        if queue.failures % LOG_EACH == 0:
            LOGGER.warning("broker %d does not accept the markers of %d transactions", broker_id, len(sent))
        extend(sent, queue.waiting)
        queue.waiting = sent
        queue.timer = self._after(queue.failures, self._send_again, queue)

    def _send_again(self, queue: BrokerQueue) -> None:
        """Send the partitions of a queue to their present leaders."""
        queue.timer = None
        waiting, queue.waiting = queue.waiting, {}
        self._dispatch(waiting)
        self._host.replicas.write_pending()


def completed(_result: object) -> None:
    """The completion is committed."""
