"""Stories of consumer groups (KIP-848): who owns what, who is fenced, what is written, and in which order."""

import pytest

from kafkalite.errors import KafkaErrorCode as Code
from kafkalite.state.groups.consumer.description import describe
from kafkalite.state.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from kafkalite.state.groups.consumer.reconciliation import MemberState
from kafkalite.state.groups.consumer.requests import ConsumerGroupHeartbeat, ConsumerGroupSettings
from kafkalite.state.groups.group import TopicIdPartition
from kafkalite.state.groups.records import (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    ConsumerGroupTombstone,
    GroupDeleted,
)
from tests.kit.consumer_groups import Client, FakeTopics, Shard, durable, stabilize


@pytest.fixture
def shard() -> Shard:
    return Shard(FakeTopics(flights=4, weather=3))


def state_of(shard: Shard, member_id: str) -> MemberState:
    return MemberState(shard.group().current(member_id).state)


def rewind(shard: Shard, topic_partitions: list[tuple[bytes, int]]) -> None:
    """Fence the owners of partitions, as a rewind does."""
    fenced = [TopicIdPartition(topic_id, "", partition) for topic_id, partition in topic_partitions]
    shard.append(shard.group().fence_owners(fenced, shard.now).records)


def shape(records: list[object]) -> list[object]:
    """Records by type, tombstones as (Tombstone, type)."""
    return [(type(r), r.of) if isinstance(r, ConsumerGroupTombstone) else type(r) for r in records]


def test_the_first_member_owns_everything_with_its_first_heartbeat(shard: Shard) -> None:
    alice = Client(shard, "alice", "flights", "weather")
    result = alice.fast_heartbeat()
    assert (result.error, result.member_epoch, result.heartbeat_interval_ms) == (Code.NONE, 2, 5_000)
    assert len(alice.topic_partitions) == 7
    assert shard.group().state is ConsumerGroupState.STABLE


def test_records_are_in_the_order_of_kafka(shard: Shard) -> None:
    alice = Client(shard, "alice", "flights")
    alice.fast_heartbeat()
    assert shape(shard.log) == [
        ConsumerGroupMemberMetadata,
        ConsumerGroupMetadata,
        ConsumerGroupTargetAssignmentMember,
        ConsumerGroupTargetAssignmentMetadata,
        ConsumerGroupCurrentMemberAssignment,
    ]
    shard.log.clear()
    alice.leave()
    assert shape(shard.log) == [
        (ConsumerGroupTombstone, ConsumerGroupCurrentMemberAssignment),
        (ConsumerGroupTombstone, ConsumerGroupTargetAssignmentMember),
        (ConsumerGroupTombstone, ConsumerGroupMemberMetadata),
        ConsumerGroupMetadata,
    ]


def test_heartbeat_of_a_stable_member_writes_nothing_and_sets_no_timer(shard: Shard) -> None:
    alice = Client(shard, "alice", "flights")
    stabilize(alice)
    effects = shard.machine.heartbeats.heartbeat(alice.request(), "t", shard.now)
    assert (effects.records, effects.timers, effects.questions) == ([], [], [])
    assert effects.answers[0].result.assignment is None


def test_second_member_is_assigned_only_released_partitions(shard: Shard) -> None:
    alice, bob = Client(shard, "alice", "flights"), Client(shard, "bob", "flights")
    alice.fast_heartbeat()
    result = bob.fast_heartbeat()
    assert result.assignment == {} and state_of(shard, "bob") is MemberState.UNRELEASED_PARTITIONS
    asked = alice.fast_heartbeat()
    assert asked.member_epoch == 2 and len(alice.topic_partitions) == 2
    assert state_of(shard, "alice") is MemberState.UNREVOKED_PARTITIONS
    assert bob.fast_heartbeat().assignment is None, "bob must wait until alice says that she gave them up"
    assert alice.fast_heartbeat().member_epoch == 3
    assert len(bob.fast_heartbeat().assignment[next(iter(alice.owned))]) == 2
    assert alice.topic_partitions.isdisjoint(bob.topic_partitions)
    assert shard.group().state is ConsumerGroupState.STABLE


