"""One question whether a partition is in a transaction: what is asked, and where its result goes."""

from collections.abc import Callable
from functools import partial
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


# Without the Python frame of `TransactionKey(...)`: a request may have a check per partition.
transaction_key: Callable[[tuple[str, int, int, bool]], TransactionKey] = partial(tuple.__new__, TransactionKey)


class Check:
    """One check.

    Arguments:
        key: of its transaction.
        partition: to verify or to add.
        then: called with the result.
        again: called before each repetition.
        begun: the time of its begin, in seconds of the monotonic clock.

    Attributes:
        then: None once the result was reported.
    """

    __slots__ = ("again", "begun", "key", "partition", "then")

    def __init__(
        self,
        key: TransactionKey,
        partition: TopicPartition,
        then: Callable[[int], None],
        again: Callable[[], None] | None,
        begun: float,
    ) -> None:
        self.key = key
        self.partition = partition
        self.again = again
        self.begun = begun
        self.then: Callable[[int], None] | None = then

    def end(self, error: int) -> None:
        """Report a Kafka error code or 0; a second end has no effect."""
        then, self.then = self.then, None
        if then is not None:
            then(error)


class Pause(NamedTuple):
    """The pause before the repetition of the checks of a transaction.

    Arguments:
        end: in seconds of the monotonic clock.
        begun_min: checks that have begun before, by the same clock, are not repeated.
        checks: that are repeated.
    """

    end: float
    begun_min: float
    checks: list[Check]
