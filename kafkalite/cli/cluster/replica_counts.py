"""Counts the partitions of a cluster whose replicas are not in sync, or whose leader is not the preferred one."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from kafkalite_sdk import Admin
from kafkalite_sdk.admin import TopicDescription
from kafkalite_sdk.admin.topic_types import PartitionDescription

from kafkalite.cli.replica_problems import Problem, effective_minimum, problems_of, read_minimums


class ReplicaCounts(NamedTuple):
    """Numbers of partitions.

    Attributes:
        under_replicated: with replicas that are not in sync.
        under_min_isr: of these, with fewer than the effective minimum in sync: they reject acks=all.
        not_preferred: led by another replica than the first one.
        electable: of these, with a first replica that is alive and in sync: an election makes it the leader.
    """

    under_replicated: int
    under_min_isr: int
    not_preferred: int
    electable: int


async def count_replicas(admin: Admin, topics: Collection[TopicDescription]) -> ReplicaCounts:
    """Count the partitions of topics; only the configs of those that are under-replicated are read. Raises KafkaError.

    Arguments:
        admin: of the cluster.
        topics: all topics.
    """
    behind = [topic for topic in topics if any(len(each.isr) < len(each.replicas) for each in topic.partitions)]
    minimums = await read_minimums(admin, [topic.name for topic in behind])
    problems = Counter(
        problem
        for topic in behind
        for each in topic.partitions
        for problem in problems_of(each, effective_minimum(minimums, topic.name, each))
    )
    moved = [each for topic in topics for each in topic.partitions if each.leader not in (None, each.replicas[0])]
    electable = sum(map(is_electable, moved))
    return ReplicaCounts(problems[Problem.UNDER_REPLICATED], problems[Problem.UNDER_MIN_ISR], len(moved), electable)


def is_electable(partition: PartitionDescription) -> bool:
    """Whether an election makes the first replica the leader: it is in sync and not offline."""
    first = partition.replicas[0]
    return first in partition.isr and first not in partition.offline_replicas


def imbalances_of(topics: Iterable[TopicDescription]) -> dict[int, int]:
    """The share of the partitions whose first replica a broker has that others lead, in percent, by broker id.

    The controller compares it with `leader.imbalance.per.broker.percentage`.
    """
    preferred: Counter[int] = Counter()
    elsewhere: Counter[int] = Counter()
    for topic in topics:
        for each in topic.partitions:
            preferred[each.replicas[0]] += 1
            elsewhere[each.replicas[0]] += each.leader != each.replicas[0]
    return {broker: round(100 * elsewhere[broker] / count) for broker, count in preferred.items()}