def test_member_that_does_not_revoke_in_time_is_removed(shard: Shard) -> None:
    alice, bob = Client(shard, "alice", "flights", rebalance_timeout_ms=20_000), Client(shard, "bob", "flights")
    stabilize(alice)
    bob.fast_heartbeat()
    alice.fast_heartbeat(revokes=False)
    shard.advance(19_999)
    assert "alice" in shard.group().members
    alice.fast_heartbeat(revokes=False)
    shard.advance(1)
    assert "alice" not in shard.group().members
    assert alice.fast_heartbeat().error == Code.UNKNOWN_MEMBER_ID
    stabilize(bob)
    assert len(bob.topic_partitions) == 4


def test_rebalance_timeout_ends_with_the_revocation(shard: Shard) -> None:
    alice, bob = Client(shard, "alice", "flights", rebalance_timeout_ms=20_000), Client(shard, "bob", "flights")
    stabilize(alice)
    bob.fast_heartbeat()
    stabilize(alice, bob)
    shard.advance(21_000)
    assert set(shard.group().members) == {"alice", "bob"}


def test_member_is_removed_when_its_session_expires(shard: Shard) -> None:
    alice, bob = Client(shard, "alice", "flights"), Client(shard, "bob", "flights")
    stabilize(alice, bob)
    shard.advance(30_000)
    bob.fast_heartbeat()
    shard.advance(14_999)
    assert set(shard.group().members) == {"alice", "bob"}
    shard.advance(1)
    assert set(shard.group().members) == {"bob"}
    stabilize(bob)
    assert len(bob.topic_partitions) == 4
    shard.advance(45_000)
    assert shard.group().state is ConsumerGroupState.EMPTY


def test_restart_gives_every_member_a_full_session(shard: Shard) -> None:
    alice, bob = Client(shard, "alice", "flights"), Client(shard, "bob", "flights")
    stabilize(alice)
    bob.fast_heartbeat()
    alice.fast_heartbeat(revokes=False)
    shard.advance(40_000)
    living = durable(shard.machine)
    shard.restart()
    assert durable(shard.machine) == living
    shard.advance(44_999)
    assert set(shard.group().members) == {"alice", "bob"}
    shard.advance(1)
    assert not shard.group().members


def test_restart_restarts_the_rebalance_timeout(shard: Shard) -> None:
    alice, bob = Client(shard, "alice", "flights", rebalance_timeout_ms=20_000), Client(shard, "bob", "flights")
    stabilize(alice)
    bob.fast_heartbeat()
    alice.fast_heartbeat(revokes=False)
    shard.advance(15_000)
    shard.restart()
    shard.advance(19_999)
    assert "alice" in shard.group().members
    shard.advance(1)
    assert set(shard.group().members) == {"bob"}


@pytest.mark.parametrize("epoch", [1, 3, 9])
def test_unknown_member_epoch_is_fenced(shard: Shard, epoch: int) -> None:
    alice = Client(shard, "alice", "flights")
    stabilize(alice)
    alice.epoch = epoch
    assert alice.fast_heartbeat().error == Code.FENCED_MEMBER_EPOCH
    stabilize(alice)
    assert len(alice.topic_partitions) == 4


def test_lost_response_is_repeated(shard: Shard) -> None:
    alice, bob = Client(shard, "alice", "flights"), Client(shard, "bob", "flights")
    stabilize(alice)
    bob.fast_heartbeat()
    alice.fast_heartbeat()
    alice.lose_answer()
    assert alice.epoch == 2 and shard.group().current("alice").member_epoch == 3
    assert alice.fast_heartbeat().member_epoch == 3


def test_previous_epoch_with_unassigned_partitions_is_fenced(shard: Shard) -> None:
    alice, bob = Client(shard, "alice", "flights"), Client(shard, "bob", "flights")
    stabilize(alice)
    before = alice.owned
    bob.fast_heartbeat()
    alice.fast_heartbeat()
    alice.lose_answer()
    alice.owned = alice.received = before
    assert alice.fast_heartbeat().error == Code.FENCED_MEMBER_EPOCH


