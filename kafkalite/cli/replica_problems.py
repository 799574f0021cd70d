"""Finds the partitions whose replicas need attention: `topic describe --under-replicated` and the like.

The minimum is the effective one, min(min.insync.replicas, replicas): as the broker applies it to acks=all.
"""

from collections.abc import Collection, Iterator
from enum import StrEnum

from kafkalite_sdk.admin.topic_types import PartitionDescription

from kafkalite.cli.client_options import print_rows
from kafkalite.cli.topic_descriptions import PARTITION_COLUMNS, DescribedTopic, partition_row

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


def print_problems(topics: Collection[DescribedTopic], wanted: Collection[Problem], as_json: bool) -> None:
    """Print the partitions that have one of these problems, each with all its problems.

    Arguments:
        topics: with all their configs.
        wanted: the problems.
        as_json: one JSON object per partition instead of a table.
    """
    rows = [row for topic in topics for row in rows_of(topic, wanted)]
    if rows or not as_json:
        print_rows(COLUMNS, rows, as_json)


def rows_of(described: DescribedTopic, wanted: Collection[Problem]) -> Iterator[tuple[object, ...]]:
    """The rows of a topic, in the order of COLUMNS."""
    topic = described.topic
    configured = int(described.configs[MIN_ISR].value or 1)
    for partition in topic.partitions:
        isr_min = min(configured, len(partition.replicas))
        problems = problems_of(partition, isr_min)
        if not set(problems).isdisjoint(wanted):
            yield topic.name, *partition_row(topic.name, partition, None), isr_min, [str(each) for each in problems]
