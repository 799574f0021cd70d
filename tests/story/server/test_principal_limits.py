"""Limits of what one principal holds: `kafkalite.principal.max.*`. Other principals and super users have none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ANONYMOUS, Principal
from kafkalite.protocol.extensions.create_group import CreateGroupRequest
from kafkalite.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkalite.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.join_group import JoinGroupRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.state.quotas.holdings import CHECK_MS
from tests.kit.members import create
from tests.kit.server import (
    Client,
    Hub,
    Wire,
    batch,
    fetch_request,
    outcomes,
    produce_request,
    running,
    stopped_time,
)

ALICE, BOB, ADMIN = (Principal("User", name) for name in ("alice", "bob", "admin"))
REFUSED = KafkaErrorCode.POLICY_VIOLATION


def limited(name: str, limit: int = 2) -> dict[str, str]:
    """The settings of a broker with one limit."""
    partitions = {f"{topic}.num.partitions": "1" for topic in ("offsets.topic", "transaction.state.log")}
    return {f"kafkalite.principal.max.{name}": str(limit), "super.users": "User:admin", **partitions}


def refusals(client: Client, limit: str) -> float:
    """How often a limit was reached, by the metric."""
    limits = client.broker.dispatcher.limits
    assert limits is not None
    return limits._refusals[limit].value


async def errors(wire: Wire, requests: Sequence[tuple[Any, int]]) -> list[int]:
    """The error codes of requests, one after another."""
    found = []
    for each in requests:
        wire.send(each)
        response = await wire.answer()
        partitions = [part for topic in getattr(response, "topics", ()) for part in topic.partitions]
        found.append(partitions[0].error_code if partitions else response.error_code)
    return found


async def test_connections_of_a_principal_are_closed_above_its_limit(caplog: pytest.LogCaptureFixture) -> None:
    async with running(settings=limited("connections")) as client:
        hub = Hub(client.broker)
        anonymous = [hub.connect() for _ in range(3)]
        assert [each.connection.closed for each in anonymous] == [False, True, True], "the client of the test is one"
        anonymous[0].close()
        hub.pump()
        assert not hub.connect().connection.closed, "a closed connection is not counted"
        assert refusals(client, "connections") == 2
        lines = [each.getMessage() for each in caplog.records if "kafkalite.principal.max" in each.getMessage()]
        assert len(lines) == 1 and lines[0].startswith("User:ANONYMOUS has 2 connections, the limit")


async def test_fetch_sessions_of_a_principal_have_a_limit() -> None:
    async with running(settings=limited("fetch.sessions")) as client:
        await client.create("t")
        await client.produce("t", batch(b"value"))
        hub = Hub(client.broker)

        async def open_session(principal: Principal) -> tuple[Wire, int]:
            wire = Wire(hub, principal=principal)
            wire.send((fetch_request("t", (0, 0), session_epoch=0), 11))
            response = await wire.answer()
            assert response.error_code == 0 and response.responses, "it is served without a session"
            return wire, response.session_id

        opened = [await open_session(ALICE) for _ in range(3)]
        assert [bool(session_id) for _wire, session_id in opened] == [True, True, False]
        assert (await open_session(BOB))[1] and all([(await open_session(ADMIN))[1] for _ in range(3)])
        opened[0][0].hang_up()
        hub.pump()
        assert (await open_session(ALICE))[1]
        counted = client.broker.fetch_sessions.holdings
        assert counted is not None and counted.count(ALICE) == 2 and counted.count(ADMIN) == 0


async def test_listeners_between_brokers_have_no_limits_beside_one_of_clients() -> None:
    names = ("OUT", "IN", "OLD")
    settings = limited("fetch.sessions") | limited("connections") | {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        "inter.broker.listener.name": "IN",
        "kafkalite.inter.broker.additional.listeners": "OLD",
    }  # fmt: skip
    async with running(settings=settings) as client:
        await client.create("t")
        hub = Hub(client.broker)
        for listener in ("IN", "OLD"):
            wires = [Wire(hub, listener) for _ in range(3)]
            for each in wires:
                each.send((fetch_request("t", (0, 0), session_epoch=0), 11))
            assert all([(await each.answer()).session_id for each in wires])
        counted = client.broker.fetch_sessions.holdings
        assert counted is not None and counted.count(ANONYMOUS) == 0
        clients = [hub.connect("OUT") for _ in range(2)]
        assert [each.connection.closed for each in clients] == [False, True], "the client of the test is one"


async def test_requests_of_a_principal_have_a_share_of_the_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = limited("queued.request.bytes", 100_000) | {
        "listeners": "OUT://127.0.0.1:0,IN://127.0.0.1:0",
        "listener.security.protocol.map": "OUT:PLAINTEXT,IN:PLAINTEXT",
        "inter.broker.listener.name": "IN",
    }
    async with running(settings=settings) as client:
        await client.create("t")
        write_pending = client.broker.replicas.write_pending
        held = [True]
        monkeypatch.setattr(client.broker.replicas, "write_pending", lambda: held or write_pending())
        hub = Hub(client.broker)
        first, second, exempt = Wire(hub, "OUT"), Wire(hub, "OUT"), Wire(hub, "IN")
        produce = produce_request("t", (0, batch(bytes(60_000)))), 12
        for wire in (first, second, exempt):
            wire.send(*[produce] * 10)
            assert wire.answers() == []
        limits = client.broker.dispatcher.limits
        assert limits is not None and limits._memory is not None
        share = limits._memory.share_of(ANONYMOUS)
        assert share is not None and share.connections_count == 3, "the client of the test is one"
        assert 100_000 <= share.held_bytes < 100_000 + 60_100 + 2 * 4096
        assert [wire.connection.denied for wire in (first, second, exempt)] == [True, True, False]
        assert exempt.connection.open_replies == 10 and refusals(client, "queued.request.bytes") == 1
        assert "requests of User:ANONYMOUS hold 100000 bytes, its limit" in caplog.text
        held.clear()
        hub.schedule()
        for wire in (first, second, exempt):
            assert [outcomes(await wire.answer())[0].error_code for _ in range(10)] == [0] * 10
        first.hang_up()
        second.hang_up()
        hub.pump()
        assert (share.held_bytes, share.waiting_count, share.connections_count) == (0, 0, 1)


async def test_producer_ids_of_a_principal_have_a_limit() -> None:
    settings = {**limited("producer.ids"), "producer.id.expiration.ms": "60000"}
    async with running(settings=settings) as client:
        hub, clock = Hub(client.broker), stopped_time(client.broker)
        alice, bob = Wire(hub, principal=ALICE), Wire(hub, principal=BOB)
        init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4
        assert await errors(alice, [init] * 3) == [0, 0, REFUSED]
        assert await errors(bob, [init]) == [0]
        clock.advance(60_000)
        assert await errors(alice, [init] * 3) == [0, 0, REFUSED]
        assert refusals(client, "producer.ids") == 2


async def test_producer_ids_that_are_not_issued_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(settings=limited("producer.ids")) as client:
        alice = Wire(Hub(client.broker), principal=ALICE)
        init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4
        invalid = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000, producer_id=1), 4
        assert await errors(alice, [invalid] * 3) == [KafkaErrorCode.INVALID_REQUEST] * 3
        waiting: list[Callable[[range | None], None]] = []
        monkeypatch.setattr(client.broker.producer_ids, "_take_block", waiting.append)
        refused = KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        for block, expected in ((None, [refused, refused, REFUSED]), (range(2), [0, 0, REFUSED])):
            alice.send(init, init, init)
            assert alice.answers() == [], "two wait for a block, and the third for its turn"
            waiting.pop()(block)
            assert [(await alice.answer()).error_code for _ in expected] == expected


async def test_time_of_counted_producer_ids_is_dynamic() -> None:
    async with running(settings=limited("producer.ids", 1)) as client:
        alice, clock = Wire(Hub(client.broker), principal=ALICE), stopped_time(client.broker)
        init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4
        assert await errors(alice, [init, init]) == [0, REFUSED]
        changed = {**client.broker.config.static, "producer.id.expiration.ms": "1000"}
        client.broker.config = BrokerConfig(changed)
        clock.advance(1000)
        assert await errors(alice, [init]) == [0]


async def test_transactional_ids_of_a_principal_have_a_limit() -> None:
    async with running(settings=limited("transactional.ids")) as client:
        wires = {each: Wire(Hub(client.broker), principal=each) for each in (ALICE, BOB, ADMIN)}

        def init(name: str) -> tuple[InitProducerIdRequest, int]:
            return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000), 4

        await client.call(init("first")[0], 4)  # creates the topic
        client.broker.dispatcher.limits._transactional_ids.names.held.release("first")  # type: ignore[union-attr]
        assert await errors(wires[ALICE], [init("a"), init("b"), init("c"), init("a")]) == [0, 0, REFUSED, 0]
        assert await errors(wires[BOB], [init("a"), init("c"), init("d"), init("e")]) == [0, 0, 0, REFUSED]
        assert await errors(wires[ADMIN], [init(name) for name in "fgh"]) == [0, 0, 0]


def creations(group: str) -> list[tuple[Any, int]]:
    """The requests that create a group."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    part = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(partition_index=0)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[part])
    return [
        (OffsetCommitRequest(group_id=group, topics=[topic]), 8),
        (JoinGroupRequest(group_id=group, protocol_type="consumer", protocols=[protocol]), 3),
        (ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", subscribed_topic_names=["t"],
                                       rebalance_timeout_ms=1000, topic_partitions=[]), 0),
        (CreateGroupRequest(group_id=group, topics=["t"]), 0),
    ]  # fmt: skip


