"""Finds the partitions whose replicas need attention: `topic describe --under-replicated` and the like.

The minimum is the effective one, min(min.insync.replicas, replicas): as the broker applies it to acks=all.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum

from kafkalite_sdk import Admin
from kafkalite_sdk.admin import Resource
from kafkalite_sdk.admin.topic_types import PartitionDescription, TopicDescription

from kafkalite.cli.client_options import print_rows
from kafkalite.cli.topic_descriptions import PARTITION_COLUMNS, partition_row
from kafkalite.errors import KafkaErrorCode

MIN_ISR = "min.insync.replicas"
COLUMNS = ("Topic", *PARTITION_COLUMNS, "MinIsr", "Problems")


class Problem(StrEnum):
    """What may be wrong with the replicas of a partition, as the name of its option."""

    UNDER_REPLICATED = "under-replicated"
    UNDER_MIN_ISR = "under-min-isr"
    AT_MIN_ISR = "at-min-isr"
    UNAVAILABLE = "unavailable"


def problems_of(partition: PartitionDescription, isr_min: int) -> list[Problem]:
    """The problems of one partition.

    Arguments:
        partition: as the metadata describes it.
        isr_min: the effective minimum of in-sync replicas.
    """
    in_sync = len(partition.isr)
    found = {
        Problem.UNDER_REPLICATED: in_sync < len(partition.replicas),
        Problem.UNDER_MIN_ISR: in_sync < isr_min,
        Problem.AT_MIN_ISR: in_sync == isr_min,
        Problem.UNAVAILABLE: partition.leader is None,
    }
    return [problem for problem, exists in found.items() if exists]


async def read_minimums(admin: Admin, topics: Collection[str]) -> dict[str, int]:
    """Return the configured minimum of in-sync replicas of topics; those that were deleted meanwhile are left out.

    Raises KafkaError.
    """
    if not topics:
        return {}
    outcomes = await admin.configs.describe(*map(Resource.topic, topics), names=(MIN_ISR,))
    for error in outcomes.errors.values():
        if error.code != KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
    return {resource.name: int(each[MIN_ISR].value or 1) for resource, each in outcomes.results.items()}


def effective_minimum(minimums: Mapping[str, int], topic: str, partition: PartitionDescription) -> int:
    """The number of in-sync replicas that acks=all needs; without a minimum of the topic, one."""
    return min(minimums.get(topic, 1), len(partition.replicas))


def print_problems(
    topics: Collection[TopicDescription], minimums: Mapping[str, int], wanted: Collection[Problem], as_json: bool
) -> None:
    """Print the partitions that have one of these problems, each with all its problems.

    Arguments:
        topics: the topics.
        minimums: their configured minimums of in-sync replicas, by name.
        wanted: the problems.
        as_json: one JSON object per partition instead of a table.
    """
    rows = [row for topic in topics for row in rows_of(topic, minimums, wanted)]
    print_rows(COLUMNS, rows, as_json)


def rows_of(
    topic: TopicDescription, minimums: Mapping[str, int], wanted: Collection[Problem]
) -> Iterator[tuple[object, ...]]:
    """The rows of a topic, in the order of COLUMNS."""
    for partition in topic.partitions:
        isr_min = effective_minimum(minimums, topic.name, partition)
        problems = problems_of(partition, isr_min)
        if not set(problems).isdisjoint(wanted):
            yield topic.name, *partition_row(topic.name, partition, None), isr_min, [str(each) for each in problems]
