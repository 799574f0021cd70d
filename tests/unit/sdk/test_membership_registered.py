"""A member of a registered group: registration, start offsets, claims, patterns, processes."""

from typing import Any

import pytest

from kafkalite.errors import AuthorizationError, FencedInstanceIdError, KafkaErrorCode, UnknownTopicOrPartitionError
from kafkalite.model import ZERO_UUID
from kafkalite.protocol.extensions.create_group import CreateGroupRequest, CreateGroupResponse
from kafkalite.protocol.extensions.heartbeat_plus import HeartbeatPlusRequest, HeartbeatPlusResponse
from kafkalite.protocol.extensions.register_consumer import RegisterConsumerRequest, RegisterConsumerResponse
from kafkalite.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tests.unit.sdk.membership_rig import Rig, partitions

Error = KafkaErrorCode
BOTH = partitions("a0", "a1")


def registered(generation: int, **offsets: int) -> RegisterConsumerResponse:
    """`a0=5`: partition a-0 starts at offset 5."""
    Topic = RegisterConsumerResponse.OwnedTopic
    topics = [
        Topic(
            name=name[:-1],
            partitions=[Topic.OwnedPartition(partition_index=int(name[-1]), start_offset=offset)],
        )
        for name, offset in offsets.items()
    ]
    return RegisterConsumerResponse(generation_id=generation, partitions=topics)


def rejected(error: int) -> RegisterConsumerResponse:
    return RegisterConsumerResponse(error_code=error, partitions=[])


def stable(**settings: Any) -> Rig:
    rig = Rig(protocol="registered", **settings)
    rig.answer(RegisterConsumerRequest, registered(1, a0=5, a1=-1))
    assert {str(each): offset for each, offset in rig.change.start_offsets.items()} == {"a-0": 5, "a-1": -1}
    rig.done()
    return rig


def test_registration_names_topics_timeouts_assignor_and_process() -> None:
    rig = Rig(protocol="registered", server_assignor="sticky", session_timeout_s=10, max_poll_interval_s=20)
    call, request = rig.call(RegisterConsumerRequest)
    assert call.channel == "join" and call.timeout_s > 20
    assert (request.topics, request.assignor) == (["a"], "sticky")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (10_000, 20_000)
    assert request.process_id != ZERO_UUID and request.consumer_id.startswith("kafkalite-")


def test_rebalance_releases_finds_the_coordinator_and_registers() -> None:
    rig = stable()
    rig.wait(3)
    request = rig.answer(HeartbeatPlusRequest, HeartbeatPlusResponse(error_code=Error.REBALANCE_IN_PROGRESS))
    assert request.generation_id == 1
    rig.due()
    assert rig.change.revoked == BOTH and rig.change.keep_fetched
    assert rig.membership.identity() is not None, "the revoked partitions are committed"
    rig.wait(3)
    assert rig.sends(HeartbeatPlusRequest), "heartbeats go on while the application is busy"
    rig.done()
    rig.membership.requests(rig.now)
    assert rig.membership.needs_coordinator or rig.sends(RegisterConsumerRequest)
    rig.answer(RegisterConsumerRequest, registered(2, a0=9))
    assert rig.change.assigned == partitions("a0")


def test_new_generation_of_a_heartbeat_is_the_one_of_commits() -> None:
    rig = stable()
    rig.wait(3)
    rig.answer(HeartbeatPlusRequest, HeartbeatPlusResponse(generation_id=7))
    identity = rig.membership.identity()
    assert identity is not None
    assert (identity.generation, identity.instance_id) == (7, None)
    rig.wait(3)
    assert rig.call(HeartbeatPlusRequest)[1].generation_id == 7


@pytest.mark.parametrize("error", [Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION])
def test_removed_member_loses_its_partitions_and_registers(error: int) -> None:
    rig = stable()
    rig.wait(3)
    rig.answer(HeartbeatPlusRequest, HeartbeatPlusResponse(error_code=error))
    assert rig.change.lost == BOTH and rig.membership.identity() is None
    rig.done()
    assert rig.sends(RegisterConsumerRequest)


