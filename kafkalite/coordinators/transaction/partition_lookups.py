"""Looks up partitions that the image does not have in the tree.

The image of a new coordinator may be older than the transaction. A partition that the tree does not have was deleted.
"""

from functools import partial
from typing import Protocol

from kafkalite.coordinators.transaction.marker_host import MarkerHost
from kafkalite.coordinators.transaction.sent_transactions import Partitions, SentTransaction
from kafkalite.model import TopicPartition


class LookupSender(Protocol):
    """The sender of markers, as lookups use it."""

    def is_current(self, transaction: SentTransaction) -> bool: ...

    def await_image(self, transaction: SentTransaction, partition: TopicPartition) -> None: ...

    def dispatch(self, waiting: Partitions) -> None: ...

    def use_errors(self, transaction: SentTransaction, errors: dict[TopicPartition, int]) -> None: ...


class PartitionLookups:
    """The lookups of a sender: one in progress per topic.

    Arguments:
        host: the broker.
        sender: receives the partitions that exist, and those that do not.
    """

    def __init__(self, host: MarkerHost, sender: LookupSender) -> None:
        self._host = host
        self._sender = sender
        self._waiting: dict[str, Partitions] = {}  # by topic
        self._closed = False

    def add(self, transaction: SentTransaction, partition: TopicPartition) -> None:
        """Look up a partition of a transaction."""
        lookup = self._waiting.get(partition.topic)
        if lookup is not None:
            lookup.setdefault(transaction, []).append(partition)
            return
        self._waiting[partition.topic] = {transaction: [partition]}
        self._host.clock.call_at(self._host.clock.monotonic(), self._count, partition.topic)

    def close(self) -> None:
        """Begin no lookup any more."""
        self._closed = True

    def _count(self, topic: str) -> None:
        if not self._closed:
            self._host.count_partitions(topic, partial(self._counted, topic))

    def _counted(self, topic: str, count: int) -> None:
        """Partitions that exist in the tree wait for the image, unless it has them by now; the others were deleted."""
        image, known, sender = self._host.image.topics.get(topic), Partitions(), self._sender
        for transaction, partitions in self._waiting.pop(topic).items():
            if not sender.is_current(transaction):
                continue
            for each in partitions:
                if image is not None and image.partition(each.partition) is not None:
                    known.setdefault(transaction, []).append(each)
                elif each.partition < count:
                    sender.await_image(transaction, each)
            gone = {each: 0 for each in partitions if each.partition >= count}
            if gone:
                sender.use_errors(transaction, gone)
        sender.dispatch(known)
        self._host.replicas.write_pending()
