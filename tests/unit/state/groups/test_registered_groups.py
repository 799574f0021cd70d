"""Registered groups: rejected requests, start offsets, claims, patterns, restarts and committed offsets."""

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.effects import ResolvePatterns
from kafkalite.state.groups.classic.requests import Leave, LeaveOf, Left, LeftMember
from kafkalite.state.groups.records import (
    GroupDeleted,
    GroupGeneration,
    GroupGenerationDeleted,
    RegisteredMember,
    RewindMarkDeleted,
    StaticClaim,
    StaticClaimDeleted,
)
from kafkalite.state.groups.registered.requests import HeartbeatPlus
from kafkalite.state.groups.registered.settings import PATTERN_INTERVAL_MS
from tests.story.groups.simulated_shard import delete_topic
from tests.unit.state.groups.registered_rig import REBALANCE_MS, SESSION_MS, Rig

ALL = {("a", number) for number in range(4)}


@pytest.fixture
def rig() -> Rig:
    return Rig()


# who is refused


def test_invalid_registrations_create_no_group(rig: Rig) -> None:
    assert rig.register("x", "a", group="").error == Error.INVALID_GROUP_ID
    assert rig.register("", "a").error == Error.INVALID_REQUEST
    for session_ms in (-1, 0, 1, 2**31 - 1):
        assert rig.register("x", "a", session_timeout_ms=session_ms).error == Error.INVALID_SESSION_TIMEOUT
    for topic_partition in (("a", 4), ("a", -1), ("nowhere", 0)):
        assert rig.register("x", claims={topic_partition}).error == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert not rig.exists() and not rig.shard.log and not rig.shard.timers


def test_second_claim_of_partition_is_rejected(rig: Rig) -> None:
    rig.register("c", claims={("a", 1)})
    assert rig.register("d", claims={("a", 1), ("a", 2)}).error == Error.UNRELEASED_INSTANCE_ID
    assert rig.register("d", "b", claims={("a", 1)}).error == Error.UNRELEASED_INSTANCE_ID
    assert list(rig.group.members) == ["c"]
    rig.leave("c")
    assert rig.register("d", claims={("a", 1)}).partitions == {"a": {1: -1}}


def test_registration_in_full_group_is_rejected(rig: Rig) -> None:
    rig = Rig(members_max=1)
    rig.begin("x")
    assert rig.register("y", "a").error == Error.GROUP_MAX_SIZE_REACHED
    assert not rig.register("x", "a").error


def test_invalid_definitions_are_rejected(rig: Rig) -> None:
    assert rig.create(group="") == Error.INVALID_GROUP_ID
    assert rig.create(session_timeout_ms=5) == Error.INVALID_SESSION_TIMEOUT
    assert rig.create(pattern="a.*") == rig.create(topics=()) == Error.INVALID_REQUEST
    assert rig.create(assignor="chance") == Error.UNSUPPORTED_ASSIGNOR
    assert not rig.exists()


def test_definition_of_group_with_members_is_not_replaced(rig: Rig) -> None:
    assert not rig.create(topics=("b", "a"))
    rig.register("x")
    assert rig.create(topics=("a", "b", "a")) == 0
    assert rig.create(topics=("a",)) == Error.NON_EMPTY_GROUP
    assert rig.delete() == Error.NON_EMPTY_GROUP
    rig.leave("x")
    assert rig.create(topics=("a",)) == 0
    assert rig.group.definition.first_topics == (("a", 4), ("b", 2)), "there was a first generation"


