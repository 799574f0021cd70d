"""Classic groups from the view of their consumers, which join, commit, restart, expire and leave."""

from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import ZERO_UUID
from kafkalite.state.effects import Token
from kafkalite.state.groups.classic.groups import ClassicGroups
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
from kafkalite.state.groups.group import TopicIdPartition
from kafkalite.state.groups.records import ClassicGroupMetadata, GroupDeleted
from tests.story.groups.simulated_shard import Shard

DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = (("range", b"orders"),)


class Story:
    """A group "g" and the requests of its consumers."""

    def __init__(self, **settings: Any) -> None:
        self.shard = Shard(lambda: ClassicGroups(ClassicSettings(**settings)))
        self._ids = 0

    def ask_to_join(self, member_id: str = "", **changes: Any) -> Token:
        self._ids += 1
        request = Join(
            group="g",
            member_id=member_id,
            fresh_id=str(self._ids),
            protocol_type="consumer",
            protocols=RANGE,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            client_id="c",
            client_host="127.0.0.1",
        )._replace(**changes)
        return self.shard.ask(lambda machine, token, now: machine.join(request, token, now))

    def join(self, member_id: str = "", **changes: Any) -> Joined:
        return self.joined(self.ask_to_join(member_id, **changes))

    def joined(self, token: Token) -> Joined:
        answer = self.shard.answers[token]
        assert isinstance(answer, Joined)
        return answer

    def ask_to_sync(self, member_id: str, generation: int, **assignments: bytes) -> Token:
        parts = {name.replace("_", "-"): part for name, part in assignments.items()}
        return self.shard.ask(lambda m, token, now: m.sync(Sync("g", member_id, generation, parts), token, now))

    def synced(self, token: Token) -> Synced:
        answer = self.shard.answers[token]
        assert isinstance(answer, Synced)
        return answer

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> int:
        request = Heartbeat("g", member_id, generation, instance)
        answer = self.shard.answers[self.shard.ask(lambda m, token, now: m.heartbeat(request, token, now))]
        assert isinstance(answer, ErrorOnly)
        return answer.error

    def leave(self, *members: LeaveOf) -> Left:
        answer = self.shard.answers[self.shard.ask(lambda m, t, now: m.leave(Leave("g", members), t, now))]
        assert isinstance(answer, Left)
        return answer

    @property
    def state(self) -> str:
        group = self.shard.machine.groups.get("g")
        return "Dead" if group is None else group.describe().state

    def stable(self, count: int = 1, **changes: Any) -> list[str]:
        """The members of a Stable group in generation 1; the first is the leader."""
        ids = [self.join(**changes).member_id for _ in range(count)]
        tokens = [self.ask_to_join(member_id, **changes) for member_id in ids]
        self.shard.advance(2 * DELAY_MS)
        assert all(self.joined(token).generation == 1 for token in tokens)
        syncs = [self.ask_to_sync(member_id, 1) for member_id in ids[1:]]
        assert not any(token in self.shard.answers for token in syncs), "they wait for the leader"
        parts = {name.replace("-", "_"): name.encode() for name in ids}
        syncs.insert(0, self.ask_to_sync(ids[0], 1, **parts))
        assert [self.synced(token).assignment for token in syncs] == [name.encode() for name in ids]
        assert self.state == "Stable"
        return ids


def test_two_consumers_join_and_sync() -> None:
    story = Story()
    one, other = story.stable(2)
    assert story.heartbeat(one, 1) == story.heartbeat(other, 1) == Error.NONE
    founded, assigned = story.shard.log
    assert isinstance(founded, ClassicGroupMetadata) and isinstance(assigned, ClassicGroupMetadata)
    assert founded == ClassicGroupMetadata("g", "", 0, None, None, founded.state_timestamp_ms, ())
    assert (assigned.generation, assigned.protocol, assigned.leader) == (1, "range", one)
    assert [member.assignment for member in assigned.members] == [one.encode(), other.encode()]