async def test_groups_of_a_principal_have_a_limit() -> None:
    async with running(settings=limited("groups")) as client:
        await client.create("t")
        await client.call(create("first", "t"), 0)  # creates the topic, before time is stopped
        hub, clock = Hub(client.broker), stopped_time(client.broker)
        alice, bob = Wire(hub, principal=ALICE), Wire(hub, principal=BOB)
        assert await errors(bob, [creations("old")[0]]) == [0]
        commit = [creations(name)[0] for name in ("a", "b", "c", "a", "old")]
        assert await errors(alice, commit) == [0, 0, REFUSED, 0, 0]
        assert await errors(alice, creations("d")) == [REFUSED] * 4, "each way to create one"
        assert refusals(client, "groups") == 5
        assert await errors(bob, [creations("c")[0]]) == [0]
        deleted = await client.call(DeleteGroupsRequest(groups_names=["a"]))
        assert deleted.results[0].error_code == 0
        clock.advance(CHECK_MS)
        assert await errors(alice, [creations("d")[0], creations("e")[0]]) == [0, REFUSED]


async def test_refused_commit_of_many_partitions_is_answered_in_steps() -> None:
    """One loop iteration in this test is a step; the errors of 200,000 partitions at once take more than a second."""
    many = 6_000
    async with running(settings=limited("groups", 1)) as client:
        await client.create("t")
        await client.call(create("first", "t"), 0)  # creates the topic
        alice = Wire(Hub(client.broker), principal=ALICE)
        ((commit, version), *_) = creations("a")
        assert await errors(alice, [(commit, version)]) == [0]
        ((large, _), *_) = creations("b")
        large.topics[0].partitions *= many
        client.broker.slicer._budget_s = 1e-9
        alice.send((large, version))
        iterations = 0
        while not (found := alice.answers()):
            iterations += 1
            await asyncio.sleep(0)
        (partitions,) = (topic.partitions for topic in found[0].topics)
        assert [each.error_code for each in partitions] == [REFUSED] * many
        assert iterations > many / 20