def test_older_process_is_fenced() -> None:
    rig = stable(instance_id="worker")
    rig.wait(3)
    request = rig.answer(HeartbeatPlusRequest, HeartbeatPlusResponse(error_code=Error.FENCED_INSTANCE_ID))
    assert request.consumer_id == "worker" and request.process_id != ZERO_UUID
    with pytest.raises(FencedInstanceIdError, match="give each process its own"):
        rig.membership.raise_error()
    assert rig.change.lost == BOTH


def test_lost_connections_do_not_release_partitions() -> None:
    rig = stable()
    rig.wait(3)
    rig.fail(HeartbeatPlusRequest)
    assert rig.membership.needs_coordinator and rig.membership.change is None
    rig.wait(2)
    assert rig.sends(HeartbeatPlusRequest)


def test_claims_are_part_of_the_registration() -> None:
    rig = Rig(topics=())
    rig.membership.add_topic("a", 1, rig.now)
    _, request = rig.call(RegisterConsumerRequest)
    assert request.topics == []
    assert [(each.name, each.partitions) for each in request.claimed_partitions] == [("a", [1])]
    assert rig.membership.protocol == "registered"


def test_missing_right_on_topics_names_those_of_the_claims_alone() -> None:
    rig = Rig(topics=())
    rig.membership.add_topic("a", 1, rig.now)
    rig.answer(RegisterConsumerRequest, rejected(Error.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(
        AuthorizationError, match=r"not read all of its topics; `kafkalite acl .* read --topic a` grants"
    ):
        rig.membership.raise_error()


def test_claimed_partition_may_be_created_later() -> None:
    rig = Rig(topics=())
    rig.membership.add_topic("a", 1, rig.now)
    for _ in range(30):
        rig.answer(RegisterConsumerRequest, rejected(Error.UNKNOWN_TOPIC_OR_PARTITION))
        assert rig.membership.error is None
        rig.wait(2)
    rig.answer(RegisterConsumerRequest, rejected(Error.UNKNOWN_TOPIC_OR_PARTITION))
    with pytest.raises(UnknownTopicOrPartitionError, match="a-1"):
        rig.membership.raise_error()


def test_leave_ends_although_the_last_commit_fails() -> None:
    rig = stable()
    rig.membership.leave(rig.now)
    rig.membership.commit_failed(rig.membership.identity(), Error.UNKNOWN_MEMBER_ID, rig.now)
    rig.done()
    rig.answer(LeaveGroupRequest, LeaveGroupResponse(members=[]))
    assert rig.membership.left


def test_a_second_leave_has_the_end_of_the_first_one() -> None:
    rig = stable()
    rig.membership.leave(rig.now)
    rig.membership.leave(rig.now)
    rig.done()
    rig.membership.leave(rig.now)
    rig.answer(LeaveGroupRequest, LeaveGroupResponse(members=[]))
    assert rig.membership.left


@pytest.mark.parametrize(("instance_id", "leaves"), [(None, True), ("worker", False)])
def test_static_consumer_does_not_leave(instance_id: str | None, leaves: bool) -> None:
    rig = stable(instance_id=instance_id)
    rig.membership.leave(rig.now)
    rig.done()
    assert rig.sends(LeaveGroupRequest) is leaves
    if leaves:
        rig.answer(LeaveGroupRequest, LeaveGroupResponse(members=[]))
    assert rig.membership.left


def created(error: int = 0) -> CreateGroupResponse:
    return CreateGroupResponse(error_code=error, controller_id=1, controller_host="h", controller_port=1)


def test_pattern_is_resolved_by_the_broker_as_the_definition_of_the_group() -> None:
    rig = Rig(topics=(), protocol="registered")
    rig.membership.subscribe(pattern="a.*", now=rig.now)
    assert rig.answer(CreateGroupRequest, created()).topic_pattern == "a.*"
    assert rig.call(RegisterConsumerRequest)[1].topics == []


def test_pattern_is_resolved_by_the_client_where_the_group_has_members() -> None:
    rig = Rig(topics=(), protocol="registered")
    rig.membership.subscribe(pattern="a.*", now=rig.now)
    rig.answer(CreateGroupRequest, created(Error.NON_EMPTY_GROUP))
    assert not rig.sends(RegisterConsumerRequest)
    rig.answer_metadata()
    assert rig.call(RegisterConsumerRequest)[1].topics == ["a"]