def test_unknown_member_is_rejected(shard: Shard) -> None:
    assert shard.heartbeat(ConsumerGroupHeartbeat("g", "eve", 4)).error == Code.GROUP_ID_NOT_FOUND
    assert shard.heartbeat(ConsumerGroupHeartbeat("g", "eve", -1)).error == Code.GROUP_ID_NOT_FOUND
    Client(shard, "alice", "flights").fast_heartbeat()
    for epoch in (4, -1):
        assert shard.heartbeat(ConsumerGroupHeartbeat("g", "eve", epoch)).error == Code.UNKNOWN_MEMBER_ID
    for epoch in (4, -1, -2):
        request = ConsumerGroupHeartbeat("g", "eve", epoch, instance_id="nobody")
        assert shard.heartbeat(request).error == Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"member_id": ""}, Code.INVALID_REQUEST),
        ({"group": " "}, Code.INVALID_REQUEST),
        ({"instance_id": ""}, Code.INVALID_REQUEST),
        ({"rack_id": ""}, Code.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, Code.INVALID_REQUEST),
        ({"owned": None}, Code.INVALID_REQUEST),
        ({"owned": {bytes(16): frozenset({1})}}, Code.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, Code.INVALID_REQUEST),
        ({"member_epoch": -2}, Code.INVALID_REQUEST),
        ({"member_epoch": -3}, Code.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, Code.UNSUPPORTED_ASSIGNOR),
    ],
)
def test_invalid_heartbeats_are_rejected(shard: Shard, changes: dict[str, object], code: Code) -> None:
    good = ConsumerGroupHeartbeat(
        "g", "alice", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=("flights",), owned={}
    )
    result = shard.heartbeat(good._replace(**changes))
    assert (result.error, bool(result.message)) == (code, True)
    assert not shard.machine.groups and not shard.log and not shard.timers


def test_full_group_rejects_new_members() -> None:
    shard = Shard(FakeTopics(flights=4), ConsumerGroupSettings(max_size=1))
    alice = Client(shard, "alice", "flights")
    stabilize(alice)
    assert Client(shard, "bob", "flights").fast_heartbeat().error == Code.GROUP_MAX_SIZE_REACHED
    assert alice.fast_heartbeat().error == Code.NONE


def test_static_member_rejoin_keeps_assignment(shard: Shard) -> None:
    alice = Client(shard, "alice-1", "flights", instance_id="host-a")
    bob = Client(shard, "bob", "flights")
    stabilize(alice, bob)
    owned, epoch = alice.owned, shard.group().epoch
    assert alice.step_aside().member_epoch == -2
    stabilize(bob)
    assert len(bob.topic_partitions) == 2, "nobody gets what a member that is away owns"
    shard.log.clear()
    again = Client(shard, "alice-2", "flights", instance_id="host-a")
    assert again.fast_heartbeat().assignment == owned
    assert shard.group().epoch == epoch, "no rebalance"
    assert shape(shard.log)[:6] == [
        (ConsumerGroupTombstone, ConsumerGroupCurrentMemberAssignment),
        (ConsumerGroupTombstone, ConsumerGroupTargetAssignmentMember),
        (ConsumerGroupTombstone, ConsumerGroupMemberMetadata),
        ConsumerGroupMemberMetadata,
        ConsumerGroupTargetAssignmentMember,
        ConsumerGroupCurrentMemberAssignment,
    ]
    alice.epoch = 2
    assert alice.fast_heartbeat().error == Code.FENCED_INSTANCE_ID


def test_active_static_member_is_not_replaced(shard: Shard) -> None:
    alice = Client(shard, "alice-1", "flights", instance_id="host-a")
    stabilize(alice)
    again = Client(shard, "alice-2", "flights", instance_id="host-a")
    assert again.fast_heartbeat().error == Code.UNRELEASED_INSTANCE_ID
    assert alice.fast_heartbeat().error == Code.NONE


def test_absent_static_member_is_removed_when_its_session_expires(shard: Shard) -> None:
    alice, bob = Client(shard, "alice", "flights", instance_id="host-a"), Client(shard, "bob", "flights")
    stabilize(alice, bob)
    alice.step_aside()
    shard.advance(44_000)
    bob.fast_heartbeat()
    shard.advance(1_000)
    assert set(shard.group().members) == {"bob"} and not shard.group().static_members


def test_static_member_leaves_permanently(shard: Shard) -> None:
    alice = Client(shard, "alice", "flights", instance_id="host-a")
    stabilize(alice)
    assert alice.leave().error == Code.NONE
    assert not shard.group().members and not shard.timers


