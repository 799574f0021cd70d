"""Consumer groups that read many topics: a timer makes the target assignment, after the heartbeat has been answered."""

import pytest

from kafkalite.state.effects import Effects, SetTimer
from kafkalite.state.groups.consumer.group import ConsumerGroupState
from kafkalite.state.groups.consumer.group_steps import TARGET, TARGET_CALLED, TOPICS_AT_ONCE
from kafkalite.state.groups.consumer.reconciliation import MemberState
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings
from kafkalite.state.groups.records import (
    CONSUMER,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
)
from tests.kit.consumer_groups import Client, FakeTopics, Shard, durable
from tests.kit.work import calls_in

TIMER = (CONSUMER, TARGET_CALLED, "g", "")
AT_ONCE = 1


@pytest.fixture
def shard() -> Shard:
    return Shard(FakeTopics(flights=4, weather=3), topics_at_once=AT_ONCE)


def client(shard: Shard, name: str) -> Client:
    return Client(shard, name, "flights", "weather")


def stabilize(shard: Shard, *clients: Client) -> None:
    """Let all members send heartbeats and timers fire until the group is stable."""
    for _ in range(12):
        for each in clients:
            each.fast_heartbeat()
        shard.advance(0)
    assert shard.group().state is ConsumerGroupState.STABLE


def test_a_join_is_answered_before_the_target_assignment_is_made(shard: Shard) -> None:
    alice = client(shard, "alice")
    result = alice.fast_heartbeat()
    assert (result.member_epoch, result.assignment) == (1, {})
    assert shard.group().state is ConsumerGroupState.ASSIGNING
    assert [type(record) for record in shard.log] == [
        ConsumerGroupMemberMetadata,
        ConsumerGroupMetadata,
        ConsumerGroupCurrentMemberAssignment,
    ]
    shard.log.clear()
    shard.advance(0)
    assert [type(record) for record in shard.log] == [
        ConsumerGroupTargetAssignmentMember,
        ConsumerGroupTargetAssignmentMetadata,
    ]
    assert alice.fast_heartbeat().member_epoch == 2 and len(alice.topic_partitions) == 7


def test_between_the_heartbeat_and_the_target_sockets_are_read(shard: Shard) -> None:
    """A loop runs timers that are due before it reads: the first timer only sets another one."""
    client(shard, "alice").fast_heartbeat()
    at_ms = shard.timers.pop(TIMER)
    effects = shard.machine.fire_timer(TIMER, shard.now)
    assert effects == Effects(timers=[SetTimer((CONSUMER, TARGET, "g", ""), at_ms)])
    shard.run(effects)
    shard.advance(0)
    assert shard.group().assignment_epoch == shard.group().epoch


def test_second_member_delays_no_heartbeat(shard: Shard) -> None:
    alice, bob = client(shard, "alice"), client(shard, "bob")
    stabilize(shard, alice)
    bob.fast_heartbeat()
    assert alice.fast_heartbeat().assignment is None, "there is no new target yet"
    shard.advance(0)
    assert len(alice.fast_heartbeat().assignment or {}) == 2 and len(alice.topic_partitions) == 4
    stabilize(shard, alice, bob)
    assert (
        alice.topic_partitions.isdisjoint(bob.topic_partitions)
        and len(alice.topic_partitions | bob.topic_partitions) == 7
    )


def test_a_group_of_few_topics_gets_its_target_by_the_heartbeat() -> None:
    names = [f"t{number:04}" for number in range(TOPICS_AT_ONCE + 1)]
    shard = Shard(FakeTopics(**dict.fromkeys(names, 1)))
    alice = Client(shard, "alice", *names[:-1])
    assert alice.fast_heartbeat().member_epoch == 2 and TIMER not in shard.timers
    alice.subscribe(*names)
    alice.fast_heartbeat()
    assert TIMER in shard.timers


def test_work_of_a_join_does_not_include_the_assignment() -> None:
    def work(topics_at_once: int) -> int:
        names = [f"t{number}" for number in range(200)]
        shard = Shard(FakeTopics(**dict.fromkeys(names, 1)), topics_at_once=topics_at_once)
        stabilize(shard, Client(shard, "alice", *names))
        return calls_in(Client(shard, "bob", *names).fast_heartbeat)

    assert work(199) < work(200) / 2


