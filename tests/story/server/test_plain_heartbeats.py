"""Heartbeats of members at rest have a short way through the broker: they make no command of the shard."""

from typing import Any

import pytest

from kafkalite.coordinators.groups import Groups
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkalite.protocol.schema import Request
from kafkalite.state.consumer_sessions import Plain
from tests.kit.members import assignment, beat, beat_join, given, heartbeat, join, leave, rewind, sync
from tests.kit.server import Client, Hub, Wire, running
from tests.story.server.test_group_admin import HEARTBEAT, SET, alter


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The groups of all commands, as they come."""
    found: list[str] = []
    submit = Groups.submit

    def noted(groups: Groups, group: str, *asked: object) -> None:
        found.append(group)
        submit(groups, group, *asked)  # type: ignore[arg-type]

    monkeypatch.setattr(Groups, "submit", noted)
    return found


async def test_a_member_of_a_classic_group(client: Client, commands: list[str]) -> None:
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


async def test_a_member_of_a_consumer_group(client: Client, commands: list[str]) -> None:
    await client.create("orders")
    joined = await client.call(beat_join("g", "m", "orders"))
    epoch = joined.member_epoch
    commands.clear()
    for version in range(2):
        told = await client.call(beat("g", "m", epoch), version)
        assert (told.error_code, told.member_id, told.member_epoch, told.assignment) == (0, "m", epoch, None)
        assert told.heartbeat_interval_ms == joined.heartbeat_interval_ms
    assert commands == []
    await client.create("other")
    await client.call(beat_join("g", "n", "orders", "other"))
    commands.clear()
    assert (await client.call(beat("g", "m", epoch))).error_code == 0, "the group has an epoch without a target"
    assert (await client.call(beat("g", "nobody", epoch))).error_code == Error.UNKNOWN_MEMBER_ID
    assert commands == ["g", "g"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The groups of all heartbeats that were judged, of those without news."""
    found: list[str] = []
    judge = Groups.consumer_beat

    def noted(groups: Groups, group: str, *known: Any) -> Plain | None:
        found.append(group)
        return judge(groups, group, *known)

    monkeypatch.setattr(Groups, "consumer_beat", noted)
    return found


async def test_a_repeated_heartbeat_is_judged_once(asked: list[str], commands: list[str]) -> None:
    """Until something changes: here the settings of the group, a topic that it reads, and who is in it."""
    async with running(settings={"group.consumer.assignment.interval.ms": "0"}) as client:
        await client.create("orders")
        epoch = (await client.call(beat_join("g", "m", "orders"))).member_epoch

        async def beats() -> list[int]:
            asked.clear()
            commands.clear()
            told = [await client.call(beat("g", "m", epoch)) for _ in range(3)]
            assert {(each.error_code, each.member_id, each.member_epoch) for each in told} == {(0, "m", epoch)}
            return [each.heartbeat_interval_ms for each in told]

        assert await beats() == [5000] * 3 and (asked, commands) == (["g"], [])
        assert await beats() == [5000] * 3 and (asked, commands) == ([], [])
        await client.create("other")
        assert await beats() == [5000] * 3 and (asked, commands) == ([], [])
        assert await alter(client, "g", (HEARTBEAT, SET, "6000")) == 0
        assert await beats() == [6000] * 3 and (asked, commands) == (["g"], [])
        grown = CreatePartitionsRequest.CreatePartitionsTopic(name="orders", count=2, assignments=None)
        created = await client.call(CreatePartitionsRequest(topics=[grown], timeout_ms=5_000))
        assert [each.error_code for each in created.results] == [0]
        told = await client.call(beat("g", "m", epoch))
        assert told.member_epoch == epoch + 1 and told.assignment is not None
        epoch += 1
        assert await beats() == [6000] * 3 and (asked, commands) == (["g"], [])
        await client.call(beat_join("g", "n", "orders"))
        asked.clear()
        await client.call(beat("g", "m", epoch))
        assert (asked, commands) == (["g"], ["g", "g"])


AWAY = beat("g", "m", -2, instance_id="i"), 1
GONE = beat("g", "m", -1, instance_id="i"), 1
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
async def test_a_repeated_heartbeat_comes_after_the_news(news: str, elsewhere: bool, asked: list[str]) -> None:
    """In the same pass, while nothing of the news is committed yet; by the same connection or by another one."""
    async with running(settings={"group.consumer.assignment.interval.ms": "0"}) as client:
        await client.create("orders")
        epoch = (await client.call(beat_join("g", "m", "orders", instance_id="i"))).member_epoch
        hub = Hub(client.broker)
        wire, other = Wire(hub), Wire(hub)
        again = beat("g", "m", epoch, instance_id="i")
        for _ in range(3):
            wire.send((again, 1))
            assert (await wire.answer()).error_code == 0
        assert asked == ["g", "g"], "it was noted that it comes from elsewhere, then that it is at rest"
        requests, error = NEWS[news]
        if elsewhere:
            other.send(*requests)
            wire.send((again, 1))
        else:
            wire.send(*requests, (again, 1))
        told = [await (other if elsewhere else wire).answer() for _ in requests]
        assert all(not getattr(each, "error_code", 0) for each in told), told
        assert (await wire.answer()).error_code == error


async def test_a_topic_that_goes_is_missed_by_the_next_heartbeat(asked: list[str]) -> None:
    async with running(settings={"group.consumer.assignment.interval.ms": "0"}) as client:
        await client.create("orders", "other")
        epoch = (await client.call(beat_join("g", "m", "orders", "other"))).member_epoch
        for _ in range(2):
            assert (await client.call(beat("g", "m", epoch))).error_code == 0
        assert asked == ["g"]
        kept = client.topic_id("other")
        await client.delete("orders")
        told = await client.call(beat("g", "m", epoch))
        assert told.member_epoch == epoch and given(told) == {kept: [0]}, "it is to give the other one up first"


async def test_where_the_consumer_protocol_is_switched_off(commands: list[str]) -> None:
    async with running(settings={"group.coordinator.rebalance.protocols": "classic"}) as client:
        await client.create("orders")
        await client.call(join("g"), 3)
        assert (await client.call(beat("g", "m", 1))).error_code == Error.UNSUPPORTED_VERSION
