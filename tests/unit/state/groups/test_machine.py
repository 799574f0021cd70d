"""A whole shard: what concerns groups and offsets together."""

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.effects import Effects, Now
from kafkalite.state.groups.classic.requests import Join, Joined
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.consumer.requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupSettings,
    HeartbeatResult,
    Topic,
)
from kafkalite.state.groups.group import DescribedGroup, ListedGroup
from kafkalite.state.groups.machine import GroupMachine, GroupsDeleted
from kafkalite.state.groups.offsets.manager import OffsetSettings
from kafkalite.state.groups.records import (
    ClassicGroupMetadata,
    ClassicMemberRecord,
    GroupDeleted,
    OffsetCommitted,
    OffsetDeleted,
)
from tests.story.groups.simulated_shard import delete_topic

RETENTION_MS = 1_000
NOW = Now(5, RETENTION_MS)
LATER = Now(6, 10 * RETENTION_MS)


class NoTopics:
    """A cluster without topics."""

    def by_name(self, name: str) -> Topic | None:
        return None

    def by_id(self, topic_id: bytes) -> Topic | None:
        return None


def shard(*records: ClassicGroupMetadata | OffsetCommitted) -> GroupMachine:
    consumers = ConsumerGroups(NoTopics(), lambda _: ConsumerGroupSettings())
    made = GroupMachine(ClassicSettings(), OffsetSettings(RETENTION_MS), consumers)
    for record in records:
        made.apply(record)
    for effects in made.start_timers(NOW):
        assert effects.records == []
    return made


def emptied(name: str, since_ms: int = 0) -> ClassicGroupMetadata:
    return ClassicGroupMetadata(name, "consumer", 4, None, None, since_ms, ())


def committed(group: str, topic: str = "t") -> OffsetCommitted:
    return OffsetCommitted(group, topic, 0, 1, -1, "", 0)


def run(machine: GroupMachine, effects: Effects) -> list[object]:
    for record in effects.records:
        machine.apply(record)
    return effects.records


def test_simple_group_is_listed_as_empty() -> None:
    machine = shard(emptied("g"), committed("g"), committed("simple"))
    assert [*machine.list_groups()] == [ListedGroup("g", "consumer", "Empty"), ListedGroup("simple", "", "Empty")]
    assert machine.describe("simple") == DescribedGroup("Empty")
    assert machine.describe("nobody") is None
    assert machine.names() == ["g", "simple"]


def test_groups_are_deleted_with_their_offsets() -> None:
    machine = shard(emptied("g"), committed("g"), committed("simple"), committed(""))
    effects = machine.delete_groups(["g", "simple", "g", "nobody", "", ""], "t", NOW)
    gone = Error.GROUP_ID_NOT_FOUND
    errors = (0, 0, gone, gone, 0, gone)
    assert effects.answers == [("t", GroupsDeleted(errors))]
    assert run(machine, effects) == [
        OffsetDeleted("g", "t", 0),
        GroupDeleted("g", "classic"),
        OffsetDeleted("simple", "t", 0),
        GroupDeleted("simple", "classic"),
        OffsetDeleted("", "t", 0),
        GroupDeleted("", "classic"),
    ]
    assert machine.names() == []


def test_expiration_deletes_old_offsets_and_then_the_group() -> None:
    machine = shard(emptied("g", since_ms=1), committed("g"), committed("simple"))
    assert run(machine, machine.expire_offsets(machine.names(), NOW)) == [OffsetDeleted("simple", "t", 0)]
    assert run(machine, machine.expire_offsets(machine.names(), LATER)) == [
        OffsetDeleted("g", "t", 0),
        GroupDeleted("g", "classic"),
    ]
    assert machine.names() == []


def test_expiration_keeps_a_group_with_a_reserved_member_id() -> None:
    machine = shard()
    request = Join("g", "", "1", "consumer", (("range", b""),), 10_000, 10_000, "c", "h")
    founded = run(machine, machine.classic.join(request, "j", NOW))
    assert founded == [ClassicGroupMetadata("g", "", 0, None, None, NOW.wall_ms, ())]
    assert machine.expire_offsets(["g"], LATER) == Effects()
    run(machine, machine.fire_timer(("classic", "g", "session", "c-1"), LATER))
    assert run(machine, machine.expire_offsets(["g"], LATER)) == [GroupDeleted("g", "classic")]


