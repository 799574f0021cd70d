"""Registered groups and other group types: descriptions, records and changes of the type."""

from collections.abc import Callable

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.effects import Token
from kafkalite.state.groups.classic.requests import Join, Joined
from kafkalite.state.groups.consumer.requests import ConsumerGroupHeartbeat, HeartbeatResult
from kafkalite.state.groups.group import GroupOverview, ListedGroup, MemberOverview
from kafkalite.state.groups.records import (
    GroupDefinition,
    GroupDeleted,
    GroupGeneration,
    GroupGenerationDeleted,
    RegisteredMember,
    RewindMark,
    RewindMarkDeleted,
)
from tests.unit.state.groups.registered_rig import REBALANCE_MS, SESSION_MS, Rig

ALL = {("a", number) for number in range(4)}
Come = Callable[[Rig], Joined | HeartbeatResult]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_describe_registered_group(rig: Rig) -> None:
    assert rig.shard.machine.registry.get("g") is None
    rig.create(topics=("b",), session_timeout_ms=8_000, assignor="range")
    group = rig.shard.machine.registered.groups["g"]
    assert (group.state.value, group.generation_id, group.member_count) == ("Empty", -1, 0)
    assert group.overview() == GroupOverview(("b",), 8_000, [])
    rig.register("x")
    assert (group.state.value, group.generation_id, group.member_count) == ("Stable", 1, 1)
    assert group.overview() == GroupOverview(("b",), 8_000, [MemberOverview("x", {"b": (0, 1)})])
    assert [*rig.shard.machine.list_groups()] == [ListedGroup("g", "consumer", "Stable", "registered")]


def join(rig: Rig) -> Joined:
    request = Join(
        "g", "", "1", "consumer", (("range", b""),), SESSION_MS, REBALANCE_MS, "c", "h", member_id_required=False
    )
    token = rig.shard.ask(lambda machine, token, now: machine.registry.join(request, token, now))
    rig.shard.advance(3_000)
    answer = rig.shard.answers[token]
    assert isinstance(answer, Joined)
    return answer


def heartbeat(rig: Rig) -> HeartbeatResult:
    fast_heartbeat = ConsumerGroupHeartbeat(
        "g", "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=("a",), owned={}
    )
    token: Token = rig.shard.ask(
        lambda machine, token, now: machine.registry.consumer_heartbeat(fast_heartbeat, token, now)
    )
    answer = rig.shard.answers[token]
    assert isinstance(answer, HeartbeatResult)
    return answer


def test_members_of_other_protocols_are_rejected(rig: Rig) -> None:
    rig.begin("x")
    assert join(rig).error == Error.INCONSISTENT_GROUP_PROTOCOL
    assert heartbeat(rig).error == Error.GROUP_ID_NOT_FOUND
    assert rig.fast_heartbeat("x", 1) == (0, 1)


@pytest.mark.parametrize("come", [join, heartbeat])
def test_empty_group_created_by_registration_changes_type(rig: Rig, come: Come) -> None:
    rig.begin("x")
    rig.rewind(("a", 0), offset=2)
    rig.leave("x")
    assert not come(rig).error
    assert not rig.exists() and not rig.shard.replayed().registered.groups
    assert rig.shard.machine.committed_offset("g", "a", 0) == 2, "its offsets stay"
    assert rig.register("x", "a").error == rig.create() == Error.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("come", [join, heartbeat])
def test_empty_group_created_by_create_group_keeps_type(rig: Rig, come: Come) -> None:
    rig.create()
    assert come(rig).error
    assert rig.exists()


def test_empty_groups_of_other_types_become_registered(rig: Rig) -> None:
    member = join(rig).member_id
    rig.leave(member)
    assert not rig.register("x", "a").error and "g" not in rig.shard.machine.classic.groups
    rig.leave("x")
    assert not heartbeat(rig).error
    leaving = ConsumerGroupHeartbeat("g", "m", -1)
    rig.shard.ask(lambda machine, token, now: machine.registry.consumer_heartbeat(leaving, token, now))
    assert not rig.create() and not rig.shard.machine.consumers.groups
    replayed = rig.shard.replayed()
    assert list(replayed.registry.names()) == ["g"] and "g" in replayed.registered.groups


def test_delete_writes_tombstones_of_all_records(rig: Rig) -> None:
    rig.begin("x")
    rig.rewind(("a", 3))
    rig.leave("x")
    assert not rig.delete()
    assert rig.shard.log[-3:] == [
        RewindMarkDeleted("g", "a", 3),
        GroupGenerationDeleted("g"),
        GroupDeleted("g", "registered"),
    ]
    assert not rig.shard.replayed().names()


def test_records_of_registered_group(rig: Rig) -> None:
    """One batch creates the group and begins its first generation."""
    rig.begin("x")
    rig.rewind(("a", 3))
    definition = GroupDefinition("g", -1, (), None, "uniform", ephemeral=False, first_topics=(("a", 4),))
    member = RegisteredMember("x", "client", "host", SESSION_MS, REBALANCE_MS, ("a",), 1, 1, frozenset(ALL))
    wall_ms = rig.shard.now.wall_ms
    assert rig.shard.log[:-1] == [
        definition,
        GroupGeneration("g", 1, wall_ms, (member,)),
        RewindMark("g", "a", 3, 2),
        GroupGeneration("g", 2, wall_ms, (member._replace(epoch=2),)),
    ]
