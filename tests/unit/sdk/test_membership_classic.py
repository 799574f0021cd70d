"""A member of a classic group: joins, eager and cooperative rebalances, the leader, errors, leaving."""

from typing import Any

import pytest
from kafkalite_sdk.membership.assignors import MemberSubscription, assignors_named
from kafkalite_sdk.membership.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kafkalite_sdk.membership.settings import Partitions

from kafkalite.errors import FencedInstanceIdError, KafkaErrorCode, MaxPollIntervalExceededError
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkalite.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkalite.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kafkalite.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.unit.sdk.membership_rig import Rig, partitions

Error = KafkaErrorCode
BOTH = partitions("a0", "a1")
Member = JoinGroupResponse.JoinGroupResponseMember


def joined(generation: int, leader: str = "other", assignor: str = "range", **more: Any) -> JoinGroupResponse:
    fields = {"member_id": "me", "members": [], **more}
    return JoinGroupResponse(generation_id=generation, leader=leader, protocol_name=assignor, **fields)


def rejected(code: int, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, leader="", member_id=member_id, members=[])


def synced(assigned: Partitions) -> SyncGroupResponse:
    return SyncGroupResponse(assignment=encode_assignment(assigned, 3))


def classic(assignor: str = "range", **settings: Any) -> Rig:
    return Rig(protocol="classic", assignors=assignors_named([assignor]), **settings)


def stable(assignor: str = "range", assigned: Partitions = BOTH, **settings: Any) -> Rig:
    rig = classic(assignor, **settings)
    rig.answer(JoinGroupRequest, joined(1, assignor=assignor))
    rig.answer(SyncGroupRequest, synced(assigned))
    rig.done()
    assert rig.membership.state == "stable" and rig.membership.assignment == assigned
    return rig


def rebalance(rig: Rig) -> None:
    """A heartbeat fails with REBALANCE_IN_PROGRESS."""
    rig.wait(3)
    rig.answer(HeartbeatRequest, HeartbeatResponse(error_code=Error.REBALANCE_IN_PROGRESS))
    rig.due()


def test_new_member_joins_with_the_id_that_the_broker_assigns() -> None:
    rig = classic()
    first = rig.answer(JoinGroupRequest, rejected(Error.MEMBER_ID_REQUIRED, "me"))
    call, second = rig.call(JoinGroupRequest)
    assert (first.member_id, second.member_id) == ("", "me")
    assert call.channel == "join" and call.timeout_s > second.rebalance_timeout_ms / 1000


def test_eager_member_releases_its_partitions_before_it_joins() -> None:
    rig = stable()
    rebalance(rig)
    assert rig.change.revoked == partitions("a0", "a1") and rig.change.keep_fetched
    assert not rig.sends(JoinGroupRequest)
    identity = rig.membership.identity()
    assert identity is not None and identity.generation == 1, "the revoked partitions are committed with it"
    rig.wait(3)
    assert rig.sends(HeartbeatRequest), "heartbeats go on while the application is busy"
    rig.done()
    _, request = rig.call(JoinGroupRequest)
    assert request.member_id == "me"
    assert decode_subscription("range", request.protocols[0].metadata, None).owned == frozenset()


def test_cooperative_member_keeps_its_partitions_and_joins_again_after_it_has_released_some() -> None:
    rig = stable("cooperative-sticky")
    rebalance(rig)
    assert rig.membership.change is None
    _, request = rig.call(JoinGroupRequest)
    declared = decode_subscription("cooperative-sticky", request.protocols[0].metadata, None)
    assert (declared.owned, declared.generation) == (partitions("a0", "a1"), 1)
    rig.answer(JoinGroupRequest, joined(2, assignor="cooperative-sticky"))
    rig.answer(SyncGroupRequest, synced(partitions("a0")))
    assert (rig.change.revoked, rig.change.assigned) == (partitions("a1"), frozenset())
    assert not rig.sends(JoinGroupRequest)
    rig.done()
    assert rig.membership.assignment == partitions("a0")
    assert rig.sends(JoinGroupRequest)