def test_topic_deletion_deletes_its_offsets() -> None:
    machine = shard(committed("g"), committed("h", "other"))
    assert run(machine, delete_topic(machine, "t")) == [OffsetDeleted("g", "t", 0)]
    assert machine.names() == ["h"]


def test_record_with_duplicate_members_is_restored() -> None:
    one = ClassicMemberRecord("a", "i", "c", "h", -1, 10_000, b"", b"1")
    twice = (one, one._replace(assignment=b"2"), one._replace(member_id="b"))
    machine = shard(ClassicGroupMetadata("g", "consumer", 4, "range", "gone", 0, twice))
    described = machine.describe("g")
    assert described is not None
    assert [(member.member_id, member.rebalance_timeout_ms) for member in described.members] == [("b", 10_000)]
    group = machine.classic.groups.get("g")
    assert group is not None and group.members.leader == "b"


def fast_heartbeat(machine: GroupMachine, epoch: int) -> tuple[list[object], HeartbeatResult]:
    asked = ConsumerGroupHeartbeat("g", "m", epoch, None, None, 1_000, ("t",), owned={})
    effects = machine.registry.consumer_heartbeat(asked, "t", NOW)
    result = effects.answers[-1].result
    assert isinstance(result, HeartbeatResult)
    return run(machine, effects), result


def classic_join(machine: GroupMachine) -> tuple[list[object], Joined]:
    request = Join("g", "", "1", "consumer", (("range", b""),), 10_000, 10_000, "c", "h")
    effects = machine.registry.join(request, "j", NOW)
    result = effects.answers[-1].result
    assert isinstance(result, Joined)
    return run(machine, effects), result


def test_empty_group_changes_its_type_and_group_with_members_does_not() -> None:
    machine = shard(emptied("g"), committed("g"))
    records, result = fast_heartbeat(machine, 0)
    assert result.error == Error.NONE and records[0] == GroupDeleted("g", "classic")
    assert [(listed.group, listed.group_type) for listed in machine.list_groups()] == [("g", "consumer")]
    assert machine.describe("g") is None, "a consumer group is described by its own request"
    assert machine.consumers.groups["g"].validate_offset_commit("m", None, result.member_epoch).code == Error.NONE
    assert machine.consumers.groups["g"].validate_offset_commit("", None, -1).code == Error.UNKNOWN_MEMBER_ID
    records, joined = classic_join(machine)
    assert (records, joined.error) == ([], Error.INCONSISTENT_GROUP_PROTOCOL)
    assert machine.delete_groups(["g"], "t", NOW).answers == [("t", GroupsDeleted((Error.NON_EMPTY_GROUP,)))]
    fast_heartbeat(machine, -1)
    records, joined = classic_join(machine)
    assert joined.error == Error.MEMBER_ID_REQUIRED
    assert GroupDeleted("g", "consumer") in records and isinstance(records[-1], ClassicGroupMetadata)
    assert [(listed.group, listed.group_type) for listed in machine.list_groups()] == [("g", "classic")]
    assert len(machine.offsets) == 1, "the offsets stay with the name"


def test_members_of_a_classic_group_keep_it_classic() -> None:
    member = ClassicMemberRecord("a", None, "c", "h", 1_000, 10_000, b"", b"")
    machine = shard(ClassicGroupMetadata("g", "consumer", 4, "range", "a", 0, (member,)))
    records, result = fast_heartbeat(machine, 0)
    assert (records, result.error) == ([], Error.GROUP_ID_NOT_FOUND)


def test_empty_consumer_group_is_deleted_with_its_last_offset() -> None:
    machine = shard(committed("g"))
    fast_heartbeat(machine, 0)
    fast_heartbeat(machine, -1)
    assert machine.names() == ["g"]
    swept = run(machine, machine.expire_offsets(["g"], LATER))
    assert swept[0] == OffsetDeleted("g", "t", 0) and swept[-1] == GroupDeleted("g", "consumer")
    assert machine.names() == []
