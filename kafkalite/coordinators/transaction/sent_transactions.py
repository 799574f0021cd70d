"""What `marker_sender` keeps: the transactions whose markers are sent, and the markers for each other broker."""

from collections.abc import Iterable

from kafkalite.clock import Timer
from kafkalite.model import TopicPartition
from kafkalite.records.control import TransactionMarker
from kafkalite.state.transactions.requests import SendMarkers

PARTITIONS_MAX = 10_000  # of one request


class SentTransaction:
    """A decided transaction until all its partitions have their markers.

    Arguments:
        state_partition: of `__transaction_state`.
        request: of the machine.
        coordinator_epoch: of the shard.

    Attributes:
        left: the partitions without a committed marker, by topic.
        failures: rejections in a row.
        delayed: partitions that wait for `timer`.
    """

    __slots__ = ("delayed", "failures", "left", "marker", "request", "state_partition", "timer")

    def __init__(self, state_partition: int, request: SendMarkers, coordinator_epoch: int) -> None:
        self.state_partition = state_partition
        self.request = request
        self.marker = TransactionMarker(
            request.producer_id, request.epoch, request.commit, coordinator_epoch, int(request.version)
        )
        self.left = {topic: set(indexes) for topic, indexes in request.partitions.by_topic.items()}
        self.failures = 0
        self.delayed: list[TopicPartition] = []
        self.timer: Timer | None = None

    def written(self, partitions: Iterable[TopicPartition]) -> None:
        """The marker is committed in partitions, or they were deleted."""
        for topic, index in partitions:
            indexes = self.left.get(topic)
            if indexes is not None:
                indexes.discard(index)
                if not indexes:
                    del self.left[topic]

    def stop_timer(self) -> list[TopicPartition]:
        """Cancel the pause; returns the partitions that have waited."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        delayed, self.delayed = self.delayed, []
        return delayed


Partitions = dict[SentTransaction, list[TopicPartition]]


class BrokerQueue:
    """The markers for another broker.

    Attributes:
        waiting: leave with the next request.
        in_flight: of the request in flight, None = there is none.
        failures: requests in a row without a response.
        timer: of the pause before the next request.
    """

    __slots__ = ("failures", "in_flight", "timer", "waiting")

    def __init__(self) -> None:
        self.waiting: Partitions = {}
        self.in_flight: Partitions | None = None
        self.failures = 0
        self.timer: Timer | None = None

    def take(self) -> Partitions:
        """Remove the transactions of the next request: at most PARTITIONS_MAX partitions, at least one transaction."""
        taken: Partitions = {}
        count = 0
        while self.waiting and count < PARTITIONS_MAX:
            transaction = next(iter(self.waiting))
            partitions = self.waiting[transaction]
            part = partitions[: PARTITIONS_MAX - count]
            taken[transaction] = part
            count += len(part)
            if len(part) == len(partitions):
                del self.waiting[transaction]
            else:
                self.waiting[transaction] = partitions[len(part) :]
        return taken


def extend(partitions: Partitions, others: Partitions) -> None:
    """Add the partitions of `others` behind those of the same transactions, in place."""
    for transaction, more in others.items():
        partitions.setdefault(transaction, []).extend(more)
