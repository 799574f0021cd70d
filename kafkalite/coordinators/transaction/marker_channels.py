"""Sends markers to the other brokers: each has one WriteTxnMarkers request in flight.

1. What is added meanwhile waits, and leaves as the next request, for many transactions.
2. A request that fails is repeated after a pause that grows from 50 ms to 1 s, with jitter; only the transactions with
   partitions on this broker wait. After the pause, the leaders of its partitions are read again.

Source: TransactionMarkerChannelManager.scala, TransactionMarkerRequestCompletionHandler.scala of Apache Kafka.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from kafkalite.backoff import Backoff
from kafkalite.cluster.broker_peers import CallResult
from kafkalite.coordinators.transaction.marker_host import MarkerHost
from kafkalite.coordinators.transaction.marker_requests import errors_of, request_for
from kafkalite.coordinators.transaction.sent_transactions import BrokerQueue, Partitions, SentTransaction, extend
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition

LOGGER = logging.getLogger("kafkalite.coordinators")
LOG_EACH = 60  # failures in a row, about a minute
VERSION_OF_LEVEL_0 = 1


class ChannelSender(Protocol):
    """The sender of markers, as channels use it."""

    def is_current(self, transaction: SentTransaction) -> bool: ...

    def dispatch(self, waiting: Partitions) -> None: ...

    def use_errors(self, transaction: SentTransaction, errors: dict[TopicPartition, int]) -> None: ...


class MarkerChannels:
    """The channels to the other brokers.

    Arguments:
        host: this broker.
        sender: uses the results, and distributes partitions again.
        backoff: the pause after a request that has failed.
        level: returns the finalized `transaction.version`; 0: other brokers have WriteTxnMarkers 1.
    """

    def __init__(self, host: MarkerHost, sender: ChannelSender, backoff: Backoff, level: Callable[[], int]) -> None:
        self._host = host
        self._sender = sender
        self._backoff = backoff
        self._level = level
        self._queues: dict[int, BrokerQueue] = {}
        self._closed = False

    def add(self, broker_id: int, transaction: SentTransaction, partition: TopicPartition) -> None:
        """Let a partition of a transaction wait for the next request to its leader."""
        queue = self._queues.setdefault(broker_id, BrokerQueue())
        queue.waiting.setdefault(transaction, []).append(partition)

    def take_delayed(self) -> Partitions:
        """Remove the partitions that wait for the end of a pause."""
        taken: Partitions = {}
        for queue in self._queues.values():
            if queue.timer is not None:
                extend(taken, queue.waiting)
                queue.waiting = {}
        return taken

    def close(self) -> None:
        """Send nothing any more."""
        self._closed = True
        for queue in self._queues.values():
            if queue.timer is not None:
                queue.timer.cancel()

    def send(self, broker_id: int) -> None:
        """Send the next request to a broker, unless one is in flight or it waits for the end of a pause."""
        queue = self._queues[broker_id]
        if queue.in_flight is not None or queue.timer is not None or self._closed:
            return
        queue.waiting = {each: parts for each, parts in queue.waiting.items() if self._sender.is_current(each)}
        peers = self._host.peers
        if not queue.waiting or peers is None:
            return
        queue.in_flight = queue.take()
        request = request_for({each.marker: partitions for each, partitions in queue.in_flight.items()})
        version_max = None if self._level() else VERSION_OF_LEVEL_0
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
        self.send(broker_id)
        by_producer = errors_of(result.response)
        for transaction, partitions in sent.items():
            found = by_producer.get(transaction.marker.producer_id, {})
            unknown = int(KafkaErrorCode.REQUEST_TIMED_OUT)  # a partition that the response does not name
            self._sender.use_errors(transaction, {each: found.get(each, unknown) for each in partitions})
        self._host.replicas.write_pending()

    def _failed(self, broker_id: int, queue: BrokerQueue, sent: Partitions) -> None:
        queue.failures += 1
        if queue.failures % LOG_EACH == 0:
            LOGGER.warning("broker %d does not accept the markers of %d transactions", broker_id, len(sent))
        extend(sent, queue.waiting)
        queue.waiting = sent
        clock = self._host.clock
        end = clock.monotonic() + self._backoff.delay_s(queue.failures)
        queue.timer = clock.call_at(end, self._send_again, queue)

    def _send_again(self, queue: BrokerQueue) -> None:
        """Send the partitions of a queue to their present leaders."""
        queue.timer = None
        waiting, queue.waiting = queue.waiting, {}
        self._sender.dispatch(waiting)
        self._host.replicas.write_pending()
