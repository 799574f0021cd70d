"""Classic groups become consumer groups, and back: the records, the rejected members, the responses to members."""

from collections.abc import Sequence
from typing import Any

import pytest

from kafkalite.coordinators.group.consumer_protocol_serde import ConsumerProtocolSerde
from kafkalite.coordinators.group.settings import held_of, partitions_of, topics_of
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    read_assignment,
    write,
)
from kafkalite.state.groups.classic.requests import (
    ErrorOnly,
    Heartbeat,
    Join,
    Joined,
    Leave,
    LeaveOf,
    Left,
    Sync,
    Synced,
)
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.classic.states import ClassicState
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.consumer.requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupSettings,
    HeartbeatResult,
    MigrationPolicy,
)
from kafkalite.state.groups.group import Group
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import OffsetSettings, PartitionCommit
from kafkalite.state.groups.records import (
    ClassicGroupMetadata,
    ClassicMemberRecord,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    ConsumerGroupTombstone,
    GroupDeleted,
)
from tests.kit.consumer_groups import FakeTopics, durable
from tests.story.groups.heartbeats import consumer_heartbeat, heartbeat
from tests.story.groups.simulated_shard import Shard

Piece = ConsumerProtocolAssignment.TopicPartition
GENERATION = 7
REBALANCE_MS = 20_000


def subscription(*topics: str, owned: Sequence[int] = (), owned_in: int = -1, version: int = 3) -> bytes:
    pieces = [ConsumerProtocolSubscription.TopicPartition(topic="orders", partitions=list(owned))] if owned else []
    said = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=pieces, generation_id=owned_in)
    return write(said, version)


def assignment(*partitions: int, user_data: bytes | None = None) -> bytes:
    pieces = [Piece(topic="orders", partitions=list(partitions))]
    return write(ConsumerProtocolAssignment(assigned_partitions=pieces, user_data=user_data))


def member(name: str, assigned: bytes, said: bytes | None = None) -> ClassicMemberRecord:
    said = subscription("orders") if said is None else said
    return ClassicMemberRecord(name, None, "c", "h", REBALANCE_MS, 10_000, said, assigned)


def classic_group(*members: ClassicMemberRecord, kind: str = "consumer") -> ClassicGroupMetadata:
    return ClassicGroupMetadata("g", kind, GENERATION, "range", members[0].member_id, 0, members)


