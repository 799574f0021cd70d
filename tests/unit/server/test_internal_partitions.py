"""The number of partitions of an internal topic: read once for each topic, and again when the topic has grown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkalite.cluster.metadata.image import TopicImage, new_partition
from kafkalite.server.running.internal_partitions import InternalPartitions

FIRST, SECOND = b"1" * 16, b"2" * 16


class Tree:
    """The counts that are asked for; `answer` gives the oldest one."""

    def __init__(self) -> None:
        self.asked: list[Callable[[int], object]] = []
        self.counts: list[int] = []
        self.partitions = InternalPartitions("__consumer_offsets", self, self.counts.append)

    def count_partitions(self, topic: str, then: Callable[[int], object]) -> None:
        assert topic == "__consumer_offsets"
        self.asked.append(then)

    def answer(self, count: int) -> None:
        self.asked.pop(0)(count)

    def image(self, partitions: int, topic_id: bytes = FIRST) -> None:
        states = (new_partition((1,)),) * partitions
        self.partitions.image_changed(TopicImage("__consumer_offsets", topic_id, states))


def test_the_count_is_that_of_the_tree_while_the_image_lacks_partitions() -> None:
    tree = Tree()
    tree.image(1)
    tree.image(3)
    assert (tree.partitions.count, len(tree.asked)) == (0, 1)
    tree.answer(4)
    tree.image(4)
    assert (tree.partitions.count, tree.counts, tree.asked) == (4, [4], [])


def test_a_topic_that_has_grown_keeps_its_count_until_the_tree_is_read() -> None:
    tree = Tree()
    tree.image(4)
    tree.answer(4)
    tree.image(6)
    assert tree.partitions.count == 4
    tree.answer(8)
    assert tree.counts == [4, 8]


def test_another_topic_is_counted_again() -> None:
    tree = Tree()
    tree.image(4)
    tree.answer(4)
    tree.partitions.image_changed(None)
    tree.image(2, SECOND)
    assert tree.counts == [4, 0]
    tree.answer(2)
    assert tree.counts == [4, 0, 2]


@pytest.mark.parametrize("found", (4, 0), ids=("read before the deletion", "read between"))
def test_the_count_of_a_topic_that_was_replaced_during_the_read_is_not_used(found: int) -> None:
    tree = Tree()
    tree.image(4)
    tree.image(2, SECOND)
    tree.answer(found)
    assert (tree.counts, len(tree.asked)) == ([], 1)
    tree.answer(2)
    assert tree.counts == [2]


def test_a_topic_that_is_gone_is_not_read_again() -> None:
    tree = Tree()
    tree.image(4)
    tree.answer(0)
    assert (tree.counts, tree.asked) == ([], [])
