"""The group protocol that a member of the SDK chooses."""

import pytest

from kafkalite.errors import (
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    KafkaErrorCode,
    UnsupportedVersionError,
)
from kafkalite.protocol.extensions.register_consumer import RegisterConsumerRequest
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kafkalite.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkalite.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkalite.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.unit.sdk.membership_rig import Rig

Error = KafkaErrorCode
KAFKA_43 = {11: 9, 15: 6, 16: 5, 68: 1, 69: 1}
KAFKA_39 = {11: 9, 15: 5, 16: 5, 68: 0, 69: 0}
OLD = {11: 9, 15: 5, 16: 4}
KAFKALITE = {**KAFKA_43, 10003: 0}


def answer_versions(rig: Rig, versions: dict[int, int]) -> None:
    Version = ApiVersionsResponse.ApiVersion
    served = [Version(api_key=key, min_version=0, max_version=newest) for key, newest in versions.items()]
    rig.answer(ApiVersionsRequest, ApiVersionsResponse(api_keys=served))


def answer_group(rig: Rig, members: int = 0, error: int = 0) -> None:
    Group = DescribeGroupsResponse.DescribedGroup
    group = Group(
        error_code=error,
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=[
            Group.DescribedGroupMember(
                member_id=str(at), client_id="", client_host="", member_metadata=b"", member_assignment=b""
            )
            for at in range(members)
        ],
    )
    rig.answer(DescribeGroupsRequest, DescribeGroupsResponse(groups=[group]))


def chosen(versions: dict[int, int], members: int = 0, error: int = 0) -> Rig:
    rig = Rig()
    answer_versions(rig, versions)
    answer_group(rig, members, error)
    return rig


def heartbeat(error: int) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message="no", member_epoch=0, heartbeat_interval_ms=0)


@pytest.mark.parametrize(
    ("versions", "members", "error", "protocol"),
    [
        (KAFKA_43, 0, 0, "consumer"),
        (KAFKA_43, 0, Error.GROUP_ID_NOT_FOUND, "consumer"),
        (KAFKA_43, 2, 0, "classic"),
        (OLD, 0, 0, "classic"),
        (OLD, 1, 0, "classic"),
    ],
)
def test_protocol_of_live_members_else_the_newest(
    versions: dict[int, int], members: int, error: int, protocol: str
) -> None:
    rig = chosen(versions, members, error)
    assert rig.membership.protocol == protocol
    assert rig.sends({"classic": JoinGroupRequest, "consumer": ConsumerGroupHeartbeatRequest}[protocol])


@pytest.mark.parametrize(("listed", "protocol"), [(["g"], "registered"), (["other"], "classic")])
def test_registered_members_are_detected_by_the_type_of_the_group(listed: list[str], protocol: str) -> None:
    rig = chosen(KAFKALITE, members=1)
    groups = [ListGroupsResponse.ListedGroup(group_id=name, protocol_type="consumer") for name in listed]
    request = rig.answer(ListGroupsRequest, ListGroupsResponse(groups=groups))
    assert request.types_filter == ["registered"]
    assert rig.membership.protocol == protocol


@pytest.mark.parametrize(("members", "error", "protocol"), [(1, 0, "consumer"), (0, 0, "classic"), (0, 35, "classic")])
def test_consumer_protocol_v0_is_used_only_with_live_members(members: int, error: int, protocol: str) -> None:
    rig = chosen(KAFKA_39)
    Group = ConsumerGroupDescribeResponse.DescribedGroup
    nothing = Group.Member.Assignment(topic_partitions=[])
    each = Group.Member(
        member_id="m",
        member_epoch=1,
        client_id="",
        client_host="",
        subscribed_topic_names=[],
        assignment=nothing,
        target_assignment=nothing,
    )
    group = Group(
        error_code=error,
        group_id="g",
        group_state="",
        group_epoch=1,
        assignment_epoch=1,
        assignor_name="",
        members=[each] * members,
    )
    rig.answer(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse(groups=[group]))
    assert rig.membership.protocol == protocol


def test_broker_that_rejects_kip_848_gets_the_classic_protocol_from_then_on() -> None:
    rig = chosen(KAFKA_43)
    rig.answer(ConsumerGroupHeartbeatRequest, heartbeat(Error.UNSUPPORTED_VERSION))
    answer_versions(rig, KAFKA_43)
    answer_group(rig)
    assert rig.membership.protocol == "classic" and rig.membership.error is None


def test_explicit_consumer_protocol_fails_with_the_next_step() -> None:
    rig = Rig(protocol="consumer")
    rig.answer(ConsumerGroupHeartbeatRequest, heartbeat(Error.UNSUPPORTED_VERSION))
    with pytest.raises(UnsupportedVersionError, match="group_protocol='classic'"):
        rig.membership.raise_error()


def test_claims_on_apache_kafka_fail_and_name_assign() -> None:
    rig = Rig(topics=())
    rig.membership.add_topic("a", 1, rig.now)
    rig.fail(RegisterConsumerRequest, UnsupportedVersionError("not served"))
    with pytest.raises(UnsupportedVersionError, match="use assign"):
        rig.membership.raise_error()


def test_claims_in_a_classic_group_are_misuse() -> None:
    with pytest.raises(ValueError, match="use 'registered', or assign"):
        Rig(protocol="classic").membership.add_topic("a", 1, 0.0)


def test_protocol_is_determined_again_after_inconsistent_group_protocol() -> None:
    rig = chosen(KAFKA_43)
    rig.answer(ConsumerGroupHeartbeatRequest, heartbeat(Error.GROUP_ID_NOT_FOUND))
    rig.wait(2)
    answer_versions(rig, KAFKA_43)
    answer_group(rig, members=1)
    assert rig.membership.protocol == "classic"


def test_members_without_a_common_assignor_are_a_fatal_error() -> None:
    rig = chosen(KAFKA_43, members=1)
    rejected = JoinGroupResponse(error_code=Error.INCONSISTENT_GROUP_PROTOCOL, leader="", member_id="", members=[])
    rig.answer(JoinGroupRequest, rejected)
    assert rig.membership.error is None, "the group may have changed its protocol"
    answer_versions(rig, KAFKA_43)
    answer_group(rig, members=1)
    with pytest.raises(InconsistentGroupProtocolError, match="range, cooperative-sticky"):
        rig.membership.raise_error()


def test_choice_is_repeated_after_errors_of_the_coordinator() -> None:
    rig = Rig()
    rig.fail(ApiVersionsRequest)
    assert rig.membership.needs_coordinator
    rig.wait(2)
    answer_versions(rig, KAFKA_43)
    answer_group(rig, error=Error.NOT_COORDINATOR)
    assert rig.membership.needs_coordinator
    rig.wait(2)
    answer_versions(rig, KAFKA_43)
    answer_group(rig)
    assert rig.membership.protocol == "consumer"


def test_group_without_authorization_is_a_fatal_error() -> None:
    rig = chosen(KAFKA_43, error=Error.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(GroupAuthorizationFailedError):
        rig.membership.raise_error()
