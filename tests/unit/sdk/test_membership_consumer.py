"""A member of a consumer group (KIP-848): epochs, revocation, fencing, patterns, static members."""

from typing import Any

import pytest

from kafkalite.errors import (
    AuthorizationError,
    InvalidRegularExpressionError,
    KafkaErrorCode,
    UnreleasedInstanceIdError,
)
from kafkalite.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.sdk.membership_rig import TOPIC_IDS, Rig, partitions

Error = KafkaErrorCode
Assignment = ConsumerGroupHeartbeatResponse.Assignment
BOTH = partitions("a0", "a1")


def heartbeat(
    epoch: int, *assigned: int, error: int = 0, changed: bool = True, topic_id: bytes = TOPIC_IDS["a"]
) -> Any:
    topics = [Assignment.TopicPartitions(topic_id=topic_id, partitions=list(assigned))] if assigned else []
    return ConsumerGroupHeartbeatResponse(
        error_code=error,
        member_id=None,
        member_epoch=epoch,
        heartbeat_interval_ms=5_000,
        assignment=Assignment(topic_partitions=topics) if changed else None,
    )


def unchanged(epoch: int) -> Any:
    return heartbeat(epoch, changed=False)


def rejected(error: int) -> Any:
    return heartbeat(0, error=error, changed=False)


def stable(**settings: Any) -> Rig:
    """A member that owns a0 and a1 in epoch 1, and has reported them."""
    rig = Rig(protocol="consumer", **settings)
    rig.view.update(rig.metadata())
    rig.answer(ConsumerGroupHeartbeatRequest, heartbeat(1, 0, 1))
    rig.done()
    rig.answer(ConsumerGroupHeartbeatRequest, unchanged(1))
    assert rig.membership.assignment == BOTH and rig.membership.state == "stable"
    return rig


def owned(request: ConsumerGroupHeartbeatRequest) -> dict[bytes, list[int]] | None:
    if request.topic_partitions is None:
        return None
    return {each.topic_id: each.partitions for each in request.topic_partitions}


def test_first_heartbeat_has_all_fields_and_an_id_of_the_client() -> None:
    rig = Rig(protocol="consumer", rack="r", server_assignor="uniform", max_poll_interval_s=20)
    _, request = rig.call(ConsumerGroupHeartbeatRequest)
    assert len(request.member_id) == 22 and request.member_epoch == 0
    assert (request.rack_id, request.server_assignor, request.rebalance_timeout_ms) == ("r", "uniform", 20_000)
    assert request.subscribed_topic_names == ["a"] and request.topic_partitions == []
    assert request.subscribed_topic_regex is None


def test_later_heartbeats_have_only_changes_at_the_interval_of_the_broker() -> None:
    rig = stable()
    assert not rig.sends(ConsumerGroupHeartbeatRequest)
    assert rig.membership.wake_at(rig.now) == rig.now + 5
    rig.wait(5)
    request = rig.answer(ConsumerGroupHeartbeatRequest, unchanged(1))
    assert request.subscribed_topic_names is request.topic_partitions is None and request.member_epoch == 1


def test_assigned_partitions_are_reported_at_once() -> None:
    rig = Rig(protocol="consumer")
    rig.view.update(rig.metadata())
    rig.answer(ConsumerGroupHeartbeatRequest, heartbeat(1, 0, 1))
    assert rig.change.assigned == BOTH and not rig.sends(ConsumerGroupHeartbeatRequest)
    rig.done()
    assert owned(rig.answer(ConsumerGroupHeartbeatRequest, unchanged(1))) == {TOPIC_IDS["a"]: [0, 1]}