def test_changes_while_the_timer_is_set_are_part_of_its_target(shard: Shard) -> None:
    alice, bob = client(shard, "alice"), client(shard, "bob")
    alice.fast_heartbeat()
    due_ms = shard.timers[TIMER]
    shard.ms += 1
    bob.fast_heartbeat()
    assert shard.timers[TIMER] == due_ms, "a stream of changes does not put the timer off"
    shard.log.clear()
    shard.advance(0)
    (made,) = [record for record in shard.log if isinstance(record, ConsumerGroupTargetAssignmentMetadata)]
    assert made.assignment_epoch == shard.group().epoch == 3
    sizes = [sum(map(len, target.values())) for target in shard.group().targets.values()]
    assert sorted(sizes) == [3, 4]


def test_a_member_that_leaves_while_the_timer_is_set_gets_no_target(shard: Shard) -> None:
    alice, bob = client(shard, "alice"), client(shard, "bob")
    alice.fast_heartbeat()
    bob.fast_heartbeat()
    bob.leave()
    shard.advance(0)
    assert set(shard.group().targets) == {"alice"}
    stabilize(shard, alice)
    assert len(alice.topic_partitions) == 7


def test_a_group_without_members_gets_no_target(shard: Shard) -> None:
    alice = client(shard, "alice")
    alice.fast_heartbeat()
    alice.leave()
    written = len(shard.log)
    shard.advance(0)
    assert len(shard.log) == written and TIMER not in shard.timers
    stabilize(shard, alice)
    assert len(alice.topic_partitions) == 7


def test_a_group_that_is_deleted_and_founded_while_the_timer_is_set(shard: Shard) -> None:
    alice = client(shard, "alice")
    alice.fast_heartbeat()
    alice.leave()
    records = shard.group().delete(shard.now).records
    shard.append(records)
    shard.timers[TIMER] += 5
    shard.advance(1)
    alice.fast_heartbeat()
    assert shard.timers[TIMER] == shard.ms, "the timer of the new group replaces that of the old one"
    stabilize(shard, alice)
    assert len(alice.topic_partitions) == 7


def test_the_timer_of_a_deleted_group_does_nothing(shard: Shard) -> None:
    alice = client(shard, "alice")
    alice.fast_heartbeat()
    alice.leave()
    records = shard.group().delete(shard.now).records
    shard.append(records)
    written = len(shard.log)
    shard.advance(0)
    assert len(shard.log) == written and not shard.machine.groups


def test_a_restart_between_epoch_and_target(shard: Shard) -> None:
    alice = client(shard, "alice")
    alice.fast_heartbeat()
    shard.restart()
    assert TIMER not in shard.timers and shard.group().state is ConsumerGroupState.ASSIGNING
    epoch = shard.group().epoch
    alice.fast_heartbeat()
    shard.advance(0)
    assert shard.group().assignment_epoch == shard.group().epoch == epoch
    stabilize(shard, alice)
    assert len(alice.topic_partitions) == 7
    assert durable(shard.replayed()) == durable(shard.machine)


def test_rejected_heartbeat_schedules_no_target(shard: Shard) -> None:
    alice, bob = client(shard, "alice"), client(shard, "bob")
    stabilize(shard, alice)
    current = shard.group().current("alice")
    shard.append([current._replace(state=int(MemberState.UNKNOWN))])
    shard.topics.grow("flights", 8)
    shard.machine.topics_changed(["flights"])
    alice.fast_heartbeat()  # it is fenced, and the effects of its heartbeat are dropped
    assert TIMER not in shard.timers
    stabilize(shard, alice, bob)
    assert len(alice.topic_partitions | bob.topic_partitions) == 11


def test_the_interval_between_assignments_holds_for_the_timer() -> None:
    shard = Shard(FakeTopics(flights=4, weather=3), ConsumerGroupSettings(assignment_interval_ms=1_000), AT_ONCE)
    alice, bob = client(shard, "alice"), client(shard, "bob")
    stabilize(shard, alice)
    bob.fast_heartbeat()
    assert TIMER not in shard.timers
    shard.advance(1_000)
    bob.fast_heartbeat()
    assert TIMER in shard.timers
    stabilize(shard, alice, bob)
    assert (
        alice.topic_partitions.isdisjoint(bob.topic_partitions)
        and len(alice.topic_partitions | bob.topic_partitions) == 7
    )
