"""Finds the open transactions of partitions, and whether a coordinator will end them.

Source: FindHangingTransactionsCommand in TransactionsCommand.java of Apache Kafka 4.3. Deviation: an open transaction
that no coordinator has is read once more, as it may have ended between the first request and the last one.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from kafkalite.errors import KafkaError, KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite_sdk.admin.outcomes import Outcomes
from kafkalite_sdk.admin.topic_types import ProducerState
from kafkalite_sdk.admin.transaction_types import OpenTransaction, TransactionDescription, TransactionListing

PARTITIONS_MAX = 500
"""Partitions of one call of DescribeProducers, as in Kafka."""

Found = dict[TopicPartition, tuple[OpenTransaction, ...] | KafkaError]
Left = Callable[[], float]


class Reader(Protocol):
    """The part of `Transactions` that reads."""

    def describe_producers(
        self, partitions: Collection[TopicPartition], *, timeout: float | None = None
    ) -> Awaitable[Outcomes[TopicPartition, tuple[ProducerState, ...]]]: ...
    def list(
        self, *, producer_ids: Collection[int] = (), timeout: float | None = None
    ) -> Awaitable[tuple[TransactionListing, ...]]: ...
    def describe(
        self, *transactional_ids: str, timeout: float | None = None
    ) -> Awaitable[Outcomes[str, TransactionDescription]]: ...


async def find_open(
    reader: Reader, partitions: Collection[TopicPartition], before_ms: int | None, left_s: Left
) -> Outcomes[TopicPartition, tuple[OpenTransaction, ...]]:
    """Return the open transactions of each partition, by start offset, or why its leader does not answer.

    Arguments:
        reader: reads producers and transactions.
        partitions: to search.
        before_ms: only transactions whose last batch is older, in ms since 1970; None = all.
        left_s: returns the time left, in seconds.

    Raises:
        KafkaError: a coordinator does not answer: its transactions would appear to hang.
    """
    found = await _read_open(reader, partitions, left_s)
    if before_ms is not None:
        found = {
            each: tuple(one for one in ended if one.last_timestamp_ms < before_ms)
            if not isinstance(ended, KafkaError)
            else ended
            for each, ended in found.items()
        }
    known = await _known_transactions(reader, {each.producer_id for each in _all(found)}, left_s)
    found = _map(found, lambda each: _with_state(each, known.get(each.producer_id)))
    suspects = {each.partition for each in _all(found) if each.is_hanging}
    if not suspects:
        return Outcomes(found)
    again = await _read_open(reader, suspects, left_s)
    still = {_identity(each) for each in _all(again)}
    return Outcomes(
        {
            partition: ended
            if isinstance(ended, KafkaError)
            else tuple(each for each in ended if not each.is_hanging or _identity(each) in still)
            for partition, ended in found.items()
        }
        | {partition: ended for partition, ended in again.items() if isinstance(ended, KafkaError)}
    )


async def _read_open(reader: Reader, partitions: Collection[TopicPartition], left_s: Left) -> Found:
    wanted, found = [*dict.fromkeys(partitions)], Found()
    for begin in range(0, len(wanted), PARTITIONS_MAX):
        outcomes = await reader.describe_producers(wanted[begin : begin + PARTITIONS_MAX], timeout=left_s())
        outcomes.ignore_errors()  # those of the result count
        for partition, ended in outcomes.ended.items():
            found[partition] = ended if isinstance(ended, KafkaError) else _open_of(partition, ended)
    return found


def _open_of(partition: TopicPartition, producers: Collection[ProducerState]) -> tuple[OpenTransaction, ...]:
    transactions = (
        OpenTransaction(
            partition,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.transaction_start_offset,
            each.last_timestamp_ms,
        )
        for each in producers
        if each.transaction_start_offset is not None
    )
    return tuple(sorted(transactions, key=lambda each: each.start_offset))


async def _known_transactions(
    reader: Reader, producer_ids: Collection[int], left_s: Left
) -> Mapping[int, TransactionDescription | str]:
    """Return by producer id the transaction, or the transactional id if that has expired meanwhile."""
    if not producer_ids:
        return {}
    listed = await reader.list(producer_ids=producer_ids, timeout=left_s())
    ids = {each.producer_id: each.transactional_id for each in listed}
    described = await reader.describe(*ids.values(), timeout=left_s())
    for error in described.errors.values():
        if error.code != KafkaErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise error
    return {producer_id: described.results.get(name, name) for producer_id, name in ids.items()}


def _with_state(each: OpenTransaction, known: TransactionDescription | str | None) -> OpenTransaction:
    if not isinstance(known, TransactionDescription):
        return replace(each, transactional_id=known, is_hanging=True)
    hanging = each.partition not in known.partitions
    return replace(each, transactional_id=known.transactional_id, state=known.state, is_hanging=hanging)


def _map(found: Found, change: Callable[[OpenTransaction], OpenTransaction]) -> Found:
    return {
        partition: ended if isinstance(ended, KafkaError) else tuple(map(change, ended))
        for partition, ended in found.items()
    }


def _all(found: Mapping[Any, tuple[OpenTransaction, ...] | KafkaError]) -> Iterator[OpenTransaction]:
    for ended in found.values():
        if not isinstance(ended, KafkaError):
            yield from ended


def _identity(each: OpenTransaction) -> tuple[TopicPartition, int, int]:
    return each.partition, each.producer_id, each.start_offset
