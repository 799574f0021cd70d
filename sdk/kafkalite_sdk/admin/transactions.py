"""Transactions: list, describe (KIP-664)."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafkalite.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import Operation, check_result, is_address, require
from kafkalite_sdk.admin.outcomes import Outcomes


@dataclass(frozen=True, slots=True, order=True)
class TransactionListing:
    """A transaction in a list.

    Attributes:
        transactional_id: of its producer.
        producer_id: of its producer.
        state: such as "Ongoing" and "CompleteCommit".
        coordinator: broker id.
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transaction.

    Attributes:
        transactional_id, producer_id, producer_epoch: of its producer.
        state: such as "Ongoing" and "CompleteCommit".
        timeout_ms: the coordinator aborts it after this time.
        start_time_ms: in ms since 1970, None = it has not begun.
        partitions: of an open transaction, sorted.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[TopicPartition, ...]


class Transactions:
    """The transactions of a cluster.

    Every method takes `timeout`, a deadline in seconds; None = `default_api_timeout_ms`.

    Arguments:
        driver: sends the requests.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def list(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        running_longer_than_ms: int = -1,
        timeout: float | None = None,
    ) -> tuple[TransactionListing, ...]:
        """List the transactions of all coordinators, sorted.

        Arguments:
            states: only transactions in these states; none = all.
            producer_ids: only transactions of these producers; none = all.
            running_longer_than_ms: only transactions that have run for this time; -1 = all.

        Raises:
            KafkaError: a broker does not answer: its transactions would be missing.
        """
        request = ListTransactionsRequest(
            state_filters=[*states], producer_id_filters=[*producer_ids], duration_filter=running_longer_than_ms
        )
        operation: Operation[int, tuple[TransactionListing, ...]] = Operation(
            ListTransactionsRequest, lambda _: request, _listed, is_address, single=True
        )
        left_s = self._driver.countdown(timeout)
        found = await self._driver.run(operation, await self._driver.brokers(left_s()), left_s())
        return tuple(sorted(each for listed in found.check().values() for each in listed))

    async def describe(
        self, *transactional_ids: str, timeout: float | None = None
    ) -> Outcomes[str, TransactionDescription]:
        """Describe transactions. TransactionalIdNotFoundError: no producer has used the id.

        Arguments:
            transactional_ids: of their producers.
        """
        operation: Operation[str, TransactionDescription] = Operation(
            DescribeTransactionsRequest,
            lambda ids: DescribeTransactionsRequest(transactional_ids=ids),
            _described,
            is_address,
        )
        return await self._driver.run(operation, dict.fromkeys(transactional_ids), timeout)


def _listed(
    response: ListTransactionsResponse, keys: "Collection[int]"
) -> Iterator[tuple[int, tuple[TransactionListing, ...]]]:
    require(response.error_code)
    (broker,) = keys
    listed = (
        TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, broker)
        for each in response.transaction_states
    )
    yield broker, tuple(listed)


def _described(
    response: DescribeTransactionsResponse, _: object
) -> Iterator[tuple[str, TransactionDescription | KafkaError]]:
    for each in response.transaction_states:
        partitions = sorted(TopicPartition(topic.topic, number) for topic in each.topics for number in topic.partitions)
        described = TransactionDescription(
            each.transactional_id,
            each.producer_id,
            each.producer_epoch,
            each.transaction_state,
            each.transaction_timeout_ms,
            each.transaction_start_time_ms if each.transaction_start_time_ms >= 0 else None,
            tuple(partitions),
        )
        yield each.transactional_id, check_result(each.error_code, None, described)