@pytest.mark.parametrize(("code", "member_id"), [(Error.UNKNOWN_MEMBER_ID, ""), (Error.ILLEGAL_GENERATION, "me")])
@pytest.mark.parametrize("source", ["heartbeat", "commit", "sync", "join"])
def test_rejected_member_loses_its_partitions_before_it_joins_again(code: int, member_id: str, source: str) -> None:
    rig = stable("cooperative-sticky")
    if source == "heartbeat":
        rig.wait(3)
        rig.answer(HeartbeatRequest, HeartbeatResponse(error_code=code))
    elif source == "commit":
        rig.membership.commit_failed(rig.membership.identity(), code, rig.now)
        if code == Error.ILLEGAL_GENERATION:
            rig.answer(HeartbeatRequest, HeartbeatResponse(error_code=code))
    else:
        rebalance(rig)
        if source == "join":
            rig.answer(JoinGroupRequest, rejected(code))
        else:
            rig.answer(JoinGroupRequest, joined(2, assignor="cooperative-sticky"))
            rig.answer(SyncGroupRequest, SyncGroupResponse(error_code=code, assignment=b""))
    assert rig.membership.identity() is None
    assert rig.change.lost == partitions("a0", "a1")
    rig.calls.clear()
    assert not rig.sends(JoinGroupRequest)
    rig.done()
    assert rig.call(JoinGroupRequest)[1].member_id == member_id


def test_member_stays_in_its_generation_when_a_commit_of_a_moved_partition_fails() -> None:
    """Members of the classic protocol in a consumer group: the partition has another owner, the generation goes on."""
    rig = stable()
    identity = rig.membership.identity()
    rig.membership.commit_failed(identity, Error.ILLEGAL_GENERATION, rig.now)
    rig.answer(HeartbeatRequest, HeartbeatResponse())
    assert rig.membership.identity() == identity and rig.membership.change is None
    assert not rig.sends(JoinGroupRequest)


def test_commit_error_of_an_older_generation_is_ignored() -> None:
    rig = stable()
    identity = rig.membership.identity()
    assert identity is not None
    older = identity._replace(generation=0)
    rig.membership.commit_failed(older, Error.UNKNOWN_MEMBER_ID, rig.now)
    assert rig.membership.change is None


def test_partitions_are_lost_once_a_pending_change_is_done() -> None:
    rig = stable()
    rebalance(rig)
    rig.wait(3)
    rig.answer(HeartbeatRequest, HeartbeatResponse(error_code=Error.UNKNOWN_MEMBER_ID))
    assert rig.membership.identity() is None, "a commit of the revoked partitions would fail"
    assert rig.change.revoked
    rig.done()
    assert rig.membership.change is None
    assert rig.call(JoinGroupRequest)[1].member_id == ""


def test_leader_assigns_the_topics_of_members_of_other_clients() -> None:
    rig = classic()
    other = MemberSubscription(frozenset({"a", "b"}))
    old = b"\x00\x00" + encode_subscription(MemberSubscription(frozenset({"a"})))[2:13]  # version 0, topic a
    members = [
        Member(member_id="me", metadata=rig.call(JoinGroupRequest)[1].protocols[0].metadata),
        Member(member_id="java", metadata=encode_subscription(other)),
        Member(member_id="old", metadata=old),
        Member(member_id="malformed", metadata=b"\x00"),
    ]
    rig.answer(JoinGroupRequest, joined(1, leader="me", members=members))
    assert rig.membership.topics == {"a", "b"}
    rig.answer_metadata()
    request = rig.answer(SyncGroupRequest, synced(partitions("a1")))
    assigned = {each.member_id: each.assignment for each in request.assignments}
    assert {name: decode_assignment(data)[0] for name, data in assigned.items()} == {
        "java": partitions("a0", "b0"),
        "me": partitions("a1"),
        "old": frozenset(),
        "malformed": frozenset(),
    }
    assert [assigned[name][:2] for name in ("java", "old")] == [b"\x00\x03", b"\x00\x00"]


def leading() -> Rig:
    rig = classic()
    metadata = rig.call(JoinGroupRequest)[1].protocols[0].metadata
    rig.answer(JoinGroupRequest, joined(1, leader="me", members=[Member(member_id="me", metadata=metadata)]))
    rig.answer_metadata()
    rig.answer(SyncGroupRequest, synced(partitions("a0", "a1")))
    rig.done()
    return rig


def test_leader_joins_again_when_topics_of_the_group_grow() -> None:
    rig = leading()
    rig.view.update(rig.metadata())
    rig.membership.metadata_changed(rig.now)
    rig.due()
    assert rig.membership.change is None
    rig.sizes["a"] = 3
    rig.view.update(rig.metadata())
    rig.membership.metadata_changed(rig.now)
    rig.due()
    assert rig.change.revoked == partitions("a0", "a1")


