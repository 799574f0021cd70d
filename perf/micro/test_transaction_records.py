"""The record of a transaction with many partitions as bytes, and back; each request that adds partitions writes one:
`pytest perf/micro/test_transaction_records.py`.
"""

from typing import Any

import pytest

from kafkalite.coordinators.transaction.serde import TransactionRecordSerde
from kafkalite.model import TopicPartition
from kafkalite.state.transactions.metadata import TransactionMetadata
from kafkalite.state.transactions.partitions import TransactionPartitions
from kafkalite.state.transactions.states import TransactionState

SERDE = TransactionRecordSerde()
SHAPES = [(1, 1), (1, 1_000), (1, 100_000), (100, 1_000), (10_000, 10)]  # topics, and partitions of each


def transaction(topics: int, partitions: int) -> TransactionMetadata:
    """An open transaction."""
    added = TransactionPartitions({f"topic-{topic}": frozenset(range(partitions)) for topic in range(topics)})
    return TransactionMetadata("me", 5, 3, 60_000, 1_000, TransactionState.ONGOING, added, 900, version=2)


@pytest.mark.parametrize(("topics", "partitions"), SHAPES)
def test_encode(benchmark: Any, topics: int, partitions: int) -> None:
    assert benchmark(SERDE.encode, transaction(topics, partitions))[1]


@pytest.mark.parametrize(("topics", "partitions"), SHAPES)
def test_decode(benchmark: Any, topics: int, partitions: int) -> None:
    metadata = transaction(topics, partitions)
    assert benchmark(SERDE.decode, *SERDE.encode(metadata)) == metadata


@pytest.mark.parametrize(("topics", "partitions"), SHAPES)
def test_add_a_partition(benchmark: Any, topics: int, partitions: int) -> None:
    before, added = transaction(topics, partitions).partitions, [TopicPartition("topic-0", partitions)]
    assert len(benchmark(before.__or__, added)) == len(before) + 1
