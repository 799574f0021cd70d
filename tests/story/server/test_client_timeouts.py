"""Every time that a client gives has an upper bound: `kafkalite.client.timeout.max.ms`, or the bounds of sessions.

Each test here ends by the bound. Without it, it would wait for the time that the client gave, which is 24 days.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.server.requests.api import ROWS
from tests.kit.members import beat_join, beat_plus, create, fast_heartbeat, given, join, owned, register
from tests.kit.server import ANSWER_S, Client, running

LONGEST_MS = 2**31 - 1
SESSION_MS = 1_800_000  # the longest that is allowed: a session that ends is not what ends a test here
BOUND = "bounded by kafkalite.client.timeout.max.ms"
SESSION = "rejected outside group.min.session.timeout.ms to group.max.session.timeout.ms"
AT_ONCE = "not used: the answer waits for work of the broker, or for nothing"
EXPIRY = "not a time to wait: offsets of versions 2 to 4 expire after it"
TOKEN = "not a time to wait: the lifetime of a token, bounded by delegation.token.max.lifetime.ms"
TIMES = {
    "ProduceRequest.timeout_ms": AT_ONCE,
    "FetchRequest.max_wait_ms": BOUND,
    "ListOffsetsRequest.timeout_ms": AT_ONCE,
    "OffsetCommitRequest.retention_time_ms": EXPIRY,
    "JoinGroupRequest.session_timeout_ms": SESSION,
    "JoinGroupRequest.rebalance_timeout_ms": BOUND,
    "CreateTopicsRequest.timeout_ms": AT_ONCE,
    "DeleteTopicsRequest.timeout_ms": AT_ONCE,
    "DeleteRecordsRequest.timeout_ms": AT_ONCE,
    "InitProducerIdRequest.transaction_timeout_ms": "not used: there are no transactions",
    "CreatePartitionsRequest.timeout_ms": AT_ONCE,
    "AlterPartitionReassignmentsRequest.timeout_ms": AT_ONCE,
    "ListPartitionReassignmentsRequest.timeout_ms": AT_ONCE,
    "CreateDelegationTokenRequest.max_lifetime_ms": TOKEN,
    "RenewDelegationTokenRequest.renew_period_ms": TOKEN,
    "ExpireDelegationTokenRequest.expiry_time_period_ms": TOKEN,
    "ElectLeadersRequest.timeout_ms": AT_ONCE,
    "UpdateFeaturesRequest.timeout_ms": AT_ONCE,
    "ConsumerGroupHeartbeatRequest.rebalance_timeout_ms": BOUND,
    "CreateGroupRequest.session_timeout_ms": SESSION,
    "RegisterConsumerRequest.session_timeout_ms": SESSION,
    "RegisterConsumerRequest.rebalance_timeout_ms": BOUND,
    "HeartbeatPlusRequest.session_timeout_ms": SESSION,
}


def times_in(message: type[Any], path: str) -> Iterator[str]:
    """The fields of a message, and of the messages in it, that are a time to wait or a point in time."""
    for name in message.__annotations__:
        if name.endswith("_ms") or "timeout" in name or "wait" in name:
            yield f"{path}.{name}"
    for name, member in vars(message).items():
        if isinstance(member, type):
            yield from times_in(member, f"{path}.{name}")


def test_every_time_in_a_request_has_a_bound() -> None:
    found = [field for row in ROWS for field in times_in(row.load().request, row.request.__name__)]
    assert sorted(found) == sorted(TIMES)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A broker whose bound is short, with a topic of two partitions."""
    async with running(settings={"kafkalite.client.timeout.max.ms": "100"}) as client:
        await client.create("orders", partitions=2)
        yield client


@pytest.mark.parametrize("version", [0, 3])
async def test_rebalance_timeout_of_a_classic_member_is_bounded(client: Client, version: int) -> None:
    """In version 0 the session timeout is also the rebalance timeout."""
    times = {"session_timeout_ms": SESSION_MS} | ({"rebalance_timeout_ms": LONGEST_MS} if version else {})
    assert (await client.call(join("g", **times), version)).error_code == 0
    second = await client.call(join("g", **times), version)  # waits for the first one, which does not rejoin
    assert (second.error_code, second.leader, len(second.members)) == (0, second.member_id, 1)


async def test_rebalance_timeout_of_a_consumer_is_bounded(client: Client) -> None:
    """A member that does not give up partitions is fenced."""
    async with asyncio.timeout(ANSWER_S):
        answer = await client.call(beat_join("g", "a", "orders", rebalance_timeout_ms=LONGEST_MS))
        while not (has := given(answer)):
            answer = await client.call(beat_join("g", "a", "orders", rebalance_timeout_ms=LONGEST_MS))
        assert [len(each) for each in has.values()] == [2]
        joined = await client.call(beat_join("g", "b", "orders"))
        assert joined.error_code == 0
        while not answer.error_code:
            answer = await client.call(fast_heartbeat("g", "a", answer.member_epoch, topic_partitions=owned(has)))
    assert answer.error_code == KafkaErrorCode.UNKNOWN_MEMBER_ID


async def test_rebalance_timeout_of_a_registered_consumer_is_bounded(client: Client) -> None:
    times = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": LONGEST_MS}
    assert (await client.call(register("g", "a", "orders", **times))).error_code == 0
    second = await client.call(register("g", "b", "orders", **times))  # waits for the first one, which is gone
    assert (second.error_code, len(second.partitions[0].partitions)) == (0, 2)


async def test_sessions_above_their_bound_are_rejected(client: Client) -> None:
    above = {"session_timeout_ms": SESSION_MS + 1}
    registered = await client.call(register("registered", "b", "orders"))
    assert registered.error_code == 0
    answers = [
        await client.call(join("classic", **above), 3),
        await client.call(create("created", "orders", **above)),
        await client.call(register("registered", "a", "orders", **above)),
        await client.call(beat_plus("registered", "b", registered.generation_id, **above)),
    ]
    assert [answer.error_code for answer in answers] == [KafkaErrorCode.INVALID_SESSION_TIMEOUT] * 4
