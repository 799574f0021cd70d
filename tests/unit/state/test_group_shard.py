"""A whole shard: what concerns groups and offsets together."""

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.classic_core import ClassicSettings
from kafkalite.state.classic_requests import Described, Join, Listed
from kafkalite.state.effects import Effects, Now
from kafkalite.state.group_records import ClassicGroup, ClassicMember, GroupDeleted, OffsetCommitted, OffsetDeleted
from kafkalite.state.group_shard import GroupsDeleted, GroupShard
from kafkalite.state.offsets import OffsetSettings

RETENTION_MS = 1_000
NOW = Now(5, RETENTION_MS)
LATER = Now(6, 10 * RETENTION_MS)


def shard(*records: ClassicGroup | OffsetCommitted) -> GroupShard:
    made = GroupShard(ClassicSettings(), OffsetSettings(RETENTION_MS))
    for record in records:
        made.apply(record)
    made.loaded(NOW)
    return made


def emptied(name: str, since_ms: int = 0) -> ClassicGroup:
    return ClassicGroup(name, "consumer", 4, None, None, since_ms, ())


def committed(group: str, topic: str = "t") -> OffsetCommitted:
    return OffsetCommitted(group, topic, 0, 1, -1, "", 0)


def run(machine: GroupShard, effects: Effects) -> list[object]:
    for record in effects.records:
        machine.apply(record)  # type: ignore[arg-type]
    return effects.records


def test_a_group_of_offsets_alone_is_listed_as_empty() -> None:
    machine = shard(emptied("g"), committed("g"), committed("simple"))
    assert machine.listed() == [Listed("g", "consumer", "Empty"), Listed("simple", "", "Empty")]
    assert machine.describe("simple") == Described("Empty")
    assert machine.describe("nobody") is None
    assert machine.names() == ["g", "simple"]


def test_groups_are_deleted_with_their_offsets() -> None:
    machine = shard(emptied("g"), committed("g"), committed("simple"))
    effects = machine.delete_groups(["g", "simple", "g", "nobody", ""], "t", NOW)
    errors = (0, 0, Error.GROUP_ID_NOT_FOUND, Error.GROUP_ID_NOT_FOUND, Error.INVALID_GROUP_ID)
    assert effects.answers == [("t", GroupsDeleted(errors))]
    assert run(machine, effects) == [
        OffsetDeleted("g", "t", 0),
        GroupDeleted("g", "classic"),
        OffsetDeleted("simple", "t", 0),
        GroupDeleted("simple", "classic"),
    ]
    assert machine.names() == []


def test_the_sweep_takes_old_offsets_and_then_the_group() -> None:
    machine = shard(emptied("g", since_ms=1), committed("g"), committed("simple"))
    assert run(machine, machine.sweep(machine.names(), NOW)) == [OffsetDeleted("simple", "t", 0)]
    assert run(machine, machine.sweep(machine.names(), LATER)) == [
        OffsetDeleted("g", "t", 0),
        GroupDeleted("g", "classic"),
    ]
    assert machine.names() == []


def test_the_sweep_leaves_a_group_that_somebody_is_about_to_join() -> None:
    machine = shard()
    request = Join("g", "", "1", "consumer", (("range", b""),), 10_000, 10_000, "c", "h")
    founded = run(machine, machine.classic.join(request, "j", NOW))
    assert founded == [ClassicGroup("g", "", 0, None, None, NOW.wall_ms, ())]
    assert machine.sweep(["g"], LATER) == Effects()
    run(machine, machine.expired(("classic", "g", "session", "c-1"), LATER))
    assert run(machine, machine.sweep(["g"], LATER)) == [GroupDeleted("g", "classic")]


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    machine = shard(committed("g"), committed("h", "other"))
    assert run(machine, machine.topic_deleted("t")) == [OffsetDeleted("g", "t", 0)]
    assert machine.names() == ["h"]


def test_a_record_that_names_members_twice_is_read_all_the_same() -> None:
    one = ClassicMember("a", "i", "c", "h", -1, 10_000, b"", b"1")
    twice = (one, one._replace(assignment=b"2"), one._replace(member_id="b"))
    machine = shard(ClassicGroup("g", "consumer", 4, "range", "gone", 0, twice))
    described = machine.describe("g")
    assert described is not None
    assert [(member.member_id, member.rebalance_timeout_ms) for member in described.members] == [("b", 10_000)]
    group = machine.classic.get("g")
    assert group is not None and group.members.leader == "b"
