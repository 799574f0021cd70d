"""The records of a transactional producer, as its transactions see them."""

from collections.abc import Callable, Collection
from typing import Protocol

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.accumulator import RecordAccumulator
from kafkalite_sdk.producer.partition_sender import ProducerId
from kafkalite_sdk.producer.sender import Sender
from kafkalite_sdk.producer.transactions.state import V1

PRODUCE_VERSION_MAX = {1: 11, 2: 12}
"""By version of the transaction protocol: Produce 12 adds its partitions to the transaction (KIP-890)."""


class RecordsDriver(Protocol):
    """What sends the records of a producer: `kafkalite_sdk.producer.driver.Driver`."""

    @property
    def accumulator(self) -> RecordAccumulator:
        """The records."""

    @property
    def sender(self) -> Sender:
        """What sends them."""

    def schedule(self) -> None:
        """Do what is due in the next loop iteration."""

    def reject_records(self, error: KafkaError) -> None:
        """Let `send` raise an error."""

    def abort_records(self, error: KafkaError) -> None:
        """Fail the records without an outcome, and report no failed record of this transaction any more."""

    def give_up(self, error: KafkaError) -> None:
        """Fail all records, and reject further ones."""

    async def until(self, condition: Callable[[], bool], timeout_s: float | None, text: str) -> None:
        """Wait for a condition. Raises KafkaTimeoutError."""


class TransactionalSender(Sender):
    """The sender of a transactional producer: a batch that fails, fails with the error of its transaction.

    Attributes:
        on_failure: receives the cause, and returns the error of the records.
    """

    on_failure: Callable[[BaseException], BaseException] | None = None

    def error_of_records(self, error: BaseException) -> BaseException:
        """Return the error that users of a failed batch see."""
        return error if self.on_failure is None else self.on_failure(error)


class TransactionRecords:
    """The records of one producer.

    Arguments:
        driver: of the producer.

    Attributes:
        schedule, reject_records, abort_records, give_up, wait_until: methods of the driver.
    """

    def __init__(self, driver: RecordsDriver) -> None:
        self._driver = driver
        self.schedule = driver.schedule
        self.reject_records = driver.reject_records
        self.abort_records = driver.abort_records
        self.give_up = driver.give_up
        self.wait_until = driver.until

    def on_failure(self, function: Callable[[BaseException], BaseException]) -> None:
        """Pass the cause of each batch that fails to a function, which returns the error of its records."""
        sender = self._driver.sender
        assert isinstance(sender, TransactionalSender)
        sender.on_failure = function

    def records_open(self) -> bool:
        """Whether records have no outcome, or a Produce request is open."""
        accumulator = self._driver.accumulator
        return (
            bool(self._driver.sender.open_calls)
            or accumulator.oldest_incomplete() <= accumulator.opened
            or bool(accumulator.unassigned)
        )

    def begin_transaction(self, identity: ProducerId, version: int) -> None:
        """Let batches of a transaction leave, and `send` queue records.

        Arguments:
            identity: of the producer.
            version: of the transaction protocol; with 1 each partition must be confirmed first.
        """
        sender = self._driver.sender
        sender.set_producer_id(identity)
        sender.confirmed = set() if version == V1 else None
        sender.unconfirmed.clear()
        sender.version_max = PRODUCE_VERSION_MAX[version]
        self._driver.accumulator.open()

    def unconfirmed_partitions(self) -> list[TopicPartition]:
        """Return the partitions with batches that wait until the coordinator knows them."""
        waiting = self._driver.sender.unconfirmed
        return [TopicPartition(each.queue.topic, each.queue.partition) for each in waiting]

    def confirm(self, partitions: Collection[TopicPartition]) -> None:
        """Let batches of these partitions leave."""
        sender = self._driver.sender
        if not sender.unconfirmed or sender.confirmed is None:
            return
        found = [each for each in sender.unconfirmed if (each.queue.topic, each.queue.partition) in partitions]
        for each in found:
            del sender.unconfirmed[each]
        sender.confirmed.update(found)
        if found:
            self.schedule()