class Story:
    """One group `g` in a shard, and what is asked of it."""

    def __init__(self, *records: ClassicGroupMetadata, **settings: Any) -> None:
        self.topics = FakeTopics(orders=3)
        self.topic_id = self.topics.topics["orders"].topic_id
        self.settings = ConsumerGroupSettings(assignment_interval_ms=0, **settings)
        self.shard = Shard(self._make)
        self.shard.log += records
        self.shard.restart()

    def _make(self) -> GroupMachine:
        classic = ClassicSettings(topics_of=topics_of, partitions_of=partitions_of, held_of=held_of, members_max=3)
        return GroupMachine(
            classic, OffsetSettings(), ConsumerGroups(self.topics, lambda _: self.settings, ConsumerProtocolSerde())
        )

    @property
    def machine(self) -> GroupMachine:
        return self.shard.machine

    def written(self, since: int) -> list[type]:
        return [type(record) for record in self.shard.log[since:]]

    def ask(self, command: Any) -> Any:
        return self.shard.answers.get(self.shard.ask(command))

    def fast_heartbeat(self, name: str, epoch: int = JOIN_EPOCH, **more: Any) -> HeartbeatResult:
        said: dict[str, Any] = {} if epoch else {
            "rebalance_timeout_ms": 1_000, "subscribed_topic_names": ("orders",), "owned": {},
        }  # fmt: skip
        request = ConsumerGroupHeartbeat("g", name, epoch, **(said | more))
        result = self.ask(lambda machine, token, now: consumer_heartbeat(machine, request, token, now))
        assert isinstance(result, HeartbeatResult)
        return result

    def heartbeat(self, name: str, generation: int, instance: str | None = None) -> int:
        request = Heartbeat("g", name, generation, instance)
        done = self.ask(lambda machine, token, now: heartbeat(machine, request, token, now))
        assert isinstance(done, ErrorOnly)
        return done.error

    def join(self, name: str, *, owned: Sequence[int] = (), protocol: str = "range", **more: Any) -> Joined:
        protocols = more.pop("protocols", ((protocol, subscription("orders", owned=owned)),))
        request = Join("g", name, "fresh", "consumer", protocols, 10_000, REBALANCE_MS, "c", "h", **more)
        joined = self.ask(lambda machine, token, now: machine.registry.join(request, token, now))
        assert isinstance(joined, Joined)
        return joined

    def sync(self, name: str, generation: int, protocol: str | None = None) -> Synced:
        request = Sync("g", name, generation, {}, protocol=protocol)
        synced = self.ask(lambda machine, token, now: machine.registry.sync(request, token, now))
        assert isinstance(synced, Synced)
        return synced

    def leave(self, *names: str) -> Left:
        request = Leave("g", tuple(LeaveOf(name) for name in names))
        left = self.ask(lambda machine, token, now: machine.registry.leave(request, token, now))
        assert isinstance(left, Left)
        return left

    @property
    def group(self) -> Group:
        found = self.machine.registry.get("g")
        assert found is not None
        return found

    def owned(self, name: str) -> set[int]:
        return set(self.machine.consumers.groups["g"].current(name).assigned.get(self.topic_id, {}))

    def check_replay(self) -> None:
        replayed = self.shard.replayed()
        assert durable(replayed.consumers) == durable(self.machine.consumers)
        stored = {group.name: group.stored for group in self.machine.classic.groups.values()}
        assert {group.name: group.metadata_record() for group in replayed.classic.groups.values()} == stored


def two_members() -> ClassicGroupMetadata:
    return classic_group(member("a", assignment(0, 1)), member("b", assignment(2)))


def mixed() -> Story:
    """`a` and `b` use the classic protocol, `m` the consumer protocol; no member has revoked a partition yet."""
    story = Story(two_members())
    assert story.fast_heartbeat("m").error == Error.NONE
    return story


def test_a_classic_group_is_converted_in_one_batch_of_tombstone_and_records() -> None:
    story = Story(two_members())
    since = len(story.shard.log)
    joined = story.fast_heartbeat("m")
    assert (joined.error, joined.member_epoch, joined.assignment) == (Error.NONE, GENERATION + 1, {})
    assert story.shard.log[since] == GroupDeleted("g", "classic")
    converted = [
        *[ConsumerGroupMemberMetadata] * 2,
        ConsumerGroupMetadata,
        *[ConsumerGroupTargetAssignmentMember] * 2,
        ConsumerGroupTargetAssignmentMetadata,
        *[ConsumerGroupCurrentMemberAssignment] * 2,
    ]
    assert story.written(since + 1)[: len(converted)] == converted
    first = story.shard.log[since + 1]
    assert isinstance(first, ConsumerGroupMemberMetadata) and first.classic is not None
    assert first.classic.protocols == (("range", subscription("orders")),)
    assert story.machine.consumers.groups["g"].current("a") == ConsumerGroupCurrentMemberAssignment(
        "g", "a", GENERATION, GENERATION, 0, {story.topic_id: {0: GENERATION, 1: GENERATION}}, {}
    )
    assert "g" not in story.machine.classic.groups
    described = story.machine.consumers.describe("g")
    assert described is not None
    assert [(each.member_id, each.speaks_classic) for each in described.members] == [
        ("a", True), ("b", True), ("m", False),
    ]  # fmt: skip
    story.check_replay()