@pytest.mark.parametrize(("kept", "joins"), [(partitions("a0", "a1"), False), (partitions("a0"), True)])
def test_static_leader_that_returns_verifies_the_assignment_of_the_group(kept: Partitions, joins: bool) -> None:
    rig = classic(instance_id="i")
    metadata = rig.call(JoinGroupRequest)[1].protocols[0].metadata
    members = [Member(member_id="me", metadata=metadata)]
    rig.answer(JoinGroupRequest, joined(5, leader="me", members=members, skip_assignment=True))
    rig.answer_metadata()
    assert rig.answer(SyncGroupRequest, synced(kept)).assignments == []
    rig.done()
    Group = DescribeGroupsResponse.DescribedGroup
    member = Group.DescribedGroupMember(
        member_id="me",
        client_id="",
        client_host="",
        member_metadata=b"",
        member_assignment=encode_assignment(kept, 3),
    )
    group = Group(group_id="g", group_state="Stable", protocol_type="", protocol_data="", members=[member])
    rig.answer(DescribeGroupsRequest, DescribeGroupsResponse(groups=[group]))
    rig.due()
    assert (rig.membership.change is not None) is joins


@pytest.mark.parametrize("method", ["user_data", "assign", "assignment_data", "on_assignment"])
def test_failing_assignor_ends_the_member_with_its_error(method: str) -> None:
    class Failing:
        name, cooperative = "failing", False

        def _called(self, name: str) -> None:
            if name == method:
                raise ZeroDivisionError("no members")

        def user_data(self, owned: Partitions, generation: int) -> bytes | None:
            return self._called("user_data")

        def assign(self, members: object, counts: object) -> dict[str, Partitions]:
            self._called("assign")
            return {"me": BOTH}

        def assignment_data(self, member_id: str) -> bytes | None:
            return self._called("assignment_data")

        def on_assignment(self, assigned: Partitions, user_data: bytes | None) -> None:
            self._called("on_assignment")

    rig = Rig(protocol="classic", assignors=(Failing(),))
    rig.due()
    if method != "user_data":
        metadata = rig.call(JoinGroupRequest)[1].protocols[0].metadata
        members = [Member(member_id="me", metadata=metadata)]
        rig.answer(JoinGroupRequest, joined(1, leader="me", assignor="failing", members=members))
        rig.answer_metadata()
    if method == "on_assignment":
        rig.answer(SyncGroupRequest, synced(BOTH))
    with pytest.raises(Exception, match="the assignor failing failed: ZeroDivisionError"):
        rig.membership.raise_error()


def test_lost_connections_and_moved_coordinators_are_retried() -> None:
    rig = classic()
    rig.fail(JoinGroupRequest)
    assert rig.membership.needs_coordinator
    rig.wait(2)
    rig.answer(JoinGroupRequest, rejected(Error.NOT_COORDINATOR))
    assert rig.membership.needs_coordinator
    rig.wait(2)
    rig.answer(JoinGroupRequest, joined(1))
    rig.fail(SyncGroupRequest)
    rig.wait(2)
    rig.answer(JoinGroupRequest, joined(2))
    rig.answer(SyncGroupRequest, synced(partitions("a0")))
    rig.done()
    rig.wait(3)
    rig.fail(HeartbeatRequest)
    assert rig.membership.assignment == partitions("a0"), "the session may continue"
    rig.wait(2)
    assert rig.sends(HeartbeatRequest)


def test_fenced_static_member_fails_with_the_reason() -> None:
    rig = stable(instance_id="i")
    rig.wait(3)
    rig.answer(HeartbeatRequest, HeartbeatResponse(error_code=Error.FENCED_INSTANCE_ID))
    assert rig.change.lost == partitions("a0", "a1")
    for _ in range(2):
        with pytest.raises(FencedInstanceIdError, match="another process uses the same group_instance_id"):
            rig.membership.raise_error()


def test_static_cooperative_member_that_missed_a_generation_loses_its_partitions() -> None:
    rig = stable("cooperative-sticky", instance_id="i")
    rebalance(rig)
    rig.answer(JoinGroupRequest, joined(3, assignor="cooperative-sticky"))
    assert rig.membership.identity() is None, "another member may have committed the partitions in generation 2"
    rig.answer(SyncGroupRequest, synced(partitions("a0")))
    assert rig.change.lost == partitions("a0", "a1")
    rig.done()
    assert rig.change.assigned == partitions("a0")
    assert rig.membership.identity() is not None
    rig.done()
    assert rig.sends(JoinGroupRequest), "the leader assigns a1 when it is released"


@pytest.mark.parametrize(("instance_id", "leaves"), [(None, True), ("i", False)])
def test_dynamic_members_leave_and_static_ones_do_not(instance_id: str | None, leaves: bool) -> None:
    rig = stable(instance_id=instance_id)
    rig.membership.leave(rig.now)
    assert rig.change.revoked == partitions("a0", "a1")
    rig.done()
    assert rig.sends(LeaveGroupRequest) is leaves
    if leaves:
        assert not rig.membership.left
        rig.answer(LeaveGroupRequest, LeaveGroupResponse(members=[]))
    assert rig.membership.left
    assert rig.membership.wake_at(rig.now) == float("inf")