def test_received_partitions_are_reported_before_the_application_polls() -> None:
    """Its assignment is stored: a report without it would confirm a revocation that has not happened."""
    rig = Rig(protocol="consumer")
    rig.view.update(rig.metadata())
    rig.answer(ConsumerGroupHeartbeatRequest, heartbeat(1, 0, 1))
    assert rig.change.assigned == BOTH
    rig.wait(5)
    rig.answer(ConsumerGroupHeartbeatRequest, heartbeat(1, 0))
    rig.wait(5)
    rig.fail(ConsumerGroupHeartbeatRequest)
    rig.wait(5)
    assert owned(rig.answer(ConsumerGroupHeartbeatRequest, unchanged(1))) == {TOPIC_IDS["a"]: [0, 1]}
    rig.done()
    rig.answer(ConsumerGroupHeartbeatRequest, unchanged(1))
    assert rig.change.revoked == partitions("a1")
    rig.done()
    assert owned(rig.answer(ConsumerGroupHeartbeatRequest, heartbeat(2, 0))) == {TOPIC_IDS["a"]: [0]}


def test_heartbeats_during_a_revocation_keep_the_owned_partitions() -> None:
    rig = stable()
    rig.wait(5)
    rig.answer(ConsumerGroupHeartbeatRequest, heartbeat(1, 0))
    assert rig.change.revoked == partitions("a1")
    rig.wait(5)
    rig.fail(ConsumerGroupHeartbeatRequest)
    rig.wait(2)
    request = rig.answer(ConsumerGroupHeartbeatRequest, unchanged(1))
    assert owned(request) == {TOPIC_IDS["a"]: [0, 1]}, "the heartbeat after a lost one repeats everything"
    rig.done()
    assert owned(rig.answer(ConsumerGroupHeartbeatRequest, heartbeat(2, 0))) == {TOPIC_IDS["a"]: [0]}
    identity = rig.membership.identity()
    assert identity is not None and identity.generation == 2


def test_targets_that_change_during_a_revocation_are_reconciled_afterwards() -> None:
    rig = stable()
    rig.wait(5)
    rig.answer(ConsumerGroupHeartbeatRequest, heartbeat(1, 0))
    rig.wait(5)
    rig.answer(ConsumerGroupHeartbeatRequest, heartbeat(1))
    rig.done()
    assert rig.change.revoked == partitions("a0")


@pytest.mark.parametrize("error", [Error.FENCED_MEMBER_EPOCH, Error.UNKNOWN_MEMBER_ID, Error.GROUP_ID_NOT_FOUND])
def test_fenced_member_loses_its_partitions_and_joins_with_its_id(error: int) -> None:
    rig = stable()
    member_id = rig.membership.identity().member_id  # type: ignore[union-attr]
    rig.wait(5)
    rig.answer(ConsumerGroupHeartbeatRequest, rejected(error))
    assert rig.change.lost == BOTH and rig.membership.identity() is None
    assert not rig.sends(ConsumerGroupHeartbeatRequest)
    rig.done()
    _, request = rig.call(ConsumerGroupHeartbeatRequest)
    assert (request.member_id, request.member_epoch, request.topic_partitions) == (member_id, 0, [])


def test_stale_member_epoch_of_a_commit_sends_a_heartbeat() -> None:
    rig = stable()
    rig.membership.commit_failed(rig.membership.identity(), Error.STALE_MEMBER_EPOCH, rig.now)
    assert rig.sends(ConsumerGroupHeartbeatRequest)


def test_names_of_unknown_topic_ids_are_looked_up() -> None:
    rig = Rig(protocol="consumer")
    rig.answer(ConsumerGroupHeartbeatRequest, heartbeat(1, 0))
    assert rig.membership.change is None
    request = rig.answer(MetadataRequest, MetadataResponse(brokers=[], topics=[]))
    assert [each.topic_id for each in request.topics or ()] == [TOPIC_IDS["a"]]
    rig.wait(2)
    rig.answer_metadata()
    assert rig.change.assigned == partitions("a0")


def test_recreated_topic_is_lost_and_assigned() -> None:
    rig = stable()
    rig.ids["a"] = b"n" * 16
    rig.view.update(rig.metadata())
    rig.wait(5)
    rig.answer(ConsumerGroupHeartbeatRequest, heartbeat(1, 0, topic_id=b"n" * 16))
    assert rig.change.lost == rig.change.assigned == partitions("a0")
    assert rig.change.revoked == partitions("a1")
    rig.done()
    assert rig.membership.assignment == partitions("a0")
    assert owned(rig.call(ConsumerGroupHeartbeatRequest)[1]) == {b"n" * 16: [0]}


