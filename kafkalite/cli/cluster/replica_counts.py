"""Counts the partitions of a cluster whose replicas are not in sync, or whose leader is not the preferred one."""

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from kafkalite_sdk import Admin
from kafkalite_sdk.admin import Resource, TopicDescription

from kafkalite.cli.replica_problems import MIN_ISR, Problem, problems_of
from kafkalite.errors import KafkaErrorCode


class ReplicaCounts(NamedTuple):
    """Numbers of partitions.

    Attributes:
        under_replicated: with replicas that are not in sync.
        under_min_isr: of these, with fewer than the effective minimum in sync: they reject acks=all.
        not_preferred: led by another replica than the first one.
    """

    under_replicated: int
    under_min_isr: int
    not_preferred: int


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
        for problem in problems_of(each, min(minimums.get(topic.name, 1), len(each.replicas)))
    )
    moved = sum(each.leader not in (None, each.replicas[0]) for topic in topics for each in topic.partitions)
    return ReplicaCounts(problems[Problem.UNDER_REPLICATED], problems[Problem.UNDER_MIN_ISR], moved)


async def read_minimums(admin: Admin, topics: Collection[str]) -> dict[str, int]:
    """The configured minimum of in-sync replicas of topics; those that were deleted meanwhile are left out."""
    outcomes = await admin.configs.describe(*map(Resource.topic, topics), names=(MIN_ISR,)) if topics else None
    if outcomes is None:
        return {}
    for error in outcomes.errors.values():
        if error.code != KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
    return {resource.name: int(each[MIN_ISR].value or 1) for resource, each in outcomes.results.items()}