@pytest.mark.parametrize(
    ("group", "settings", "why"),
    [
        (two_members(), {"migration": MigrationPolicy.DISABLED}, "online upgrade is disabled"),
        (two_members(), {"migration": MigrationPolicy.DOWNGRADE}, "online upgrade is disabled"),
        (classic_group(member("a", b""), kind="connect"), {}, "does not use the consumer embedded protocol"),
        (two_members(), {"max_size": 1}, "exceeds the consumer group maximum size"),
        (classic_group(member("a", b"", b"?")), {}, "is malformed"),
        (classic_group(member("a", b"?")), {}, "is malformed"),
        (classic_group(member("a", assignment(0, user_data=b"u"))), {}, "an unsupported custom assignor"),
    ],
)
def test_group_that_cannot_be_converted_stays_classic(group: ClassicGroupMetadata, settings: Any, why: str) -> None:
    story = Story(group, **settings)
    refused = story.fast_heartbeat("m")
    assert refused.error == Error.GROUP_ID_NOT_FOUND
    assert refused.message is not None and why in refused.message
    assert story.fast_heartbeat("m", 3).error == Error.GROUP_ID_NOT_FOUND
    assert story.shard.log == [group]
    assert story.heartbeat("a", GENERATION) == Error.NONE


def test_rejected_heartbeat_converts_no_group() -> None:
    story = Story(two_members(), max_size=2)
    assert story.fast_heartbeat("m").error == Error.GROUP_MAX_SIZE_REACHED
    assert story.shard.log == [two_members()]
    assert story.heartbeat("b", GENERATION) == Error.NONE


def test_conversion_makes_delayed_members_rejoin() -> None:
    story = Story(two_members())
    request = Join("g", "a", "", "consumer", (("range", subscription("orders")),), 10_000, REBALANCE_MS, "c", "h")
    waits = story.shard.ask(lambda machine, token, now: machine.registry.join(request, token, now))
    assert waits not in story.shard.answers
    assert story.fast_heartbeat("m").error == Error.NONE
    assert story.shard.answers[waits] == Joined(Error.REBALANCE_IN_PROGRESS, "a")
    assert {name[0] for name in story.shard.timers} == {"consumer"}


def test_member_with_unknown_partitions_is_not_converted() -> None:
    """Its assignment was dropped by a second rebalance, but it may have kept what it had before."""
    story = Story(two_members())
    for name in ("a", "b"):
        request = Join("g", name, "", "consumer", (("range", subscription("orders")),), 10_000, REBALANCE_MS, "c", "h")
        story.shard.ask(lambda machine, token, now, request=request: machine.registry.join(request, token, now))
    group = story.machine.classic.groups.get("g")
    assert group is not None and group.state is ClassicState.COMPLETING
    assert story.leave("b").members[0].error == Error.NONE
    assert story.fast_heartbeat("m").assignment == {story.topic_id: frozenset(range(3))}
    assert story.heartbeat("a", GENERATION + 1) == Error.UNKNOWN_MEMBER_ID
    assert story.join("a", owned=[0]).error == Error.UNKNOWN_MEMBER_ID
    assert story.join("a").error == Error.NONE


def rejoin(story: Story, name: str, *owned: int, instance: str | None = None) -> None:
    """The member waits for the others, and reports partitions of the generation before the last."""
    said = subscription("orders", owned=owned, owned_in=GENERATION - 1)
    request = Join("g", name, "", "consumer", (("range", said),), 10_000, REBALANCE_MS, "c", "h", instance)
    story.shard.ask(lambda machine, token, now: machine.registry.join(request, token, now))