async def test_names_that_have_ended_are_released_once_a_minute() -> None:
    async with running(settings=limited("groups")) as client:
        await client.create("t")
        await client.call(create("first", "t"), 0)  # creates the topic, before time is stopped
        clock, alice = stopped_time(client.broker), Wire(Hub(client.broker), principal=ALICE)
        assert await errors(alice, [(create(name, "t"), 0) for name in "bc"]) == [0, 0]
        held = client.broker.dispatcher.limits._groups.names.held  # type: ignore[union-attr]
        for deleted, left in (([], 2), (["b"], 1), (["c"], 0)):
            await client.call(DeleteGroupsRequest(groups_names=deleted))
            assert held.count(ALICE) == left + len(deleted)
            clock.advance(60_000)
            assert held.count(ALICE) == left
        assert await errors(alice, [(create("d", "t"), 0)]) == [0] and held.count(ALICE) == 1


async def test_names_that_are_too_long_to_be_counted_are_not_created(caplog: pytest.LogCaptureFixture) -> None:
    async with running(settings=limited("groups")) as client:
        await client.create("t")
        wires = {each: Wire(Hub(client.broker), principal=each) for each in (ALICE, ADMIN)}
        await client.call(create("first", "t"), 0)  # creates the topic
        for wire, length, expected in (
            (ALICE, 1_000, 0),
            (ALICE, 1_001, REFUSED),
            (ADMIN, 1_001, 0),
            (ALICE, 1_001, 0),
        ):
            assert await errors(wires[wire], [creations("n" * length)[0]]) == [expected]
        assert "User:alice: a new name of 1001 characters is refused" in caplog.text


async def test_groups_that_a_broker_creates_for_its_client_are_not_counted_for_the_broker() -> None:
    async with running(settings=limited("groups")) as client:
        await client.create("t")
        broker = Wire(Hub(client.broker), client.broker.config.listener_between_brokers)
        requests = [create(name, "t", coordinator_only=True) for name in "abc"]
        assert await errors(broker, [(each, 0) for each in requests]) == [0, 0, 0]
        assert await errors(broker, [(create(name, "t"), 0) for name in "def"]) == [0, 0, REFUSED]


async def test_broker_without_limits_counts_nothing() -> None:
    async with running() as client:
        assert client.broker.dispatcher.limits is None and client.broker.fetch_sessions.holdings is None