def test_member_changes_its_instance_id(shard: Shard) -> None:
    """The first instance id is unknown afterwards."""
    stabilize(Client(shard, "alice", "flights", instance_id="host-a"))
    alice = Client(shard, "alice", "flights", instance_id="host-b")
    stabilize(alice)
    assert shard.group().static_members == {"host-b": "alice"}
    assert alice.leave().error == Code.NONE
    late = Client(shard, "alice", "flights", instance_id="host-a")
    late.epoch = 1
    assert late.fast_heartbeat().error == Code.UNKNOWN_MEMBER_ID


def test_commits_are_validated_by_member_and_partition_epoch(shard: Shard) -> None:
    alice, bob = Client(shard, "alice", "flights"), Client(shard, "bob", "flights")
    stabilize(alice)
    flights = shard.topics.topics["flights"].topic_id
    before = alice.topic_partitions
    bob.fast_heartbeat()
    alice.fast_heartbeat()
    gone = before - alice.topic_partitions
    still_to_give_up = shard.group().validate_offset_commit("alice", None, 2)
    assert {still_to_give_up.of_partition(*topic_partition) for topic_partition in before} == {Code.NONE}
    stabilize(alice, bob)
    late = shard.group().validate_offset_commit("alice", None, 2)
    assert {late.of_partition(*topic_partition) for topic_partition in alice.topic_partitions} == {Code.NONE}
    assert {late.of_partition(*topic_partition) for topic_partition in gone} == {Code.STALE_MEMBER_EPOCH}
    assert (
        shard.group().validate_offset_commit("bob", None, 2).of_partition(*min(bob.topic_partitions))
        == Code.STALE_MEMBER_EPOCH
    )
    assert {
        shard.group().validate_offset_commit("bob", None, 3).of_partition(*topic_partition)
        for topic_partition in bob.topic_partitions
    } == {Code.NONE}
    assert shard.group().validate_offset_commit("bob", None, 3).of_partition(flights, 99) == Code.NONE, "nobody has it"
    assert (
        shard.group().validate_offset_commit("bob", None, 3).of_partition(*min(alice.topic_partitions))
        == Code.STALE_MEMBER_EPOCH
    )
    assert shard.group().validate_offset_commit("alice", None, 4).code == Code.STALE_MEMBER_EPOCH
    assert shard.group().validate_offset_commit("alice", None, -1).code == Code.STALE_MEMBER_EPOCH
    assert shard.group().validate_offset_commit("eve", None, 3).of_partition(flights, 0) == Code.UNKNOWN_MEMBER_ID
    alice.leave()
    bob.leave()
    assert shard.group().validate_offset_commit("", None, -1).of_partition(flights, 0) == Code.NONE


def test_offset_fetches_are_validated_by_member_epoch(shard: Shard) -> None:
    alice = Client(shard, "alice", "flights")
    stabilize(alice)
    assert shard.group().validate_offset_fetch(None, -1) == Code.NONE
    assert shard.group().validate_offset_fetch("alice", 2) == Code.NONE
    assert shard.group().validate_offset_fetch("alice", 1) == Code.STALE_MEMBER_EPOCH
    assert shard.group().validate_offset_fetch("eve", 2) == Code.UNKNOWN_MEMBER_ID


def test_a_group_with_members_is_not_deleted(shard: Shard) -> None:
    alice = Client(shard, "alice", "flights")
    stabilize(alice)
    assert shard.group().validate_delete() == Code.NON_EMPTY_GROUP
    alice.leave()
    assert shard.group().validate_delete() == Code.NONE
    records = shard.group().delete(shard.now).records
    assert shape(records) == [(ConsumerGroupTombstone, ConsumerGroupTargetAssignmentMetadata), GroupDeleted]
    shard.append(records)
    assert not shard.machine.groups and not shard.replayed().groups


def test_describe_of_an_unknown_group_returns_nothing(shard: Shard) -> None:
    assert shard.machine.describe("g") is None
    stabilize(Client(shard, "alice", "flights"))
    assert shard.group().validate_offset_fetch("alice", 1) == Code.STALE_MEMBER_EPOCH
    shown = shard.machine.describe("g")
    assert shown is not None and shown.state == "Stable"