def test_claims_do_not_override_newer_assignments() -> None:
    """A static member missed the last generation, and joins the next one with all that it had before."""
    static = member("a", assignment(0))._replace(group_instance_id="i")
    story = Story(classic_group(static, member("b", assignment(1))))
    rejoin(story, "a", 0, 1, 2, instance="i")
    assert story.fast_heartbeat("m").error == Error.NONE
    assert (story.owned("a"), story.owned("b")) == ({0}, {1})
    assert story.heartbeat("b", GENERATION) == Error.REBALANCE_IN_PROGRESS
    late = story.group.validate_offset_commit("a", "i", GENERATION)
    codes = [late.of_partition(story.topic_id, partition) for partition in range(3)]
    assert codes == [Error.NONE, Error.ILLEGAL_GENERATION, Error.ILLEGAL_GENERATION]


@pytest.mark.parametrize(("still", "owned"), [((0,), {0}), ((0, 1), {0, 1}), ((0, 1, 2), {0, 1})])
def test_revoked_partition_belongs_to_its_owner_until_it_is_released(still: Sequence[int], owned: set[int]) -> None:
    said = subscription("orders", owned=(0, 1), owned_in=GENERATION - 1)
    story = Story(classic_group(member("a", assignment(0), said), member("b", assignment())))
    rejoin(story, "a", *still)
    assert story.fast_heartbeat("m").error == Error.NONE
    assert story.owned("a") == owned


def test_newer_of_two_claims_counts() -> None:
    old = subscription("orders", owned=(0, 1), owned_in=GENERATION - 2)
    new = subscription("orders", owned=(1,), owned_in=GENERATION - 1)
    story = Story(classic_group(member("a", b"", old), member("b", assignment(2), new)))
    assert story.fast_heartbeat("m").error == Error.NONE
    assert (story.owned("a"), story.owned("b")) == ({0}, {1, 2})


def test_member_with_overlapping_assignment_is_not_converted() -> None:
    story = Story(classic_group(member("a", assignment(0, 1)), member("b", assignment(1, 2))))
    assert story.fast_heartbeat("m").error == Error.NONE
    assert story.owned("a") == {0, 1}
    assert story.heartbeat("b", GENERATION) == Error.UNKNOWN_MEMBER_ID


def test_generation_continues_when_an_empty_group_changes_its_type() -> None:
    """A member that comes back under its old id must not meet the generation in which it committed before."""
    story = Story(two_members())
    story.leave("a", "b")
    assert story.fast_heartbeat("m").member_epoch > GENERATION + 1
    assert story.join("a").generation > GENERATION + 1
    late = story.group.validate_offset_commit("a", None, GENERATION)
    assert late.code == Error.ILLEGAL_GENERATION
    epoch = story.machine.consumers.groups["g"].epoch
    story.leave("a", "m")
    story.check_replay()
    waits = story.join("")
    assert waits.error == Error.MEMBER_ID_REQUIRED
    group = story.machine.classic.groups.get("g")
    assert group is not None and group.generation > epoch, "it was a consumer group without members"
    story.check_replay()
    assert story.leave(waits.member_id).members[0].error == Error.NONE
    assert story.fast_heartbeat("m").member_epoch > epoch + 1
    story.check_replay()


def test_simple_group_becomes_a_group_on_join() -> None:
    story = Story(ClassicGroupMetadata("g", "", 0, None, None, 0, ()))
    assert story.fast_heartbeat("m").member_epoch == Story().fast_heartbeat("m").member_epoch