def test_requests_of_unknown_members_fail(rig: Rig) -> None:
    assert rig.fast_heartbeat("x", 1) == (Error.UNKNOWN_MEMBER_ID, -1)
    rig.begin("x")
    assert rig.fast_heartbeat("y", 1) == (Error.UNKNOWN_MEMBER_ID, -1)
    assert rig.fast_heartbeat("x", 2) == (Error.ILLEGAL_GENERATION, -1)
    assert rig.fast_heartbeat("x", 1, session_timeout_ms=1) == (Error.INVALID_SESSION_TIMEOUT, -1)
    assert rig.leave("y", "x", "x") == [Error.UNKNOWN_MEMBER_ID, 0, Error.UNKNOWN_MEMBER_ID]
    empty = HeartbeatPlus("", "x", 1)
    token = rig.shard.ask(lambda machine, token, now: machine.registered.heartbeat(empty, token, now))
    assert rig.shard.answers[token] == (Error.INVALID_GROUP_ID, -1)


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("", Left(Error.INVALID_GROUP_ID)),
        ("h", Left(members=(LeftMember("x", None, Error.UNKNOWN_MEMBER_ID),))),
    ],
)
def test_leave_of_unknown_group_fails(rig: Rig, name: str, left: Left) -> None:
    request = Leave(name, (LeaveOf("x"),))
    token = rig.shard.ask(lambda machine, token, now: machine.registered.leave(request, token, now))
    assert rig.shard.answers[token] == left


# sessions


def test_heartbeat_changes_session_timeout(rig: Rig) -> None:
    rig.begin("x")
    rig.fast_heartbeat("x", 1, session_timeout_ms=3 * SESSION_MS)
    rig.shard.advance(3 * SESSION_MS - 1)
    assert rig.fast_heartbeat("x", 1) == (0, 1)
    rig.shard.advance(3 * SESSION_MS - 1)
    assert rig.fast_heartbeat("x", 1, session_timeout_ms=6_000) == (0, 1)
    rig.shard.advance(6_000)
    assert rig.fast_heartbeat("x", 1) == (Error.UNKNOWN_MEMBER_ID, -1)


def test_commit_extends_session(rig: Rig) -> None:
    rig.begin("x")
    for _ in range(3):
        rig.shard.advance(SESSION_MS - 1)
        assert rig.commit("x", 1, ("a", 0)) == [0]