def test_new_member_joins_again_with_its_reserved_id() -> None:
    story = Story()
    received = story.join()
    assert (received.error, received.member_id) == (Error.MEMBER_ID_REQUIRED, "c-1")
    assert story.state == "Empty"
    story.shard.advance(SESSION_MS)
    assert story.join("c-1").error == Error.UNKNOWN_MEMBER_ID, "the id was not used in time"


def test_client_before_v4_joins_without_reserved_id() -> None:
    story = Story()
    token = story.ask_to_join(member_id_required=False)
    story.shard.advance(DELAY_MS)
    assert story.joined(token).generation == 1


def test_joins_extend_initial_delay_up_to_rebalance_timeout() -> None:
    story = Story()
    first = story.ask_to_join(member_id_required=False, rebalance_timeout_ms=7_000)
    for _ in range(2):
        story.shard.advance(DELAY_MS - 1)
        story.ask_to_join(member_id_required=False, rebalance_timeout_ms=7_000)
        assert first in story.shard.waiting
        story.shard.advance(1)
        assert first in story.shard.waiting
    story.shard.advance(999)
    assert first in story.shard.waiting
    story.shard.advance(1)
    assert story.joined(first).generation == 1
    assert len(story.joined(first).members) == 3


def test_join_of_new_member_rebalances_stable_group() -> None:
    story = Story()
    (one,) = story.stable()
    late = story.ask_to_join(story.join().member_id)
    assert story.heartbeat(one, 1) == Error.REBALANCE_IN_PROGRESS
    assert story.synced(story.ask_to_sync(one, 1)).error == Error.REBALANCE_IN_PROGRESS
    again = story.ask_to_join(one)
    assert story.joined(again).generation == story.joined(late).generation == 2
    assert story.joined(late).members == () and len(story.joined(again).members) == 2
    assert story.heartbeat(one, 1) == Error.ILLEGAL_GENERATION


def test_member_that_misses_rebalance_timeout_is_removed() -> None:
    story = Story()
    one, other = story.stable(2, session_timeout_ms=120_000)
    again = story.ask_to_join(one)
    story.shard.advance(REBALANCE_MS)
    assert story.joined(again).generation == 2
    assert story.heartbeat(other, 1) == Error.UNKNOWN_MEMBER_ID


def test_expired_session_removes_member_and_rebalances() -> None:
    story = Story()
    one, other = story.stable(2)
    story.shard.advance(SESSION_MS - 1)
    assert story.heartbeat(other, 1) == Error.NONE
    story.shard.advance(1)
    assert story.heartbeat(one, 1) == Error.UNKNOWN_MEMBER_ID
    assert story.heartbeat(other, 1) == Error.REBALANCE_IN_PROGRESS
    rejoined = story.join(other)
    assert (rejoined.generation, rejoined.leader) == (2, other)


def test_empty_group_can_be_deleted_after_last_member_leaves() -> None:
    story = Story()
    (one,) = story.stable()
    machine = story.shard.machine
    assert machine.groups["g"].validate_delete() == Error.NON_EMPTY_GROUP
    assert story.leave(LeaveOf(one)).members[0].error == Error.NONE
    emptied = story.shard.log[-1]
    assert isinstance(emptied, ClassicGroupMetadata)
    assert (emptied.generation, emptied.protocol_type, emptied.protocol, emptied.members) == (2, "consumer", None, ())
    assert machine.groups["g"].validate_delete() == Error.NONE
    story.shard.do(machine.groups["g"].delete(story.shard.now))
    assert story.shard.log[-1] == GroupDeleted("g", "classic")
    assert story.state == "Dead" and "g" not in machine.groups


def test_rejoin_of_leader_rebalances_and_of_follower_does_not() -> None:
    story = Story()
    one, other = story.stable(2)
    assert story.join(other).generation == 1, "nothing is new"
    assert story.state == "Stable"
    story.ask_to_join(one)
    assert story.state == "PreparingRebalance"