def test_classic_member_releases_partitions_by_its_own_requests() -> None:
    story = mixed()
    assert story.heartbeat("a", GENERATION - 1) == Error.ILLEGAL_GENERATION
    assert story.heartbeat("m", GENERATION + 1) == Error.UNKNOWN_MEMBER_ID
    assert story.heartbeat("a", GENERATION) == Error.REBALANCE_IN_PROGRESS
    assert ("consumer", "join", "g", "a") in story.shard.timers
    joined = story.join("a", owned=[0, 1])
    assert joined == Joined(0, "a", GENERATION, "consumer", "range")
    assert ("consumer", "join", "g", "a") not in story.shard.timers
    assert story.sync("a", GENERATION, "other").error == Error.INCONSISTENT_GROUP_PROTOCOL
    synced = story.sync("a", GENERATION, "range")
    (kept,) = read_assignment(synced.assignment).assigned_partitions
    assert (kept.topic, set(kept.partitions)) == ("orders", story.owned("a"))
    assert len(kept.partitions) == 1
    assert story.heartbeat("a", GENERATION) == Error.REBALANCE_IN_PROGRESS, "it is to give one up"
    (given_up,) = {0, 1} - set(kept.partitions)
    assert story.fast_heartbeat("m", GENERATION + 1).assignment is None, "it has not said that it gave it up"
    assert story.join("a", owned=kept.partitions).generation == GENERATION + 1
    assert story.fast_heartbeat("m", GENERATION + 1).assignment == {story.topic_id: frozenset({given_up})}
    assert story.sync("a", GENERATION + 1).error == Error.NONE
    assert story.heartbeat("a", GENERATION + 1) == Error.NONE
    story.check_replay()


def test_late_commit_of_a_reassigned_partition_is_rejected() -> None:
    story = mixed()
    (moved,) = {0, 1} - set(story.machine.consumers.groups["g"].targets["a"].get(story.topic_id, frozenset()))
    story.join("a", owned=[0, 1])
    check = story.group.validate_offset_commit("a", None, GENERATION)
    assert check.of_partition(story.topic_id, moved) == Error.NONE, "it may commit what it is to give up"
    story.join("a", owned=[1 - moved])
    story.fast_heartbeat("m", GENERATION + 1)
    late = story.group.validate_offset_commit("a", None, GENERATION + 1)
    assert late.of_partition(story.topic_id, moved) == Error.ILLEGAL_GENERATION
    assert late.of_partition(story.topic_id, 1 - moved) == Error.NONE
    assert story.group.validate_offset_commit("a", None, GENERATION).code == Error.ILLEGAL_GENERATION


@pytest.mark.parametrize("kind", ["join", "sync"])
def test_member_without_join_or_sync_in_time_is_removed(kind: str) -> None:
    story = mixed()
    assert story.heartbeat("a", GENERATION) == Error.REBALANCE_IN_PROGRESS
    if kind == "sync":
        story.join("a", owned=[0, 1])
    for _ in range(5):
        story.shard.advance(REBALANCE_MS // 5)
        story.heartbeat("a", GENERATION)
    assert story.heartbeat("a", GENERATION) == Error.UNKNOWN_MEMBER_ID


def test_new_classic_member_needs_an_id_and_a_common_protocol() -> None:
    story = mixed()
    assert story.join("") == Joined(Error.MEMBER_ID_REQUIRED, "c-fresh")
    assert story.join("", protocol="sticky").error == Error.INCONSISTENT_GROUP_PROTOCOL
    assert story.join("", protocols=(("range", b"?"),)).error == Error.INCONSISTENT_GROUP_PROTOCOL
    assert story.join("", protocols=()).error == Error.INCONSISTENT_GROUP_PROTOCOL
    assert story.join("c-fresh", owned=[1]).error == Error.UNKNOWN_MEMBER_ID
    joined = story.join("c-fresh")
    assert (joined.error, joined.generation, joined.leader, joined.members) == (0, GENERATION + 2, "", ())


def test_a_static_member_changes_over_and_back() -> None:
    story = Story(classic_group(member("a", assignment(0, 1))._replace(group_instance_id="i"), member("b", b"")))
    joined = story.fast_heartbeat("m", instance_id="i")
    assert joined.assignment is not None and joined.assignment[story.topic_id] == {0, 1}
    assert story.heartbeat("a", GENERATION, "i") == Error.FENCED_INSTANCE_ID
    assert story.sync("a", GENERATION).error == Error.UNKNOWN_MEMBER_ID
    request = Join(
        "g", "", "new", "consumer", (("range", subscription("orders")),), 10_000, REBALANCE_MS, "c", "h", "i"
    )
    waits = story.shard.ask(lambda machine, token, now: machine.registry.join(request, token, now))
    assert waits not in story.shard.answers, "the group is a classic one again and waits for the other member"
    group = story.machine.classic.groups.get("g")
    assert group is not None and set(group.members.all) == {"b", "i-new"}
    assert story.machine.consumers.groups == {}
    story.check_replay()


def test_last_consumer_member_leaving_downgrades_the_group() -> None:
    story = mixed()
    since, epoch = len(story.shard.log), story.machine.consumers.groups["g"].epoch
    assert story.fast_heartbeat("m", LEAVE_EPOCH).error == Error.NONE
    written = story.shard.log[since:]
    assert {type(record) for record in written[:-2]} == {ConsumerGroupTombstone}
    assert written[-2] == GroupDeleted("g", "consumer")
    stored = written[-1]
    assert isinstance(stored, ClassicGroupMetadata)
    assert [(each.member_id, each.assignment) for each in stored.members] == [
        ("a", assignment(0, 1)),
        ("b", assignment(2)),
    ]
    group = story.machine.classic.groups.get("g")
    assert group is not None and (group.state, group.generation) == (ClassicState.PREPARING, epoch)
    assert stored.generation == epoch + 1, "nobody knows it: a restart leads to a rebalance, too"
    assert {name[0] for name in story.shard.timers} == {"classic"}
    story.check_replay()


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL])
def test_migration_policy_controls_downgrade(policy: MigrationPolicy) -> None:
    story = Story(two_members(), migration=policy)
    story.fast_heartbeat("m")
    story.leave("m")
    assert ("g" in story.machine.classic.groups) == policy.downgrades
    assert ("g" in story.machine.consumers.groups) != policy.downgrades


