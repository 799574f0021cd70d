"""Sends the markers of decided transactions to their partitions, until all have them, and then completes the decision.

1. A transaction is sent once its decision is committed. It ends here when each of its partitions has the marker or does
   not exist any more: `markers_written` is submitted to its machine, once.
2. Partitions of this broker are written immediately, without a request; those of others by `marker_channels`.
3. A partition that rejects the marker is repeated after a pause of its transaction. The leader is read again each time.
   Partitions without a live leader wait for another image. One that the image does not have is looked up
   (`partition_lookups`).
4. A transaction that is sent again, because its shard was loaded again, replaces the earlier one. `forget` ends all
   transactions of a shard. Their late results are ignored.
5. TRANSACTION_COORDINATOR_FENCED: another broker is the coordinator, so the transaction is not sent any more.

Deviation: INVALID_PRODUCER_EPOCH means that the partition has a newer epoch, so that this transaction has ended there;
Kafka stops to send the transaction, which then stays prepared until the coordinator moves (KAFKA-19999).
Source: TransactionMarkerChannelManager.scala, TransactionMarkerRequestCompletionHandler.scala of Apache Kafka.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol

from kafkalite.backoff import Backoff
from kafkalite.callbacks import Completion
from kafkalite.clock import Timer
from kafkalite.coordinators.transaction.marker_channels import LOG_EACH, MarkerChannels
from kafkalite.coordinators.transaction.marker_host import MarkerHost
from kafkalite.coordinators.transaction.partition_lookups import PartitionLookups
from kafkalite.coordinators.transaction.sent_transactions import Partitions, SentTransaction, extend
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.transactions.partitions import TransactionPartitions
from kafkalite.state.transactions.requests import SendMarkers

LOGGER = logging.getLogger("kafkalite.coordinators")
RETRY_S, RETRY_MAX_S = 0.05, 1.0
RANDOM_STEPS = 1 << 20
DISPATCHED_AT_ONCE = 2_000  # partitions of a transaction in one loop iteration, about a millisecond
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
        self._backoff = Backoff(RETRY_S, RETRY_MAX_S, lambda: host.random.below(RANDOM_STEPS) / RANDOM_STEPS)
        self._sent: dict[int, dict[str, SentTransaction]] = {}
        self._channels = MarkerChannels(host, self, self._backoff, level)
        self._lookups = PartitionLookups(host, self)
        self._without_leader: Partitions = {}
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
        if request.partitions:
            few = len(request.partitions) <= DISPATCHED_AT_ONCE
            self._dispatch_next(transaction, iter(sorted(request.partitions) if few else request.partitions))
        else:
            self._complete(transaction)

    def _dispatch_next(self, transaction: SentTransaction, partitions: Iterator[TopicPartition]) -> None:
        """Dispatch some partitions of a new transaction, and the others in later loop iterations."""
        dispatched = list(islice(partitions, DISPATCHED_AT_ONCE))
        self.dispatch({transaction: dispatched})
        if len(dispatched) == DISPATCHED_AT_ONCE:
            self._host.clock.call_at(self._host.clock.monotonic(), self._dispatch_others, transaction, partitions)

    def _dispatch_others(self, transaction: SentTransaction, partitions: Iterator[TopicPartition]) -> None:
        if self.is_current(transaction):
            self._dispatch_next(transaction, partitions)
            self._host.replicas.write_pending()

    def partitions_left(self, state_partition: int, transactional_id: str) -> TransactionPartitions | None:
        """Return the partitions of a transaction that are not known to have its marker; None: it is not sent.

        Arguments:
            state_partition: of `__transaction_state`.
            transactional_id: of the transaction.
        """
        transaction = self._sent.get(state_partition, {}).get(transactional_id)
        if transaction is None:
            return None
        return TransactionPartitions({topic: frozenset(indexes) for topic, indexes in transaction.left.items()})

    def forget(self, state_partition: int) -> None:
        """Send no markers of a shard any more: its machine was dropped."""
        for transaction in self._sent.pop(state_partition, {}).values():
            transaction.stop_timer()

    def image_changed(self) -> None:
        """Leaders or brokers have changed: partitions that wait are sent to their present leaders."""
        waiting, self._without_leader = self._without_leader, {}
        extend(waiting, self._channels.take_delayed())
        for of_shard in self._sent.values():
            for transaction in of_shard.values():
                if transaction.delayed:
                    extend(waiting, {transaction: transaction.stop_timer()})
        self.dispatch(waiting)

    def close(self) -> None:
        """Send nothing any more."""
        self._closed = True
        for state_partition in list(self._sent):
            self.forget(state_partition)
        self._channels.close()
        self._lookups.close()

    # partitions and their leaders

    def is_current(self, transaction: SentTransaction) -> bool:
        """Whether a transaction is still sent: it was neither completed, forgotten nor replaced."""
        of_shard = self._sent.get(transaction.state_partition, {})
        return of_shard.get(transaction.request.transactional_id) is transaction

    def _end(self, transaction: SentTransaction) -> None:
        """Send a transaction no more, unless a later one has replaced it."""
        transaction.stop_timer()
        if self.is_current(transaction):
            del self._sent[transaction.state_partition][transaction.request.transactional_id]

    def dispatch(self, waiting: Partitions) -> None:
        """Give partitions to the writer, to the channels of their leaders, or let them wait."""
        own: Partitions = {}
        brokers = set[int]()
        for transaction, partitions in waiting.items():
            if self.is_current(transaction):
                self._distribute(transaction, partitions, own, brokers)
        for broker_id in brokers:
            self._channels.send(broker_id)
        for transaction, partitions in own.items():
            self._host.marker_writer.write(transaction.marker, partitions, partial(self.use_errors, transaction))

    def await_image(self, transaction: SentTransaction, partition: TopicPartition) -> None:
        """Let a partition wait for another image, which has its leader."""
        self._without_leader.setdefault(transaction, []).append(partition)

    def _distribute(
        self,
        transaction: SentTransaction,
        partitions: Sequence[TopicPartition],
        own: Partitions,
        brokers: set[int],
    ) -> None:
        """Add partitions to `own`, or to the channels of `brokers`, or let them wait."""
        image = self._host.image
        for each in partitions:
            topic = image.topics.get(each.topic)
            state = None if topic is None else topic.partition(each.partition)
            if state is None:
                self._lookups.add(transaction, each)
            elif state.leader == self._host.broker_id:
                own.setdefault(transaction, []).append(each)
            elif state.leader in image.brokers.ids:
                brokers.add(state.leader)
                self._channels.add(state.leader, transaction, each)
            else:
                self.await_image(transaction, each)

    # results

    def use_errors(self, transaction: SentTransaction, errors: dict[TopicPartition, int]) -> None:
        """Use the results of partitions of a transaction."""
        if not self.is_current(transaction):
            return
        if KafkaErrorCode.TRANSACTION_COORDINATOR_FENCED in errors.values():
            LOGGER.warning("%s: another broker coordinates the transaction", transaction.request.transactional_id)
            self._end(transaction)
            return
        transaction.written(each for each, error in errors.items() if error in DONE)
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
        if self.is_current(transaction):
            self.dispatch({transaction: partitions})
            self._host.replicas.write_pending()

    def _complete(self, transaction: SentTransaction) -> None:
        """Submit `markers_written`. A machine that runs it writes the result, or is loaded again and sends again."""
        request = transaction.request
        completed_as: list[Any] = []  # TransactionMetadata

        def complete(machine: TransactionMachineCommands, token: Token, now: Now) -> Effects:
            self._end(transaction)
            effects = machine.markers_written(request.transactional_id, request.producer_id, request.epoch, now)
            completed_as.extend(effects.records)
            effects.answer(token, None)
            return effects

        refused = partial(self._not_completed, transaction)
        self._submit(transaction.state_partition, complete, Completion(completed, refused))
        for each in completed_as:  # with the id and the epoch of the next transaction
            self._host.replicas.transaction_completed(each.transactional_id, each.producer_id, each.producer_epoch)

    def _not_completed(self, transaction: SentTransaction, error: int) -> None:
        """The shard accepts no records now, or it is being loaded: then the machine sends the transaction again."""
        if not self.is_current(transaction):
            return
        if error == KafkaErrorCode.COORDINATOR_NOT_AVAILABLE:
            transaction.failures += 1
            transaction.timer = self._after(transaction.failures, self._complete_again, transaction)
        else:
            self._end(transaction)

    def _complete_again(self, transaction: SentTransaction) -> None:
        transaction.stop_timer()
        if self.is_current(transaction):
            self._complete(transaction)
            self._host.replicas.write_pending()

    def _after(self, failures: int, function: Callable[..., object], *args: object) -> Timer:
        clock = self._host.clock
        return clock.call_at(clock.monotonic() + self._backoff.delay_s(failures), function, *args)


def completed(_result: object) -> None:
    """The completion is committed."""
