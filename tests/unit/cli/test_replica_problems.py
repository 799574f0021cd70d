"""Partitions whose replicas need attention: `topic describe --under-replicated` and the like."""

import json

import pytest
from kafkalite_sdk.admin.topic_types import PartitionDescription, TopicDescription

from kafkalite.cli.replica_problems import Problem, print_problems, problems_of

UNDER, UNDER_MIN, AT_MIN, GONE = Problem


def partition(number: int, leader: int | None, isr: tuple[int, ...], replicas: tuple[int, ...]) -> PartitionDescription:
    return PartitionDescription(number, leader, 4, replicas, isr, ())


@pytest.mark.parametrize(
    ("leader", "isr", "replicas", "isr_min", "problems"),
    [
        (1, (1, 2, 3), (1, 2, 3), 2, []),
        (1, (1, 3), (1, 2, 3), 2, [UNDER, AT_MIN]),
        (1, (1,), (1, 2, 3), 2, [UNDER, UNDER_MIN]),
        (None, (1,), (1, 2, 3), 2, [UNDER, UNDER_MIN, GONE]),
        (1, (1,), (1,), 1, [AT_MIN]),
        (None, (1,), (1,), 1, [AT_MIN, GONE]),
    ],
)
def test_problems_of_a_partition(
    leader: int | None, isr: tuple[int, ...], replicas: tuple[int, ...], isr_min: int, problems: list[Problem]
) -> None:
    assert problems_of(partition(0, leader, isr, replicas), isr_min) == problems


def test_partitions_with_a_wanted_problem_are_printed_with_all_their_problems(
    capsys: pytest.CaptureFixture[str],
) -> None:
    topics = [
        TopicDescription(
            "orders", "id", False, (partition(0, 1, (1, 2), (1, 2, 3)), partition(1, 2, (1, 2, 3), (1, 2, 3)))
        ),
        TopicDescription("events", "id", False, (partition(0, 1, (1, 2), (1, 2, 3)),)),
    ]
    minimums = {"orders": 2, "events": 5}
    print_problems(topics, minimums, [UNDER_MIN], as_json=True)
    (found,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert found["topic"] == "events" and found["min_isr"] == 3, "the effective minimum is at most the replicas"
    assert found["problems"] == ["under-replicated", "under-min-isr"]
    print_problems(topics, minimums, [AT_MIN, GONE], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[1].startswith("orders") and "under-replicated" in lines[1]