def test_members_that_miss_sync_timeout_are_removed() -> None:
    story = Story()
    ids = [story.join(session_timeout_ms=120_000).member_id for _ in range(2)]
    for member_id in ids:
        story.ask_to_join(member_id, session_timeout_ms=120_000)
    story.shard.advance(2 * DELAY_MS)
    sync = story.ask_to_sync(ids[1], 1)
    story.shard.advance(REBALANCE_MS)
    assert story.synced(sync).error == Error.REBALANCE_IN_PROGRESS
    assert story.heartbeat(ids[0], 1) == Error.UNKNOWN_MEMBER_ID
    assert story.join(ids[1]).leader == ids[1]


def test_static_member_restart_keeps_assignment() -> None:
    story = Story()
    token = story.ask_to_join(group_instance_id="i")
    story.shard.advance(DELAY_MS)
    old = story.joined(token).member_id
    assert story.synced(story.ask_to_sync(old, 1, **{old.replace("-", "_"): b"part"})).assignment == b"part"
    back = story.join(group_instance_id="i")
    assert (back.error, back.generation, back.skip_assignment, back.leader) == (0, 1, True, back.member_id)
    assert len(back.members) == 1 and story.state == "Stable"
    assert story.heartbeat(old, 1, "i") == Error.FENCED_INSTANCE_ID
    assert story.heartbeat(old, 1) == Error.UNKNOWN_MEMBER_ID
    assert story.synced(story.ask_to_sync(back.member_id, 1)).assignment == b"part"
    stored = story.shard.log[-1]
    assert isinstance(stored, ClassicGroupMetadata) and stored.members[0].member_id == back.member_id


def test_restarted_static_leader_before_v9_is_not_leader_in_response() -> None:
    story = Story()
    token = story.ask_to_join(group_instance_id="i")
    story.shard.advance(DELAY_MS)
    old = story.joined(token).member_id
    story.ask_to_sync(old, 1)
    back = story.join(group_instance_id="i", can_skip_assignment=False)
    assert (back.leader, back.members, back.skip_assignment) == (old, (), False)


def test_static_member_restart_fences_delayed_join_of_previous_process() -> None:
    story = Story()
    first = story.ask_to_join(group_instance_id="i")
    second = story.ask_to_join(group_instance_id="i")
    assert story.joined(first).error == Error.FENCED_INSTANCE_ID
    story.shard.advance(2 * DELAY_MS)
    assert story.joined(second).generation == 1


def owns_its_name() -> Story:
    """A story in which each member is assigned partition 0 of a topic with the name of its member id."""
    return Story(partitions_of=lambda part: frozenset({(part.decode(), 0)}), held_of=lambda _: frozenset())


def fence(story: Story, *owners: str) -> None:
    fenced = [TopicIdPartition(ZERO_UUID, owner, 0) for owner in owners]
    story.shard.do(story.shard.machine.groups["g"].fence_owners(fenced, story.shard.now))


def test_rewind_removes_departed_member_from_stored_group() -> None:
    story = owns_its_name()
    gone, other = story.stable(2)
    story.leave(LeaveOf(gone))
    fence(story, gone)
    assert story.heartbeat(other, 1) == Error.REBALANCE_IN_PROGRESS, "the other one goes on"
    story.shard.restart()
    assert story.heartbeat(gone, 1) == Error.UNKNOWN_MEMBER_ID
    assert story.heartbeat(other, 1) == Error.ILLEGAL_GENERATION, "it is assigned what the first one left behind"


def test_reserved_generation_is_skipped_by_next_rebalance() -> None:
    """The record that is stored when members are fenced."""
    story = owns_its_name()
    fenced, other = story.stable(2)
    fence(story, fenced)
    joined = story.join(other)
    story.shard.restart()
    assert story.heartbeat(other, joined.generation) == Error.ILLEGAL_GENERATION