def test_session_does_not_expire_during_delayed_registration(rig: Rig) -> None:
    rig.begin("x")
    waiting = rig.ask("y", "a")
    for _ in range(REBALANCE_MS // 5_000 - 1):
        rig.shard.advance(5_000)
        rig.fast_heartbeat("x", 1)
    assert waiting not in rig.shard.answers
    rig.ask("x", "a")
    rig.shard.advance(SESSION_MS - 1)
    assert not rig.answer(waiting).error and set(rig.group.members) == {"x", "y"}
    rig.shard.advance(1)
    assert not rig.group.members


def test_zero_session_timeout_uses_definition(rig: Rig) -> None:
    rig.create(session_timeout_ms=7_000)
    assert not rig.register("x", session_timeout_ms=0).error
    rig.shard.advance(7_000)
    assert not rig.group.members


def test_second_registration_completes_delayed_first_one(rig: Rig) -> None:
    rig.begin("x")
    first = rig.ask("y", "a")
    second = rig.ask("y", "b")
    assert rig.answer(first).error == Error.REBALANCE_IN_PROGRESS and second in rig.shard.waiting
    rig.ask("x", "a")
    assert rig.answer(second).partitions == {"b": {0: -2, 1: -2}}


# what is assigned, and where reading begins


def test_members_read_defined_topics_or_their_own(rig: Rig) -> None:
    rig.create(topics=("a",), assignor="range")
    rig.register("x")
    rig.ask("y", "a", "b")
    rig.register("x")
    assert rig.owned("x") == {("a", 0), ("a", 1)}
    assert rig.owned("y") == {("a", 2), ("a", 3), ("b", 0), ("b", 1)}


def test_claims_with_topics_take_effect_in_next_generation(rig: Rig) -> None:
    rig.begin("x")
    waiting = rig.ask("y", "a", claims={("b", 1), ("a", 0)})
    assert rig.owned("x") == ALL and not rig.group.claims
    rig.ask("x", "a")
    assert rig.answer(waiting).generation == 2
    assert {("a", 0), ("b", 1)} < rig.owned("y") and rig.owned("x") | rig.owned("y") == ALL | {("b", 1)}
    assert StaticClaim("g", "y", frozenset({("a", 0), ("b", 1)})) in rig.shard.log
    rig.leave("y")
    assert StaticClaimDeleted("g", "y") in rig.shard.log


def test_member_with_claims_only_reads_no_defined_topic(rig: Rig) -> None:
    rig.create()
    assert rig.register("c", claims={("b", 0)}).partitions == {"b": {0: -1}}


def test_member_releases_share_when_it_registers_claims_only(rig: Rig) -> None:
    rig.begin("x", "y")
    assert set(rig.register("x", claims={("a", 0)}).partitions["a"]) == {0}
    assert rig.fast_heartbeat("y", 2) == (Error.REBALANCE_IN_PROGRESS, -1), "what x had is free"
    rig.register("y", "a")
    assert rig.owned("y") == ALL - {("a", 0)}


def test_released_claim_has_one_owner_after_restart_during_rebalance(rig: Rig) -> None:
    rig.begin("y")
    rig.register("x", claims={("a", 0), ("a", 1)})
    rig.ask("x", "a")
    assert rig.group.state.value == "PreparingRebalance", "it waits for y, which was assigned the rest"
    assert rig.register("c", claims={("a", 1)}).partitions == {"a": {1: -1}}
    rig.shard.restart()
    assert rig.group.claims == {"x": {("a", 0)}, "c": {("a", 1)}}
    assert rig.register("c", claims={("a", 1)}).partitions == {"a": {1: -1}}


def test_released_claims_are_assigned(rig: Rig) -> None:
    rig.register("c", claims={("a", 0), ("a", 1)})
    rig.begin("x")
    rig.register("c", claims={("a", 0)})
    rig.register("x", "a")
    assert rig.owned("x") == ALL - {("a", 0)}
    rig.leave("c")
    rig.register("x", "a")
    assert rig.owned("x") == ALL


def test_later_partitions_start_at_log_start_offset(rig: Rig) -> None:
    rig.begin("x")
    rig.commit("x", 1, ("a", 1), offset=7)
    rig.topics.make("c", 1)
    assert rig.register("x", "a", "c").partitions == {"a": {0: -1, 1: 7, 2: -1, 3: -1}, "c": {0: -2}}
    assert rig.group.definition.first_topics == (("a", 4),)


def test_recreated_topic_starts_at_log_start_offset(rig: Rig) -> None:
    rig.begin("x")
    rig.rewind(("a", 2), offset=3)
    rig.register("x", "a")
    del rig.topics.topics["a"]
    rig.change_topics("a")
    rig.shard.do(delete_topic(rig.shard.machine, "a"))
    assert RewindMarkDeleted("g", "a", 2) in rig.shard.log
    assert rig.register("x", "a").partitions == {}
    rig.topics.make("a", 1)
    rig.change_topics("a")
    assert rig.register("x", "a").partitions == {"a": {0: -2}}


def test_unread_topics_start_no_rebalance(rig: Rig) -> None:
    rig.begin("x")
    rig.topics.grow("b", 9)
    rig.change_topics("b")
    assert rig.fast_heartbeat("x", 1) == (0, 1)


# patterns


def test_pattern_is_resolved_before_first_generation(rig: Rig) -> None:
    rig.create(topics=(), pattern="a.*")
    assert rig.shard.questions == [ResolvePatterns("g", ("a.*",), internal=False)]
    waiting = rig.ask("x")
    assert waiting in rig.shard.waiting
    rig.resolve("a")
    assert set(rig.answer(waiting).partitions) == {"a"}


def test_new_topic_that_matches_pattern_starts_rebalance(rig: Rig) -> None:
    rig.create(topics=(), pattern="a.*")
    rig.resolve("a")
    rig.register("x")
    rig.shard.advance(PATTERN_INTERVAL_MS)
    rig.topics.make("ab", 1)
    rig.change_topics("ab")
    assert rig.fast_heartbeat("x", 1) == (0, 1), "it is not known yet"
    rig.resolve("a", "ab")
    assert rig.fast_heartbeat("x", 1) == (Error.REBALANCE_IN_PROGRESS, -1)
    assert rig.register("x").partitions["ab"] == {0: -2}


def test_pattern_resolution_is_rate_limited(rig: Rig) -> None:
    rig.create(topics=(), pattern="a.*")
    rig.resolve("a")
    rig.register("x")
    asked = 0
    for number in range(50):
        rig.topics.make(f"ab{number}", 1)
        rig.change_topics(f"ab{number}")
        if rig.shard.questions:
            asked += 1
            rig.resolve("a")
        rig.shard.advance(PATTERN_INTERVAL_MS // 10)
    assert 0 < asked <= 7
    rig.shard.advance(PATTERN_INTERVAL_MS)
    rig.resolve("a", *(name for name in rig.topics.topics if name.startswith("ab")))
    rig.register("x")
    assert len(rig.owned("x")) == 54


def test_failed_pattern_resolution_is_retried(rig: Rig) -> None:
    rig.create(topics=(), pattern="a.*")
    waiting = rig.ask("x")
    rig.shard.questions.clear()
    rig.shard.machine.patterns_failed("g")
    rig.fast_heartbeat("x", -1)
    rig.resolve("a")
    assert not rig.answer(waiting).error


def test_unresolved_pattern_ends_with_rebalance_timeout(rig: Rig) -> None:
    rig.create(topics=(), pattern="a.*")
    waiting = rig.ask("x")
    rig.shard.advance(REBALANCE_MS)
    assert rig.answer(waiting).partitions == {} and rig.group.definition.first_topics is None
    rig.resolve("a")
    assert rig.fast_heartbeat("x", 1)[0] == Error.REBALANCE_IN_PROGRESS
    assert rig.register("x").partitions == {"a": {0: -1, 1: -1, 2: -1, 3: -1}}


def test_result_for_previous_pattern_is_ignored(rig: Rig) -> None:
    rig.create(topics=(), pattern="a.*")
    rig.create(topics=(), pattern="b.*")
    rig.shard.do(rig.shard.machine.patterns_resolved("g", {"a.*": ["a"]}, rig.shard.now))
    waiting = rig.ask("x")
    rig.shard.questions = [ResolvePatterns("g", ("b.*",))]
    rig.resolve("b")
    assert set(rig.answer(waiting).partitions) == {"b"}


# restarts


def test_registered_members_continue_after_restart(rig: Rig) -> None:
    rig.begin("x", "y")
    rig.register("c", claims={("b", 0)})
    owned = {name: rig.owned(name) for name in ("x", "y", "c")}
    rig.shard.advance(SESSION_MS - 1)
    rig.shard.restart()
    rig.shard.advance(SESSION_MS - 1)
    assert rig.fast_heartbeat("x", 2) == rig.fast_heartbeat("y", 2) == rig.fast_heartbeat("c", 3) == (0, 3)
    assert {name: rig.owned(name) for name in ("x", "y", "c")} == owned
    (topic_partition, *_) = owned["x"]
    assert rig.commit("x", 2, topic_partition) == [0]
    rig.shard.advance(SESSION_MS)
    assert not rig.group.members


def test_rewind_marks_survive_restart(rig: Rig) -> None:
    rig.begin("x")
    rig.rewind(("a", 0))
    rig.shard.restart()
    assert rig.commit("x", 1, ("a", 0), ("a", 1)) == [Error.ILLEGAL_GENERATION, 0]
    assert rig.fast_heartbeat("x", 1) == (Error.REBALANCE_IN_PROGRESS, -1)
    assert rig.register("x", "a").partitions["a"][0] == 0


def test_rebalance_restarts_after_broker_restart(rig: Rig) -> None:
    """The removal of a member is durable, the assignment of its partitions to another one is not yet."""
    rig.begin("x", "y")
    rig.leave("y")
    waiting = rig.ask("z", "a")
    assert rig.shard.restart() == [waiting]
    assert rig.fast_heartbeat("x", 2) == (Error.REBALANCE_IN_PROGRESS, -1) and list(rig.group.members) == ["x"]
    assert rig.register("x", "a").generation == 3 and rig.owned("x") == ALL


def test_partitions_added_during_downtime_start_rebalance(rig: Rig) -> None:
    rig.begin("x")
    rig.topics.grow("a", 5)
    rig.shard.restart()
    assert rig.fast_heartbeat("x", 1) == (Error.REBALANCE_IN_PROGRESS, -1)


def test_records_without_definition_are_applied(rig: Rig) -> None:
    """A log that lost some of its records is replayed as far as possible."""
    rig.shard.log += [
        StaticClaimDeleted("h", "x"),
        RewindMarkDeleted("h", "a", 0),
        GroupGenerationDeleted("h"),
        GroupDeleted("h", "registered"),
        StaticClaim("g", "gone", frozenset({("a", 0)})),
        GroupGeneration("g", 7, 0, (RegisteredMember("x", "", "", SESSION_MS, 0, ("a",), 7, 7, frozenset(ALL)),)),
    ]
    rig.shard.restart()
    assert "h" not in rig.shard.machine.registered.groups
    assert rig.group.claims == {} and rig.fast_heartbeat("x", 7) == (0, 7)


# offsets


def test_commits_without_membership(rig: Rig) -> None:
    rig.begin("x")
    assert rig.commit("", -1, ("a", 0)) == rig.commit("y", 1, ("a", 0)) == [Error.UNKNOWN_MEMBER_ID]
    assert rig.commit("x", -1, ("a", 0)) == rig.commit("x", 2, ("a", 0)) == [Error.ILLEGAL_GENERATION]
    assert rig.commit("x", 1, ("b", 0)) == [Error.ILLEGAL_GENERATION]
    check = rig.shard.machine.registered.groups["g"].validate_offset_commit
    assert check("", None, -1, transactional=True).code == 0
    rig.leave("x")
    assert rig.commit("", -1, ("a", 0)) == [0]


def test_commit_before_first_generation_is_rejected(rig: Rig) -> None:
    rig.begin("x")
    rig.ask("y", "a")
    assert rig.commit("y", 1, ("a", 0)) == [Error.ILLEGAL_GENERATION]
    assert rig.commit("x", 1, ("a", 0)) == [0], "the generation of before is at work until the next one begins"


def test_offset_fetch_validates_member_and_generation(rig: Rig) -> None:
    rig.begin("x", "y")
    fetch = rig.shard.machine.offsets.validate_fetch
    assert fetch("g", None, -1) == fetch("g", "", -1) == fetch("g", "x", 2) == fetch("nobody", None, -1) == 0
    assert fetch("g", "z", 2) == Error.UNKNOWN_MEMBER_ID
    assert fetch("g", "x", 1) == fetch("g", "x", 3) == Error.ILLEGAL_GENERATION


def test_offsets_of_empty_registered_group_expire(rig: Rig) -> None:
    shard, retention_ms = rig.shard, 7 * 24 * 3_600_000
    rig.begin("x")
    rig.commit("x", 1, ("a", 0))
    later = shard.now._replace(wall_ms=shard.now.wall_ms + 2 * retention_ms)
    assert not shard.machine.expire_offsets(["g"], later).records, "a member reads the topic"
    rig.leave("x")
    assert not shard.machine.expire_offsets(["g"], shard.now).records
    shard.do(shard.machine.expire_offsets(["g"], later))
    assert not rig.exists() and not shard.replayed().names()


def test_created_group_does_not_expire(rig: Rig) -> None:
    rig.create()
    rig.commit("", -1, ("a", 0))
    rig.shard.restart()
    assert not rig.shard.machine.expire_offsets(["g"], rig.shard.now).records, "its offset is new"
    later = rig.shard.now._replace(wall_ms=2 * rig.shard.now.wall_ms)
    rig.shard.do(rig.shard.machine.expire_offsets(["g"], later))
    assert rig.exists() and "g" not in rig.shard.machine.offsets


def test_offsets_of_read_topics_cannot_be_deleted(rig: Rig) -> None:
    rig.begin("x")
    rig.commit("x", 1, ("a", 0))
    delete = rig.shard.machine.offsets.delete
    assert delete("g", [("a", 0), ("b", 0)], "t").answers[0].result == (0, (Error.GROUP_SUBSCRIBED_TO_TOPIC, 0))