def test_leave_ends_although_the_last_commit_fails() -> None:
    rig = stable()
    rig.membership.leave(rig.now)
    rig.membership.commit_failed(rig.membership.identity(), Error.UNKNOWN_MEMBER_ID, rig.now)
    rig.done()
    rig.answer(ConsumerGroupHeartbeatRequest, unchanged(-1))
    assert rig.membership.left


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_members_leave_with_the_epoch_of_their_type(instance_id: str | None, epoch: int) -> None:
    rig = stable(instance_id=instance_id)
    rig.membership.leave(rig.now)
    assert rig.change.revoked == BOTH
    rig.done()
    assert rig.answer(ConsumerGroupHeartbeatRequest, unchanged(epoch)).member_epoch == epoch
    assert rig.membership.left


def test_a_second_leave_has_the_end_of_the_first_one() -> None:
    rig = stable()
    rig.membership.leave(rig.now)
    rig.membership.leave(rig.now)
    rig.done()
    rig.membership.leave(rig.now)
    assert rig.answer(ConsumerGroupHeartbeatRequest, unchanged(-1)).member_epoch == -1
    assert rig.membership.left


def test_leave_ends_when_the_broker_is_gone() -> None:
    rig = stable()
    rig.membership.leave(rig.now)
    rig.done()
    rig.fail(ConsumerGroupHeartbeatRequest)
    assert rig.membership.left


def test_pattern_is_resolved_by_the_broker() -> None:
    rig = Rig(topics=(), protocol="consumer")
    rig.membership.subscribe(pattern="a.*", now=rig.now)
    request = rig.answer(ConsumerGroupHeartbeatRequest, heartbeat(1))
    assert request.subscribed_topic_regex == "a.*" and request.subscribed_topic_names == []
    rig.membership.subscribe(["a"], now=rig.now)
    request = rig.answer(ConsumerGroupHeartbeatRequest, rejected(Error.INVALID_REGULAR_EXPRESSION))
    assert request.subscribed_topic_regex == "" and request.subscribed_topic_names == ["a"]
    with pytest.raises(InvalidRegularExpressionError):
        rig.membership.raise_error()


def test_missing_right_on_topics_names_the_topics_alone() -> None:
    denied = ConsumerGroupHeartbeatResponse(
        error_code=Error.TOPIC_AUTHORIZATION_FAILED, error_message="no", member_epoch=0, heartbeat_interval_ms=0
    )
    rig = Rig(("a", "b"), protocol="consumer")
    rig.answer(ConsumerGroupHeartbeatRequest, denied)
    with pytest.raises(
        AuthorizationError, match="group g: no; `kafkalite acl add -u USER -o read --topic a --topic b`"
    ):
        rig.membership.raise_error()
    rig = Rig((), protocol="consumer")
    rig.membership.subscribe(pattern="a.*", now=rig.now)
    rig.answer(ConsumerGroupHeartbeatRequest, denied)
    with pytest.raises(AuthorizationError, match=r"group g: no$"):
        rig.membership.raise_error()


def test_pattern_with_exclusions_is_resolved_by_the_client() -> None:
    rig = Rig(topics=(), protocol="consumer")
    rig.membership.subscribe(pattern="[ab]", excluded="b", now=rig.now)
    rig.due()
    rig.answer_metadata()
    _, request = rig.call(ConsumerGroupHeartbeatRequest)
    assert request.subscribed_topic_names == ["a"] and request.subscribed_topic_regex is None


def test_instance_id_in_use_is_retried_for_the_session_of_its_previous_process() -> None:
    rig = Rig(protocol="consumer", instance_id="i", session_timeout_s=10)
    for _ in range(8):
        rig.answer(ConsumerGroupHeartbeatRequest, rejected(Error.UNRELEASED_INSTANCE_ID))
        assert rig.membership.error is None
        rig.wait(2)
    rig.answer(ConsumerGroupHeartbeatRequest, rejected(Error.UNRELEASED_INSTANCE_ID))
    with pytest.raises(UnreleasedInstanceIdError):
        rig.membership.raise_error()