def test_a_disabled_policy_keeps_classic_members_out() -> None:
    story = Story(migration=MigrationPolicy.DISABLED)
    assert story.fast_heartbeat("m").error == Error.NONE
    assert story.join("").error == Error.INCONSISTENT_GROUP_PROTOCOL


def test_session_expiry_of_the_last_consumer_member_downgrades_the_group() -> None:
    story = Story(two_members(), session_timeout_ms=5_000)
    story.fast_heartbeat("m")
    story.shard.advance(5_000)
    assert "g" in story.machine.classic.groups


def test_the_session_of_a_converted_member_is_its_own() -> None:
    story = mixed()
    story.shard.restart()
    story.shard.advance(10_000)
    assert set(story.machine.consumers.groups["g"].members) == {"m"}


def test_members_of_both_protocols_are_removed_by_leave_group() -> None:
    story = mixed()
    left = story.leave("a", "a", "nobody", "m")
    assert [each.error for each in left.members] == [0, Error.UNKNOWN_MEMBER_ID, Error.UNKNOWN_MEMBER_ID, 0]
    group = story.machine.classic.groups.get("g")
    assert group is not None and set(group.members.all) == {"b"}


def test_a_rewind_removes_classic_owners() -> None:
    story = mixed()
    wanted = [PartitionCommit("orders", 0, 5, topic_id=story.topic_id)]
    story.ask(lambda machine, token, now: machine.rewind("g", wanted, token, now))
    assert story.heartbeat("a", GENERATION) == Error.UNKNOWN_MEMBER_ID
    assert story.heartbeat("b", GENERATION) == Error.REBALANCE_IN_PROGRESS
    assert story.join("a", owned=[0]).error == Error.UNKNOWN_MEMBER_ID
    assert story.group.validate_offset_commit("a", None, GENERATION).code == Error.UNKNOWN_MEMBER_ID
    assert story.fast_heartbeat("m", GENERATION + 1).error == Error.NONE
    targets = story.machine.consumers.groups["g"].targets
    assert set(targets) == {"b", "m"}
    assert any(0 in target.get(story.topic_id, ()) for target in targets.values()), "it is assigned anew"
    story.check_replay()