@pytest.mark.parametrize("resubscribed", [False, True])
@pytest.mark.parametrize("released", [False, True])
def test_a_second_leave_has_the_end_of_the_first_one(released: bool, resubscribed: bool) -> None:
    """An unsubscribe that was cancelled, and a close: before or behind the end of the release."""
    rig = stable()
    rig.membership.leave(rig.now)
    if released:
        rig.done()
        assert rig.sends(LeaveGroupRequest)
    if resubscribed and not released:
        rig.membership.subscribe(["a"], now=rig.now)
    rig.membership.leave(rig.now)
    if not released:
        rig.done()
        assert rig.sends(LeaveGroupRequest)
    assert not rig.membership.left and rig.membership.change is None
    rig.answer(LeaveGroupRequest, LeaveGroupResponse(members=[]))
    assert rig.membership.left


@pytest.mark.parametrize("code", [Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION, Error.FENCED_INSTANCE_ID])
def test_leave_ends_although_the_last_commit_fails(code: Error) -> None:
    rig = stable(instance_id="i")
    rig.membership.leave(rig.now)
    rig.membership.commit_failed(rig.membership.identity(), code, rig.now)
    rig.done()
    assert rig.membership.left and rig.membership.error is None


def test_response_that_arrives_while_the_partitions_of_a_leaving_member_are_released_is_ignored() -> None:
    rig = stable("cooperative-sticky")
    rebalance(rig)
    rig.answer(JoinGroupRequest, joined(2, assignor="cooperative-sticky"))
    call, _ = rig.call(SyncGroupRequest)
    rig.membership.leave(rig.now)
    assert rig.change.revoked == BOTH
    rig.membership.answered(call, synced(partitions("a0")), rig.now)
    assert rig.change.revoked == BOTH
    rig.done()
    assert rig.sends(LeaveGroupRequest) and rig.membership.assignment == frozenset()


def test_member_whose_application_does_not_poll_leaves_and_joins_with_the_next_poll() -> None:
    rig = stable(max_poll_interval_s=10)
    for _ in range(4):
        rig.now += 2
        if rig.sends(HeartbeatRequest):
            rig.answer(HeartbeatRequest, HeartbeatResponse())
    assert rig.membership.assignment, "a long handler keeps its partitions"
    rig.now += 3
    rig.answer(LeaveGroupRequest, LeaveGroupResponse(members=[]))
    assert rig.change.lost == partitions("a0", "a1")
    with pytest.raises(MaxPollIntervalExceededError, match="not called for 10 s"):
        rig.membership.raise_error()
    rig.membership.raise_error()
    rig.done()
    assert not rig.sends(JoinGroupRequest)
    rig.wait(0)
    assert rig.sends(JoinGroupRequest)


def test_changed_subscription_joins_again_and_releases_dropped_topics() -> None:
    rig = stable("cooperative-sticky")
    rig.membership.subscribe(["b"], now=rig.now)
    rig.due()
    assert rig.change.revoked == partitions("a0", "a1")
    rig.done()
    _, request = rig.call(JoinGroupRequest)
    assert decode_subscription("range", request.protocols[0].metadata, None).topics == {"b"}


def test_pattern_is_resolved_by_the_client_and_again_with_the_metadata() -> None:
    rig = Rig(topics=(), protocol="classic", metadata_max_age_s=60)
    rig.membership.subscribe(pattern="a|c.*", excluded="cx", now=rig.now)
    rig.due()
    assert not rig.sends(JoinGroupRequest)
    assert rig.answer_metadata().topics is None
    subscription = rig.call(JoinGroupRequest)[1].protocols[0].metadata
    assert decode_subscription("range", subscription, None).topics == {"a"}
    rig.answer(JoinGroupRequest, joined(1))
    rig.answer(SyncGroupRequest, synced(partitions("a0")))
    rig.done()
    for name in ("c1", "cx"):
        rig.sizes[name], rig.ids[name] = 1, name.encode() * 8
    rig.wait(61)
    rig.answer_metadata()
    rig.due()
    rig.done()
    subscription = rig.call(JoinGroupRequest)[1].protocols[0].metadata
    assert decode_subscription("range", subscription, None).topics == {"a", "c1"}


def test_pattern_that_re2_rejects_is_misuse() -> None:
    rig = Rig(topics=())
    with pytest.raises(ValueError, match="RE2 rejects"):
        rig.membership.subscribe(pattern="a", excluded="(", now=0)
