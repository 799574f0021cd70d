"""The target assignment of a large consumer group on a shard that fails, is closed or is moved before it is made."""

from pathlib import Path

import pytest

from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.consumer.requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupSettings,
    HeartbeatResult,
    Topic,
)
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import OffsetSettings
from tests.unit.coordinators.rig import NOT_HERE, Answered, Rig, TopicsNow

NO_SPACE = 28


def machine() -> GroupMachine:
    """A shard whose consumer groups are all large."""
    topics = TopicsNow(flights=Topic(bytes(16), "flights", 4))
    settings = ConsumerGroupSettings(assignment_interval_ms=0)
    consumers = ConsumerGroups(topics, lambda _: settings, topics_at_once=0)
    return GroupMachine(ClassicSettings(), OffsetSettings(), consumers)


@pytest.fixture
def rig(tmp_path: Path) -> Rig[GroupMachine]:
    rig = Rig(tmp_path, machine)
    rig.load()
    return rig


def join(shard: GroupMachine, token: Token, now: Now) -> Effects:
    names = ("flights",)
    request = ConsumerGroupHeartbeat(
        "g", "alice", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=names, owned={}
    )
    return shard.registry.consumer_heartbeat(request, token, now)


def join_and_write(rig: Rig[GroupMachine]) -> Answered:
    """The join is committed, the timer has not fired."""
    joined = rig.do(join)
    rig.replicas.write_pending()
    assert [result.member_epoch for result in joined.received] == [1]
    return joined


def group(rig: Rig[GroupMachine]) -> ConsumerGroup:
    found = rig.runtime.machine(0)
    assert found is not None
    return found.consumers.groups["g"]


def assert_alice_gets_all(rig: Rig[GroupMachine]) -> None:
    rig.now(join)
    result = rig.now(join)
    assert isinstance(result, HeartbeatResult)
    assert result.assignment == {bytes(16): frozenset(range(4))}


def test_target_timer_writes_outside_a_loop_iteration(rig: Rig[GroupMachine]) -> None:
    join_and_write(rig)
    end = rig.log.log_end_offset
    rig.clock.advance(0)
    assert rig.log.log_end_offset == end + 2
    assert group(rig).assignment_epoch == group(rig).epoch == 2
    assert_alice_gets_all(rig)


def test_failed_join_leaves_no_target_timer(rig: Rig[GroupMachine]) -> None:
    joined = rig.do(join)
    rig.disk.fail("write", NO_SPACE, path=".log")
    rig.replicas.write_pending()
    assert len(joined.received) == 1 and joined.received[0] != 0
    rig.recover()
    found = rig.runtime.machine(0)
    assert found is not None and not found.consumers.groups
    assert_alice_gets_all(rig)


def test_failed_target_assignment_is_repeated_after_the_next_heartbeat(rig: Rig[GroupMachine]) -> None:
    join_and_write(rig)
    rig.disk.fail("write", NO_SPACE, path=".log")
    rig.clock.advance(0)
    rig.recover()
    assert (group(rig).epoch, group(rig).assignment_epoch) == (2, 1)
    assert_alice_gets_all(rig)


def test_target_timer_of_a_closed_shard_is_ignored(rig: Rig[GroupMachine]) -> None:
    join_and_write(rig)
    rig.runtime.close()
    assert rig.clock.timers == 0
    assert rig.do(join).received == [NOT_HERE]
    rig.runtime = rig.new_runtime()
    rig.load()
    assert (group(rig).epoch, group(rig).assignment_epoch) == (2, 1)
    assert_alice_gets_all(rig)