def test_leave_by_instance_id_removes_static_member() -> None:
    story = Story()
    story.stable(1)
    assert story.leave(LeaveOf("", "i")).members[0].error == Error.UNKNOWN_MEMBER_ID
    story.ask_to_join(group_instance_id="i")
    assert story.leave(LeaveOf("", "i"), LeaveOf("c-9")).members == (("", "i", 0), ("c-9", None, 25))


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, -1])
def test_session_timeout_out_of_range_is_rejected(session_ms: int) -> None:
    assert Story().join(session_timeout_ms=session_ms).error == Error.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize(
    "odd", [{"protocol_type": "connect"}, {"protocols": (("other", b""),)}, {"protocols": ()}, {"protocol_type": ""}]
)
def test_join_with_incompatible_protocols_is_rejected(odd: dict[str, Any]) -> None:
    story = Story()
    story.stable()
    assert story.join(**odd).error == Error.INCONSISTENT_GROUP_PROTOCOL


def test_rejected_first_join_creates_no_group() -> None:
    story = Story()
    assert story.join(protocols=()).error == Error.INCONSISTENT_GROUP_PROTOCOL
    assert story.state == "Dead" and story.shard.log == []


def test_protocol_preferred_by_most_members_is_selected() -> None:
    story = Story()
    both = (("a", b""), ("b", b""))
    tokens = [story.ask_to_join(member_id_required=False, protocols=wish) for wish in (both, both[::-1], both[::-1])]
    story.shard.advance(2 * DELAY_MS)
    assert {story.joined(token).protocol for token in tokens} == {"b"}


@pytest.mark.parametrize("first", ["a", "b"])
def test_oldest_member_selects_among_protocols_with_equal_votes(first: str) -> None:
    story = Story()
    preferences = sorted(
        [(("a", b""), ("b", b"")), (("b", b""), ("a", b""))], key=lambda protocols: protocols[0][0] != first
    )
    tokens = [story.ask_to_join(member_id_required=False, protocols=protocols) for protocols in preferences]
    story.shard.advance(2 * DELAY_MS)
    assert {story.joined(token).protocol for token in tokens} == {first}


def test_join_of_full_group_is_rejected() -> None:
    story = Story(members_max=1)
    story.stable()
    assert story.join().error == Error.GROUP_MAX_SIZE_REACHED


def test_group_above_size_limit_shrinks_after_restart() -> None:
    limits = iter([10, 1])
    story = Story()
    story.shard = Shard(lambda: ClassicGroups(ClassicSettings(members_max=next(limits))))
    one, other = story.stable(2)
    story.shard.restart()
    assert story.heartbeat(one, 1) == Error.REBALANCE_IN_PROGRESS
    kept = story.ask_to_join(other)
    assert story.join(one).error == Error.GROUP_MAX_SIZE_REACHED
    assert story.joined(kept).generation == 2, "the one that was refused holds up nobody"


def test_members_continue_after_broker_restart() -> None:
    story = Story()
    one, other = story.stable(2)
    story.shard.advance(SESSION_MS - 1)
    story.shard.restart()
    story.shard.advance(SESSION_MS - 1)
    assert story.heartbeat(one, 1) == Error.NONE
    assert story.synced(story.ask_to_sync(one, 1)).assignment == one.encode()
    story.shard.advance(1)
    assert story.heartbeat(other, 1) == Error.UNKNOWN_MEMBER_ID


def test_second_join_completes_delayed_first_join() -> None:
    story = Story()
    one, _ = story.stable(2)
    first = story.ask_to_join(one)
    second = story.ask_to_join(one)
    assert story.joined(first).error == Error.REBALANCE_IN_PROGRESS
    assert second in story.shard.waiting


def test_requests_to_unknown_group_fail() -> None:
    story = Story()
    assert story.join("x").error == Error.UNKNOWN_MEMBER_ID
    assert story.heartbeat("x", 1) == Error.UNKNOWN_MEMBER_ID
    assert story.synced(story.ask_to_sync("x", 1)).error == Error.UNKNOWN_MEMBER_ID
    assert story.leave(LeaveOf("x")).members == (("x", None, Error.UNKNOWN_MEMBER_ID),)
    assert story.join(group="").error == Error.INVALID_GROUP_ID
