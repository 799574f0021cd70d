"""Partitions whose replicas need attention: `topic describe --under-replicated` and the like."""

import json

import pytest
from kafkalite_sdk.admin import Config, ConfigSource
from kafkalite_sdk.admin.topic_types import PartitionDescription, TopicDescription

from kafkalite.cli.replica_problems import MIN_ISR, Problem, print_problems, problems_of
from kafkalite.cli.topic_descriptions import DescribedTopic

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


def described(name: str, minimum: str, *partitions: PartitionDescription) -> DescribedTopic:
    topic = TopicDescription(name, "id", False, partitions)
    config = Config(MIN_ISR, minimum, ConfigSource.TOPIC, read_only=False, sensitive=False)
    return DescribedTopic(topic, {MIN_ISR: config}, None, all_configs=True)


def test_partitions_with_a_wanted_problem_are_printed_with_all_their_problems(
    capsys: pytest.CaptureFixture[str],
) -> None:
    topics = [
        described("orders", "2", partition(0, 1, (1, 2), (1, 2, 3)), partition(1, 2, (1, 2, 3), (1, 2, 3))),
        described("events", "5", partition(0, 1, (1, 2), (1, 2, 3))),
    ]
    print_problems(topics, [UNDER_MIN], as_json=True)
    (found,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert found["topic"] == "events" and found["min_isr"] == 3, "the effective minimum is at most the replicas"
    assert found["problems"] == ["under-replicated", "under-min-isr"]
    print_problems(topics, [AT_MIN, GONE], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[1].startswith("orders") and "under-replicated" in lines[1]
