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
        on_result: called with the result.
        before_repetition: called before each repetition.
        begun: the time of its begin, in seconds of the monotonic clock.

    Attributes:
        on_result: None once the result was reported.
    """

    __slots__ = ("before_repetition", "begun", "key", "on_result", "partition")

    def __init__(
        self,
        key: TransactionKey,
        partition: TopicPartition,
        on_result: Callable[[int], None],
        before_repetition: Callable[[], None] | None,
        begun: float,
    ) -> None:
        self.key = key
        self.partition = partition
        self.before_repetition = before_repetition
        self.begun = begun
        self.on_result: Callable[[int], None] | None = on_result

    def end(self, error: int) -> None:
        """Report a Kafka error code or 0; a second end has no effect."""
        on_result, self.on_result = self.on_result, None
        if on_result is not None:
            on_result(error)


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
