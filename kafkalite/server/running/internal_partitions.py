"""Counts the partitions of an internal topic in a cluster. The count decides which partition a key belongs to: a group
in `__consumer_offsets`, a transactional id in `__transaction_state`.

The image may lack partitions: UpdateMetadata has only those with a state, and partitions of a new topic get theirs one
after another, or when their broker is back. So the count is read from the node of the topic, as in Apache Kafka
(GroupMetadataManager.getGroupMetadataTopicPartitionCount of 3.9). An offset that was committed under a smaller count
would be in another partition than the next reader looks into.
"""

from collections.abc import Callable
from typing import Protocol

from kafkalite.cluster.metadata.image import TopicImage


class PartitionCounter(Protocol):
    """Counts partitions in the tree."""

    def count_partitions(self, topic: str, then: Callable[[int], object]) -> None:
        """Call `then` once with the number of partitions of a topic, 0 = it does not exist. While the coordination
        service is not available, the call waits.
        """


class InternalPartitions:
    """The number of partitions of an internal topic, as far as this broker knows it.

    Arguments:
        name: of the topic.
        counter: reads the number.
        changed: called with each new number.

    Attributes:
        count: 0 = it is not known, or the topic does not exist.
    """

    def __init__(self, name: str, counter: PartitionCounter, changed: Callable[[int], object]) -> None:
        self.count = 0
        self._name = name
        self._counter = counter
        self._changed = changed
        self._topic: TopicImage | None = None  # the latest
        self._counted: bytes | None = None  # the topic id that `count` is about
        self._reading = False

    def image_changed(self, topic: TopicImage | None) -> None:
        """The image has another state of the topic; None = it does not exist."""
        self._topic = topic
        if topic is None or topic.topic_id != self._counted:
            self._set(0, None)
        self._read()

    def _read(self) -> None:
        topic = self._topic
        if topic is None or self._reading or len(topic.partitions) <= self.count:
            return
        self._reading = True

        def counted(count: int) -> None:
            self._reading = False
            if self._topic is not None and self._topic.topic_id == topic.topic_id:
                self._set(count, topic.topic_id)
            if self._topic is not topic:  # it has changed meanwhile
                self._read()

        self._counter.count_partitions(self._name, counted)

    def _set(self, count: int, topic_id: bytes | None) -> None:
        self._counted = topic_id
        if count != self.count:
            self.count = count
            self._changed(count)
