"""Classic groups over the wire: finding the coordinator, joining, syncing, heartbeats, leaving."""

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.join_group import JoinGroupResponse
from tests.kit.members import assignment, heartbeat, join, leave, sync
from tests.kit.server import Client

GROUP, TRANSACTION, SHARE = 0, 1, 2


async def joined(client: Client, group: str = "g", **more: object) -> JoinGroupResponse:
    """A new member of a group that has no other; it leads."""
    first = await client.call(join(group, **more))
    assert first.error_code == Error.MEMBER_ID_REQUIRED
    answer = await client.call(join(group, first.member_id, **more))
    assert answer.error_code == 0, answer
    return answer


@pytest.mark.parametrize("version", range(7))
async def test_the_coordinator_of_a_group_is_this_broker(client: Client, version: int) -> None:
    asked = FindCoordinatorRequest(key="g", coordinator_keys=["g", "../../etc"])
    answer = await client.call(asked, version)
    found = answer.coordinators if version >= 4 else [answer]
    host, port = client.broker.address.rsplit(":", 1)
    assert [(each.error_code, each.node_id, each.host, each.port) for each in found] == [
        (0, client.broker.broker_id, host, int(port))
    ] * len(found)
    assert [each.key for each in answer.coordinators] == (["g", "../../etc"] if version >= 4 else [])


@pytest.mark.parametrize(
    ("key_type", "error"),
    [
        (TRANSACTION, Error.COORDINATOR_NOT_AVAILABLE),
        (SHARE, Error.INVALID_REQUEST),
        (77, Error.INVALID_REQUEST),
        (-1, Error.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("version", [1, 6])
async def test_other_coordinators_are_not_there(client: Client, version: int, key_type: int, error: Error) -> None:
    asked = FindCoordinatorRequest(key="t", coordinator_keys=["t"], key_type=key_type)
    answer = await client.call(asked, version)
    (found,) = answer.coordinators if version >= 4 else [answer]
    assert (found.error_code, found.node_id, found.host, found.port) == (error, -1, "", -1)


async def test_a_group_lives_and_ends(client: Client) -> None:
    leader = await joined(client)
    assert (leader.generation_id, leader.leader, leader.protocol_name) == (1, leader.member_id, "range")
    assert leader.member_id.startswith("kafkalite") or "-" in leader.member_id
    assert [each.member_id for each in leader.members] == [leader.member_id]
    given = {leader.member_id: assignment("orders", 0)}
    synced = await client.call(sync("g", leader.member_id, 1, given))
    assert (synced.error_code, synced.assignment) == (0, given[leader.member_id])
    assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
    assert (await client.call(heartbeat("g", leader.member_id, 1))).error_code == 0
    assert (await client.call(heartbeat("g", leader.member_id, 2))).error_code == Error.ILLEGAL_GENERATION
    left = await client.call(leave("g", leader.member_id))
    assert (left.error_code, [each.error_code for each in left.members]) == (0, [0])
    assert (await client.call(heartbeat("g", leader.member_id, 1))).error_code == Error.UNKNOWN_MEMBER_ID
