"""The numbers of `cluster status`: replicas that are not in sync, and leaders that are not preferred."""

import asyncio
from typing import Any, cast

import pytest
from kafkalite_sdk import Admin
from kafkalite_sdk.admin import Config, ConfigSource, Resource, TopicDescription
from kafkalite_sdk.admin.topic_types import PartitionDescription

from kafkalite.cli.cluster.commands import not_preferred_line
from kafkalite.cli.cluster.replica_counts import ReplicaCounts, count_replicas, imbalances_of
from kafkalite.cli.replica_problems import MIN_ISR
from kafkalite.errors import KafkaError, KafkaErrorCode, error_for


class Minimums:
    """An Admin whose topics have these minimums, or errors; `asked`: the topics that were read."""

    def __init__(self, **minimums: int | KafkaError) -> None:
        self._minimums = minimums
        self.asked: list[str] = []
        self.results: dict[Resource, dict[str, Config]] = {}
        self.errors: dict[Resource, KafkaError] = {}

    @property
    def configs(self) -> "Minimums":
        return self

    async def describe(self, *resources: Resource, names: tuple[str, ...]) -> "Minimums":
        assert names == (MIN_ISR,)
        for resource in resources:
            self.asked.append(resource.name)
            found = self._minimums[resource.name]
            if isinstance(found, KafkaError):
                self.errors[resource] = found
            else:
                config = Config(MIN_ISR, str(found), ConfigSource.TOPIC, read_only=False, sensitive=False)
                self.results[resource] = {MIN_ISR: config}
        return self


def topic(name: str, *isrs: tuple[int, ...], leader: int = 1) -> TopicDescription:
    """A topic with replicas on brokers 1, 2 and 3."""
    described = (PartitionDescription(number, leader, 0, (1, 2, 3), isr, ()) for number, isr in enumerate(isrs))
    return TopicDescription(name, "id", False, tuple(described))


def counted(admin: Minimums, *topics: TopicDescription) -> ReplicaCounts:
    return asyncio.run(count_replicas(cast(Admin, cast(Any, admin)), topics))


def test_only_configs_of_topics_that_are_under_replicated_are_read() -> None:
    admin = Minimums(orders=2, events=3)
    found = counted(
        admin,
        topic("orders", (1, 2, 3), (1, 2), (1,)),
        topic("events", (1, 2)),
        topic("healthy", (1, 2, 3), leader=2),
    )
    assert found == ReplicaCounts(under_replicated=3, under_min_isr=2, not_preferred=1, electable=1)
    assert admin.asked == ["orders", "events"]
    assert counted(Minimums(), topic("healthy", (1, 2, 3))) == ReplicaCounts(0, 0, 0, 0)


def test_first_replica_that_is_offline_or_not_in_sync_is_not_electable() -> None:
    alive = PartitionDescription(0, 2, 0, (1, 2), (1, 2), ())
    partitions = (alive, alive._replace(partition=1, offline_replicas=(1,)), alive._replace(partition=2, isr=(2,)))
    found = counted(Minimums(orders=1), TopicDescription("orders", "id", False, partitions))
    assert (found.not_preferred, found.electable) == (3, 1)


def test_status_names_the_election_only_where_it_has_effect() -> None:
    restarted, mixed, down = (not_preferred_line(ReplicaCounts(0, 0, 3, each)) for each in (3, 1, 0))
    assert restarted.endswith("as after a restart of its broker: `kafkalite topic elect-leaders` elects it")
    assert mixed.endswith("down or not in sync in 2 of them; `kafkalite topic elect-leaders` elects the others")
    assert down == "3 partition(s) are not led by their first replica, which is down or not in sync in 3 of them"


def test_topic_that_was_deleted_meanwhile_has_no_minimum() -> None:
    admin = Minimums(gone=error_for(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert counted(admin, topic("gone", (1,))) == ReplicaCounts(1, 0, 0, 0)


def test_configs_that_cannot_be_read_are_an_error() -> None:
    admin = Minimums(orders=error_for(KafkaErrorCode.UNKNOWN_SERVER_ERROR))
    with pytest.raises(KafkaError):
        counted(admin, topic("orders", (1,)))


def test_imbalance_is_the_share_of_preferred_partitions_that_others_lead() -> None:
    assert imbalances_of([topic("a", (1,), (1,)), topic("b", (1,), leader=2), topic("c", (1,), leader=1)]) == {1: 25}
    assert imbalances_of([]) == {}
