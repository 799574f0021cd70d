"""The partitions of a transaction, by topic: a transaction may have 100,000, and each request adds some.

A union copies the topics that it adds to, and the indexes are plain integers: with a set of 100,000 pairs, each request
took 40 ms of the event loop to copy and to encode them.
"""

from collections.abc import Iterable, Iterator, Set
from typing import Any

from kafkalite.model import TopicPartition

NO_INDEXES: frozenset[int] = frozenset()


class TransactionPartitions(Set[TopicPartition]):
    """An immutable set, equal to a frozenset of the same partitions.

    Arguments:
        by_topic: the partition indexes of each topic; it is not changed afterwards, and no topic is empty.
    """

    __slots__ = ("_count", "by_topic")

    def __init__(self, by_topic: dict[str, frozenset[int]]) -> None:
        self.by_topic = by_topic
        self._count = sum(map(len, by_topic.values()))

    @classmethod
    def of(cls, partitions: Iterable[TopicPartition]) -> "TransactionPartitions":
        """Return the set of some partitions."""
        return NO_PARTITIONS | partitions

    @classmethod
    def _from_iterable(cls, partitions: Iterable[Any]) -> Any:
        """As `of`; the operators of `Set` call it."""
        return cls.of(partitions)

    def __contains__(self, partition: object) -> bool:
        return (
            isinstance(partition, tuple)
            and len(partition) == 2
            and partition[1] in self.by_topic.get(partition[0], NO_INDEXES)
        )

    def __iter__(self) -> Iterator[TopicPartition]:
        return (TopicPartition(topic, index) for topic, indexes in self.by_topic.items() for index in indexes)

    def __len__(self) -> int:
        return self._count

    def __or__(self, added: Iterable[TopicPartition]) -> "TransactionPartitions":  # type: ignore[override]
        by_topic = dict(self.by_topic)
        for topic, indexes in indexes_by_topic(added).items():
            by_topic[topic] = by_topic.get(topic, NO_INDEXES) | indexes
        return TransactionPartitions(by_topic)

    def __hash__(self) -> int:
        return self._hash()

    def __repr__(self) -> str:
        return f"TransactionPartitions({self.by_topic})"


def indexes_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, set[int]]:
    """Return the indexes of each topic."""
    by_topic: dict[str, set[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, set()).add(index)
    return by_topic


NO_PARTITIONS = TransactionPartitions({})  # one object for all idle ids
