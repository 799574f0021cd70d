"""Tests the metrics of groups: totals in the registry, and each group with its lag."""

from pathlib import Path

import pytest

from kafkalite.coordinators.group.group_metrics import PartitionLag, Rate, SingleGroupMetrics
from kafkalite.server.running.running_broker import RunningBroker
from kafkalite.state.groups.records import CLASSIC, CONSUMER, REGISTERED
from tests.kit.members import assignment, beat_join, codes, commit, fast_heartbeat, join, leave, register, sync
from tests.kit.server import Client, batch, running


def totals(broker: RunningBroker) -> dict[str, float]:
    """The gauges of groups, by name and kind."""
    found = {}
    for family in broker.metrics.walk():
        if family.name.startswith("kafkalite_group"):
            for labels, gauge in family.members.items():
                found[" ".join([family.name.removeprefix("kafkalite_"), *(value for _, value in labels)])] = gauge.value
    return found


async def stable(client: Client, group: str) -> str:
    """The only member of a classic group."""
    member: str = (await client.call(join(group), 3)).member_id
    assert (await client.call(sync(group, member, 1, {member: assignment("orders", 0)}))).error_code == 0
    return member


async def test_group_metrics_per_group_and_in_total(client: Client) -> None:
    await client.create("orders", partitions=2)
    assert (await client.produce("orders", batch(b"a", b"b", b"c"))).error_code == 0
    assert totals(client.broker) == {}, "nothing is made for groups before there is one"
    assert codes(await client.call(commit("simple", "orders", {0: 1, 1: 7}), 9)) == [0, 0]
    member = await stable(client, "classic")
    await client.call(beat_join("modern", "m", "orders"))
    await client.call(register("ours", "c", "orders"))
    numbers = client.broker.group_coordinator.metrics
    lags = PartitionLag("orders", 0, 1, 3, 2), PartitionLag("orders", 1, 7, 0, 0)
    assert sorted(numbers.groups()) == [
        SingleGroupMetrics("classic", CLASSIC, "Stable", 1, 1, ()),
        SingleGroupMetrics("modern", CONSUMER, "Stable", 1, 2, ()),
        SingleGroupMetrics("ours", REGISTERED, "Stable", 1, 1, ()),
        SingleGroupMetrics("simple", CLASSIC, "Empty", 0, -1, lags),
    ]
    assert codes(await client.call(commit("classic", "orders", {0: 3}, member, 1), 9)) == [0]
    assert numbers.group("classic") == SingleGroupMetrics(
        "classic", CLASSIC, "Stable", 1, 1, (PartitionLag("orders", 0, 3, 3, 0),)
    )
    assert numbers.group("nobody") is None
    found = totals(client.broker)
    assert found.pop("group_commits_per_second") >= 0
    assert found == {
        "groups classic": 2,
        "groups consumer": 1,
        "groups registered": 1,
        "group_members classic": 1,
        "group_members consumer": 1,
        "group_members registered": 1,
        "group_rebalances": 3,
        "group_commits": 3,
    }


async def test_completed_rebalances_are_counted(client: Client) -> None:
    """A commit, a rejoin and the end of a group are no rebalances."""
    await client.create("orders", partitions=2)
    member = await stable(client, "classic")
    numbers = client.broker.group_coordinator.metrics
    assert numbers.rebalances == 1
    again = await client.call(join("classic", member))
    assert (again.generation_id, numbers.rebalances) == (2, 1)
    await client.call(sync("classic", member, 2, {member: b""}))
    assert numbers.rebalances == 2
    await client.call(leave("classic", member))
    assert numbers.rebalances == 2
    epoch = (await client.call(beat_join("modern", "m", "orders"))).member_epoch
    assert (epoch, numbers.rebalances) == (2, 3)
    await client.call(fast_heartbeat("modern", "m", epoch))
    assert numbers.rebalances == 3


async def test_loaded_records_are_not_counted_as_commits(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as client:
        await client.create("orders")
        await stable(client, "classic")
        assert codes(await client.call(commit("simple", "orders", {0: 0}), 9)) == [0]
    async with running(str(tmp_path)) as client:
        while (await client.call(join("other"), 3)).error_code:
            pass  # the coordinator is loading
        numbers = client.broker.group_coordinator.metrics
        assert (numbers.rebalances, numbers.commits) == (0, 0)
        assert {each.name for each in numbers.groups()} == {"classic", "simple", "other"}


async def test_deleted_topic_has_no_lag(client: Client) -> None:
    await client.create("orders", "other")
    for topic in ("orders", "other"):
        assert codes(await client.call(commit("g", topic, {0: 0}), 9)) == [0]
    await client.delete("orders")
    found = client.broker.group_coordinator.metrics.group("g")
    assert found is not None and [each.topic for each in found.partitions] == ["other"]


def test_commit_rate_covers_the_last_minute() -> None:
    rate = Rate(100.0)
    assert rate.per_second(100.0, 5) == 0.0
    assert rate.per_second(110.0, 50) == pytest.approx(5.0)
    assert rate.per_second(110.5, 50) == pytest.approx(50 / 10.5)
    for second in range(111, 171):
        rate.per_second(float(second), 50)
    assert rate.per_second(171.0, 50) == 0.0
    assert rate.per_second(172.0, 80) == pytest.approx(30 / 61, rel=0.05)
