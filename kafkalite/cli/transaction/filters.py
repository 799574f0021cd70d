"""Selects transactions and partitions by the options of the commands."""

from collections.abc import Mapping
from typing import NamedTuple

from kafkalite_sdk import Admin, TopicPartition
from kafkalite_sdk.admin import TransactionListing
from kafkalite_sdk.admin.transaction_types import OPEN_STATES

from kafkalite.cli.positions import chosen_partitions
from kafkalite.errors import KafkaError, KafkaErrorCode

NOT_FOUND = KafkaErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class Filters(NamedTuple):
    """Options of `transaction list`; empty and None = all.

    Attributes:
        states, producer_ids: of the transactions.
        pattern: of transactional ids.
        age_s: of open transactions, in seconds.
    """

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    pattern: str | None = None
    age_s: float | None = None


class ListedTransactions(NamedTuple):
    """Transactions; `unknown`: why others may be missing, by broker or transactional id."""

    transactions: list[TransactionListing]
    unknown: Mapping[str, KafkaError]


async def list_transactions(
    admin: Admin, filters: Filters, partitions: frozenset[TopicPartition] | None, *, timeout: float
) -> ListedTransactions:
    """List transactions, sorted.

    Arguments:
        admin: of the cluster.
        filters: of the command.
        partitions: only open transactions with one of them; None = all.
        timeout: of the answers of each type of request, in seconds.
    """
    states = filters.states
    if not states and (filters.age_s is not None or partitions is not None):
        states = OPEN_STATES
    found = await admin.transactions.list_by_broker(
        states=states,
        producer_ids=filters.producer_ids,
        running_longer_than_ms=-1 if filters.age_s is None else int(filters.age_s * 1000),
        pattern=filters.pattern,
        timeout=timeout,
    )
    unknown = {f"broker {broker}": error for broker, error in found.errors.items()}
    listed = sorted(each for transactions in found.results.values() for each in transactions)
    if partitions is None:
        return ListedTransactions(listed, unknown)
    described = await admin.transactions.describe(*(each.transactional_id for each in listed), timeout=timeout)
    unknown |= {name: error for name, error in described.errors.items() if error.code != NOT_FOUND}
    chosen = {name for name, each in described.results.items() if not partitions.isdisjoint(each.partitions)}
    return ListedTransactions([each for each in listed if each.transactional_id in chosen], unknown)


async def searched_partitions(
    admin: Admin, topics: Mapping[str, list[int] | None], broker: int | None
) -> list[TopicPartition]:
    """Return the partitions to search; ends the command if a topic or a partition does not exist.

    Arguments:
        admin: of the cluster.
        topics: the selected partitions, None = all of a topic; no topic = all topics, internal ones included.
        broker: only partitions with a replica on it; None = all.
    """
    selected = None if not topics else {*await chosen_partitions(admin, topics)}
    found = [
        (TopicPartition(topic.name, each.partition), each.replicas)
        for topic in await admin.topics.list(internal=True)
        for each in topic.partitions
    ]
    return [
        each
        for each, replicas in found
        if (selected is None or each in selected) and (broker is None or broker in replicas)
    ]
