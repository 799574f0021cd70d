"""One question whether a partition is in a transaction: what is asked, and where its result goes."""

from collections.abc import Callable
from typing import NamedTuple

from kafkalite.model import TopicPartition


class TransactionKey(NamedTuple):
    """What a coordinator is asked about; the partitions of several checks with one key are one question.

    Arguments:
        transactional_id, producer_id, epoch: of the producer.
        add: whether the partitions are added.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    add: bool


class Check:
    """One check.

    Arguments:
        key: of its transaction.
        partition: to verify or to add.
        then: called with the result.
        begun: the time of its begin, in seconds of the monotonic clock.
    """

    __slots__ = ("_then", "begun", "key", "partition")

    def __init__(
        self, key: TransactionKey, partition: TopicPartition, then: Callable[[int], None], begun: float
    ) -> None:
        self.key = key
        self.partition = partition
        self.begun = begun
        self._then: Callable[[int], None] | None = then

    @property
    def ended(self) -> bool:
        """Whether the result was reported."""
        return self._then is None

    def end(self, error: int) -> None:
        """Report a Kafka error code or 0; a second end has no effect."""
        then, self._then = self._then, None
        if then is not None:
            then(error)


class Pause(NamedTuple):
    """The pause before the repetition of the checks of a transaction.

    Arguments:
        end: in seconds of the monotonic clock.
        checks: that are repeated.
    """

    end: float
    checks: list[Check]
