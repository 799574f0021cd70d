"""Tests heartbeats of members without changes: they are answered without a command of the shard."""

import pytest

from kafkalite.coordinators.group.service import GroupService
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkalite.protocol.schema import Request
from tests.kit.members import assignment, beat_join, fast_heartbeat, given, heartbeat, join, leave, rewind, sync
from tests.kit.server import Client, Hub, Wire, running
from tests.story.server.test_group_admin import HEARTBEAT, SET, alter


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The groups of all commands, as they come."""
    found: list[str] = []
    submit = GroupService.submit

    def noted(groups: GroupService, group: str, *asked: object) -> None:
        found.append(group)
        submit(groups, group, *asked)  # type: ignore[arg-type]

    monkeypatch.setattr(GroupService, "submit", noted)
    return found


async def test_classic_heartbeat_without_dispatch(client: Client, commands: list[str]) -> None:
    await client.create("orders")
    member = (await client.call(join("g", group_instance_id="i"), 5)).member_id
    assert (await client.call(sync("g", member, 1, {member: assignment("orders", 0)}))).error_code == 0
    commands.clear()
    for version in range(5):
        assert (await client.call(heartbeat("g", member, 1), version)).error_code == 0
    assert (await client.call(heartbeat("g", member, 1, "i"), 4)).error_code == 0
    assert commands == []
    assert (await client.call(heartbeat("g", member, 2), 4)).error_code == Error.ILLEGAL_GENERATION
    assert (await client.call(heartbeat("g", "other", 1), 4)).error_code == Error.UNKNOWN_MEMBER_ID
    assert (await client.call(heartbeat("g", "other", 1, "i"), 4)).error_code == Error.FENCED_INSTANCE_ID
    assert (await client.call(heartbeat("nobody", member, 1), 4)).error_code == Error.UNKNOWN_MEMBER_ID
    assert commands == ["g", "g", "g", "nobody"]


async def test_consumer_heartbeat_without_dispatch(client: Client, commands: list[str]) -> None:
    await client.create("orders")
    joined = await client.call(beat_join("g", "m", "orders"))
    epoch = joined.member_epoch
    commands.clear()
    for version in range(2):
        received = await client.call(fast_heartbeat("g", "m", epoch), version)
        assert (received.error_code, received.member_id, received.member_epoch, received.assignment) == (
            0,
            "m",
            epoch,
            None,
        )
        assert received.heartbeat_interval_ms == joined.heartbeat_interval_ms
    assert commands == []
    await client.create("other")
    await client.call(beat_join("g", "n", "orders", "other"))
    commands.clear()
    assert (await client.call(fast_heartbeat("g", "m", epoch))).error_code == 0, (
        "the group has an epoch without a target"
    )
    assert (await client.call(fast_heartbeat("g", "nobody", epoch))).error_code == Error.UNKNOWN_MEMBER_ID
    assert commands == ["g", "g"]


async def test_heartbeat_returns_changes_of_the_group(commands: list[str]) -> None:
    """Group configs, a subscribed topic, and members."""
    async with running(settings={"group.consumer.assignment.interval.ms": "0"}) as client:
        await client.create("orders")
        epoch = (await client.call(beat_join("g", "m", "orders"))).member_epoch

        async def intervals() -> list[int]:
            commands.clear()
            received = [await client.call(fast_heartbeat("g", "m", epoch)) for _ in range(3)]
            assert {(each.error_code, each.member_id, each.member_epoch) for each in received} == {(0, "m", epoch)}
            return [each.heartbeat_interval_ms for each in received]

        assert await intervals() == [5000] * 3 and commands == []
        await client.create("other")
        assert await intervals() == [5000] * 3 and commands == []
        assert await alter(client, "g", (HEARTBEAT, SET, "6000")) == 0
        assert await intervals() == [6000] * 3 and commands == []
        grown = CreatePartitionsRequest.CreatePartitionsTopic(name="orders", count=2, assignments=None)
        created = await client.call(CreatePartitionsRequest(topics=[grown], timeout_ms=5_000))
        assert [each.error_code for each in created.results] == [0]
        received = await client.call(fast_heartbeat("g", "m", epoch))
        assert received.member_epoch == epoch + 1 and received.assignment is not None
        epoch += 1
        assert await intervals() == [6000] * 3 and commands == []
        await client.call(beat_join("g", "n", "orders"))
        await client.call(fast_heartbeat("g", "m", epoch))
        assert commands == ["g", "g"]


AWAY = fast_heartbeat("g", "m", -2, instance_id="i"), 1
GONE = fast_heartbeat("g", "m", -1, instance_id="i"), 1
NEWS: dict[str, tuple[list[tuple[Request, int]], int]] = {
    "it leaves": ([GONE], Error.UNKNOWN_MEMBER_ID),
    "it steps aside": ([AWAY], Error.FENCED_MEMBER_EPOCH),
    "another is there": ([AWAY, (beat_join("g", "n", "orders", instance_id="i"), 1)], Error.FENCED_INSTANCE_ID),
    "an administrator removes it": ([(leave("g", ("", "i")), 5)], Error.UNKNOWN_MEMBER_ID),
    "what it owns is rewound": ([(rewind("g", "orders", {0: 0}), 0)], Error.FENCED_MEMBER_EPOCH),
    "it is back": ([GONE, (beat_join("g", "m", "orders", instance_id="i"), 1)], Error.FENCED_MEMBER_EPOCH),
}


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("news", NEWS)
async def test_heartbeat_reflects_uncommitted_changes(news: str, elsewhere: bool, commands: list[str]) -> None:
    """In the same loop iteration, while the change is not committed; on the same connection and on another one."""
    async with running(settings={"group.consumer.assignment.interval.ms": "0"}) as client:
        await client.create("orders")
        epoch = (await client.call(beat_join("g", "m", "orders", instance_id="i"))).member_epoch
        hub = Hub(client.broker)
        wire, other = Wire(hub), Wire(hub)
        again = fast_heartbeat("g", "m", epoch, instance_id="i")
        commands.clear()
        for _ in range(3):
            wire.send((again, 1))
            assert (await wire.answer()).error_code == 0
        assert commands == ["g"], "the first heartbeat records another client host, the others change nothing"
        requests, error = NEWS[news]
        if elsewhere:
            other.send(*requests)
            wire.send((again, 1))
        else:
            wire.send(*requests, (again, 1))
        received = [await (other if elsewhere else wire).answer() for _ in requests]
        assert all(not getattr(each, "error_code", 0) for each in received), received
        assert (await wire.answer()).error_code == error


async def test_heartbeat_notices_a_deleted_topic(commands: list[str]) -> None:
    async with running(settings={"group.consumer.assignment.interval.ms": "0"}) as client:
        await client.create("orders", "other")
        epoch = (await client.call(beat_join("g", "m", "orders", "other"))).member_epoch
        commands.clear()
        for _ in range(2):
            assert (await client.call(fast_heartbeat("g", "m", epoch))).error_code == 0
        assert commands == []
        kept = client.topic_id("other")
        await client.delete("orders")
        received = await client.call(fast_heartbeat("g", "m", epoch))
        assert received.member_epoch == epoch and given(received) == {kept: [0]}, "it is to give the other one up first"


async def test_heartbeat_with_disabled_consumer_protocol(commands: list[str]) -> None:
    async with running(settings={"group.coordinator.rebalance.protocols": "classic"}) as client:
        await client.create("orders")
        await client.call(join("g"), 3)
        assert (await client.call(fast_heartbeat("g", "m", 1))).error_code == Error.UNSUPPORTED_VERSION