def test_rewind_fences_owners_and_reassigns_the_partitions(shard: Shard) -> None:
    alice, bob = Client(shard, "alice", "flights"), Client(shard, "bob", "flights", instance_id="host-b")
    stabilize(alice, bob)
    owned, old = bob.owned, bob.epoch
    topic_partition = min(bob.topic_partitions)
    rewind(shard, [topic_partition])
    assert (
        shard.group().validate_offset_commit("bob", None, old).of_partition(*topic_partition) == Code.STALE_MEMBER_EPOCH
    )
    assert alice.fast_heartbeat().error == Code.NONE and len(alice.topic_partitions) == 2
    assert bob.fast_heartbeat().error == Code.FENCED_MEMBER_EPOCH
    stabilize(alice, bob)
    assert bob.owned == owned and bob.epoch == old + 1
    assert (
        shard.group().validate_offset_commit("bob", None, old).of_partition(*topic_partition) == Code.STALE_MEMBER_EPOCH
    )
    rewind(shard, [(bytes(16), 0)])
    assert (alice.fast_heartbeat().error, bob.fast_heartbeat().error) == (Code.NONE, Code.NONE), (
        "nobody owns what is rewound"
    )
    assert bob.owned == owned and bob.epoch == old + 2


def test_a_rewind_of_a_group_without_members_writes_offsets_alone() -> None:
    shard = Shard(FakeTopics())
    group = ConsumerGroup("g", shard.machine)
    assert group.fence_owners([TopicIdPartition(bytes(16), "", 0)], shard.now).records == []


def test_rewind_keeps_a_due_target_assignment() -> None:
    shard = Shard(FakeTopics(flights=4), ConsumerGroupSettings(assignment_interval_ms=1_000))
    alice, bob = Client(shard, "alice", "flights"), Client(shard, "bob", "flights")
    alice.fast_heartbeat()
    bob.fast_heartbeat()
    rewind(shard, list(alice.topic_partitions))
    assert shard.group().state is ConsumerGroupState.ASSIGNING
    shard.advance(1_000)
    assert alice.fast_heartbeat().error == Code.FENCED_MEMBER_EPOCH
    stabilize(alice, bob)
    assert (len(alice.topic_partitions), len(bob.topic_partitions)) == (2, 2)


def test_partition_metadata_of_older_brokers_is_deleted(shard: Shard) -> None:
    shard.append([ConsumerGroupMetadata("g", 7), ConsumerGroupPartitionMetadata("g")])
    stabilize(Client(shard, "alice", "flights"))
    assert ConsumerGroupTombstone("g", ConsumerGroupPartitionMetadata) in shard.log
    assert not shard.group().has_partition_metadata


@pytest.mark.parametrize("number", [3, 99, 127])
def test_member_in_an_unknown_state_is_fenced(shard: Shard, number: int) -> None:
    alice = Client(shard, "alice", "flights")
    stabilize(alice)
    shard.append([shard.group().current("alice")._replace(state=number)])
    assert alice.fast_heartbeat().error == Code.FENCED_MEMBER_EPOCH
    stabilize(alice)
    assert len(alice.topic_partitions) == 4 and state_of(shard, "alice") is MemberState.STABLE


def test_tombstones_of_unknown_records_are_ignored(shard: Shard) -> None:
    shard.append(
        [
            ConsumerGroupTombstone("g", ConsumerGroupMemberMetadata, "alice"),
            ConsumerGroupTombstone("g", ConsumerGroupCurrentMemberAssignment, "alice"),
            GroupDeleted("g", "consumer"),
        ]
    )
    assert not shard.machine.groups
    stabilize(Client(shard, "alice", "flights"))
    shard.append([ConsumerGroupTombstone("g", ConsumerGroupRegularExpression, "x")])
    assert len(shard.group().owners) == 4


def test_describe_shows_partitions_pending_revocation(shard: Shard) -> None:
    alice, bob = Client(shard, "alice", "flights"), Client(shard, "bob", "flights")
    stabilize(alice)
    bob.fast_heartbeat()
    alice.fast_heartbeat()
    shown = describe(shard.group(), shard.settings)
    assert (shown.state, shown.epoch, shown.assignment_epoch) == ("Reconciling", 3, 3)
    assert [member.member_id for member in shown.members] == ["alice", "bob"]
    assert [sum(map(len, member.assignment.values())) for member in shown.members] == [4, 0]
    assert [sum(map(len, member.target_assignment.values())) for member in shown.members] == [2, 2]
