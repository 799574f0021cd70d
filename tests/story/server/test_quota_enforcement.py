"""Client quotas are enforced: throttle times, muted connections, fetches without records, refused changes of topics.

The time of the requests stands still until a test advances it, so that all throttle times are exact.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk import Admin, Producer
from kafkalite_sdk.admin import QuotaEntity

from kafkalite.cluster.configs.client_quotas import QuotaEntity as StoredEntity
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Principal
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkalite.server.requests.quotas.charge import Charge
from kafkalite.server.requests.quotas.loop_time import PERIOD_MS, REQUESTS_MIN, SHARE_NS_MAX
from kafkalite.testing.virtual_clock import VirtualClock
from tests.kit.server import Client, Hub, Wire, batch, fetch_request, fetched, produce_request, running, stopped_time

ALICE = Principal("User", "alice")
WINDOWS_S = 10  # in which a client without charges may send its rate at once
API_VERSIONS = b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff"  # with its size
TICK_NS = 10_000  # each reading of the clock of the loop is as much later
EXCEEDED = KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED
RECORDS = batch(bytes(1000))


class Quotas:
    """A broker with stopped time, and wires into it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        ticks = itertools.count(0, TICK_NS)
        self.hub = Hub(client.broker, lambda: next(ticks))
        self.clock: VirtualClock = stopped_time(client.broker)

    def wire(self, principal: Principal | None = ALICE) -> Wire:
        return Wire(self.hub, principal=principal)

    def limit(self, *names: tuple[str, str | None], **values: float) -> None:
        """Set the quotas of an entity, as the follower of the tree does."""
        self.client.broker.quotas.replace(StoredEntity(names), values)

    def pass_ms(self, ms: int) -> None:
        self.clock.advance(ms)
        self.hub.pump()

    @property
    def muted(self) -> int:
        quotas = self.client.broker.quotas.enforced
        assert quotas is not None
        return len(quotas.muted)

    def metric(self, name: str, **labels: str) -> float:
        found = {
            (family.name, key): metric.value
            for family in self.client.broker.metrics._families.values()
            for key, metric in family.members.items()
        }
        return found[name, tuple(labels.items())]


@pytest.fixture
async def quotas() -> AsyncIterator[Quotas]:
    async with running() as client:
        await client.create("t")
        await client.produce("t", RECORDS)
        yield Quotas(client)


def produce(acks: int = 1) -> tuple[Any, int]:
    return produce_request("t", (0, RECORDS), acks=acks), 9


def fetch(**fields: Any) -> tuple[FetchRequest, int]:
    return fetch_request("t", (0, 0), **fields), 11


METADATA = MetadataRequest(topics=[]), 9


async def test_produce_is_answered_at_once_and_the_connection_muted(quotas: Quotas) -> None:
    quotas.limit(("user", "alice"), producer_byte_rate=100)
    wire, other = quotas.wire(), quotas.wire(Principal("User", "bob"))
    wire.send(produce())
    (first,) = wire.answers()
    size = len(RECORDS)
    assert size / WINDOWS_S > 100, "the first batch exceeds the quota of all windows"
    assert (size - 1000) * 10 <= first.throttle_time_ms <= (size + 100 - 1000) * 10, "Kafka's formula"
    assert first.responses[0].partition_responses[0].error_code == 0 and quotas.muted == 1
    wire.send(METADATA)
    assert wire.answers() == [], "a muted connection is not read"
    other.send(produce(), METADATA)
    assert [each.throttle_time_ms for each in other.answers()] == [0, 0], "other users are not limited"
    quotas.pass_ms(first.throttle_time_ms - 1)
    assert wire.answers() == []
    quotas.pass_ms(1)
    assert len(wire.answers()) == 1 and quotas.muted == 0
    assert quotas.metric("kafkalite_throttled_requests_total", quota="produce") == 1


async def test_client_without_a_quota_is_served_as_without_quotas(
    quotas: Quotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the requests of clients with a quota are charged; a changed quota applies to the next request."""
    charged: list[str] = []
    begin = Charge.begin
    monkeypatch.setattr(Charge, "begin", lambda charge, *row, **more: (
        charged.append(charge._client[0]), begin(charge, *row, **more)
    ))  # fmt: skip
    quotas.limit(("user", "alice"), producer_byte_rate=1e9)
    wires = [quotas.wire(), quotas.wire(Principal("User", "bob")), quotas.wire(None)]
    for wire in wires:
        wire.send(METADATA, produce(), fetch())
        assert len(wire.answers()) == 3
    assert charged == ["alice"] * 3
    quotas.limit(("user", "alice"))
    quotas.limit(("user", "bob"), ("client-id", "wire"), request_percentage=1e9)
    charged.clear()
    for wire in wires:
        wire.send(METADATA)
        assert len(wire.answers()) == 1
    assert charged == ["bob"]


async def test_requests_of_one_segment_are_parsed_one_after_another(quotas: Quotas) -> None:
    quotas.limit(("user", None), producer_byte_rate=100)
    wire = quotas.wire()
    wire.send(produce(), produce(acks=0), METADATA)
    wire._open.remove((type(produce()[0]), 9))  # acks=0 has no response
    (first,) = wire.answers()
    assert first.throttle_time_ms > 0 and quotas.muted == 1
    quotas.pass_ms(first.throttle_time_ms)
    assert wire.answers() == [] and quotas.muted == 1, "a request without a response mutes the connection, too"
    quotas.pass_ms(30_000)
    assert len(wire.answers()) == 1 and quotas.muted == 0


async def test_muted_connections_end_with_their_client_and_with_the_broker(quotas: Quotas) -> None:
    quotas.limit(("user", "alice"), producer_byte_rate=1)
    wires = [quotas.wire(), quotas.wire()]
    for wire in wires:
        wire.send(produce())
        assert wire.answers()[0].throttle_time_ms > 1000
    assert quotas.muted == 2
    wires[0].hang_up()
    assert quotas.muted == 1
    wires[1].send(METADATA)
    await quotas.client.broker.stop(grace_s=0)
    assert quotas.muted == 0 and len(wires[1].answers()) == 1, "the broker serves what it had received"


async def test_connections_are_read_again_when_there_are_no_quotas_any_more(quotas: Quotas) -> None:
    quotas.limit(("user", "alice"), producer_byte_rate=1)
    wire = quotas.wire()
    wire.send(produce(), METADATA)
    assert len(wire.answers()) == 1 and quotas.muted == 1
    quotas.limit(("user", "alice"))
    quotas.hub.pump()
    assert len(wire.answers()) == 1 and quotas.muted == 0


async def test_throttled_fetch_has_no_records_and_opens_no_session(quotas: Quotas) -> None:
    quotas.limit(("client-id", "wire"), consumer_byte_rate=50)
    wire, other = quotas.wire(), quotas.wire()
    wire.send(fetch(session_epoch=0))
    opened = wire.answers()[0]
    assert opened.throttle_time_ms == 0 and opened.session_id, "a batch that is alone in all windows is sent"
    assert fetched(opened)["t", 0].records
    other.send(fetch(session_epoch=0))
    refused = other.answers()[0]
    assert refused.throttle_time_ms > 0 and refused.responses == [] and refused.session_id == 0
    assert len(quotas.client.broker.fetch_sessions) == 1
    wire.send((fetch_request("t", session_id=opened.session_id, session_epoch=1), 11))
    throttled = wire.answers()[0]
    assert throttled.throttle_time_ms > 0 and throttled.responses == [] and throttled.session_id == opened.session_id
    quotas.pass_ms(max(throttled.throttle_time_ms, 30_000))
    wire.send((fetch_request("t", session_id=opened.session_id, session_epoch=2), 11))
    response = wire.answers()[0]
    assert response.throttle_time_ms == 0 and fetched(response)["t", 0].records, "the session goes on"
    assert quotas.metric("kafkalite_throttled_requests_total", quota="fetch") == 2


async def test_fetch_reads_at_most_what_the_quota_admits_in_all_windows(quotas: Quotas) -> None:
    quotas.limit(("user", "alice"), consumer_byte_rate=len(RECORDS) * 2 // WINDOWS_S + 50)
    for _ in range(5):
        await quotas.client.produce("t", RECORDS)
    wire = quotas.wire()
    wire.send(fetch())
    response = wire.answers()[0]
    assert len(fetched(response)["t", 0].records) == 2 * len(RECORDS) and not response.throttle_time_ms


async def test_delayed_fetch_is_charged_when_records_arrive(quotas: Quotas) -> None:
    quotas.limit(("user", "alice"), consumer_byte_rate=10)
    wire, producer = quotas.wire(), quotas.wire(None)
    wire.send(fetch())
    assert wire.answers()[0].throttle_time_ms == 0
    wire.send((fetch_request("t", (0, 1), max_wait_ms=500), 11))
    assert wire.answers() == []
    producer.send(produce())
    response = wire.answers()[0]
    assert response.throttle_time_ms > 0 and response.responses == []


async def test_replicas_are_exempt(quotas: Quotas, monkeypatch: pytest.MonkeyPatch) -> None:
    quotas.limit(("user", None), consumer_byte_rate=1, request_percentage=1e-9)
    wire = quotas.wire()
    monkeypatch.setattr("kafkalite.server.handlers.replica_fetch.fetch_of_replica", lambda call, *_: call.answer(
        call.response_type(responses=[], session_id=0)
    ))  # fmt: skip
    wire.send(fetch(replica_id=2), fetch(replica_id=2))
    assert [each.throttle_time_ms for each in wire.answers()] == [0, 0]


async def test_client_that_names_a_replica_is_charged(quotas: Quotas) -> None:
    """OffsetForLeaderEpoch is served on all listeners; only brokers that use theirs are exempt."""
    quotas.limit(("user", None), request_percentage=1e-9)
    epoch = OffsetForLeaderEpochRequest(replica_id=2, topics=[]), 3
    wire, follower = quotas.wire(), Wire(quotas.hub, quotas.client.broker.config.listener_between_brokers, ALICE)
    for each in (wire, follower):
        each.send(epoch)
    assert wire.answers()[0].throttle_time_ms > 0
    assert follower.answers()[0].throttle_time_ms == 0


async def test_time_of_requests_is_charged(quotas: Quotas) -> None:
    quotas.limit(("user", "alice"), request_percentage=1e-5)  # 10 us in all windows
    wire = quotas.wire()
    commit = OffsetCommitRequest(group_id="g", topics=[]), 8
    has_quota = quotas.client.broker.heartbeats.has_quota
    assert has_quota is not None and has_quota(wire.connection, "wire"), "heartbeats are dispatched, and charged"
    for request in (METADATA, produce(), fetch(), commit):
        wire.send(request)
        response = await wire.answer()
        assert 0 < response.throttle_time_ms <= 1000, "one window at most"
        if request[0] is fetch()[0]:
            assert response.responses == []
        quotas.pass_ms(20_000)
    quotas.limit(("user", "alice"))
    wire.send(METADATA, produce())
    assert [each.throttle_time_ms for each in wire.answers()] == [0, 0]
    assert quotas.client.broker.dispatcher.quotas is None and quotas.client.broker.heartbeats.has_quota is None


async def test_each_request_is_charged_its_share_of_the_time_beside_the_handlers(quotas: Quotas) -> None:
    """The sockets, the timers and the event loop itself; requests of all clients are counted."""
    quotas.limit(("user", "alice"), request_percentage=100)  # 10 s in all windows
    wire, other = quotas.wire(), quotas.wire(Principal("User", "bob"))
    enforced = quotas.client.broker.quotas.enforced
    assert enforced is not None
    cpu_ns = 0
    enforced.loop_time._cpu_ns = lambda: cpu_ns
    for each in (wire, other):
        each.send(METADATA)
        assert (await each.answer()).throttle_time_ms == 0
    assert enforced.loop_time.hubs == {quotas.hub}
    before = quotas.hub.requests
    while quotas.hub.requests < before + REQUESTS_MIN:
        other.send(METADATA)
        await other.answer()
    cpu_ns = quotas.hub.handled_ns + 10**12
    quotas.pass_ms(PERIOD_MS)
    wire.send(METADATA)
    assert (await wire.answer()).throttle_time_ms == 0 and enforced.loop_time.share_ns == SHARE_NS_MAX
    quotas.limit(("user", "alice"), request_percentage=1e-3)  # 100 us in all windows
    wire.send(METADATA)
    assert (await wire.answer()).throttle_time_ms == 1000
    assert enforced.loop_time.continued_ns == 0, "no callback has continued a request"


async def test_time_of_a_callback_that_continues_a_request_is_charged_once(quotas: Quotas) -> None:
    quotas.limit(("user", "alice"), request_percentage=1e6)
    wire = quotas.wire()
    wire.send(fetch(max_wait_ms=1000, min_bytes=1_000_000))
    enforced = quotas.client.broker.quotas.enforced
    assert enforced is not None and enforced.loop_time.continued_ns == 0 and wire.answers() == []
    quotas.pass_ms(1000)
    await wire.answer()
    assert enforced.loop_time.continued_ns >= TICK_NS


def new_topics(*names: str, partitions: int) -> CreateTopicsRequest:
    topics = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions) for name in names]
    for topic in topics:
        topic.replication_factor = 1
    return CreateTopicsRequest(topics=topics)


async def test_changes_of_topics_are_refused_once_the_quota_is_exceeded(quotas: Quotas) -> None:
    quotas.limit(("user", "alice"), controller_mutation_rate=1)
    wire = quotas.wire()
    wire.send((new_topics("a", "b", "c", partitions=8), 7))  # the bucket has 11 tokens
    created = await wire.answer()
    assert {each.name: each.error_code for each in created.topics} == {"a": 0, "b": 0, "c": EXCEEDED}
    assert created.throttle_time_ms == 5000
    quotas.pass_ms(4999)
    wire.send((new_topics("c", partitions=8), 7))
    assert wire.answers() == []
    quotas.pass_ms(2)
    assert (await wire.answer()).topics[0].error_code == 0, "the bucket may be overdrawn by one change"
    quotas.pass_ms(8000)
    wire.send((DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1000), 5))
    deleted = await wire.answer()
    assert [each.error_code for each in deleted.responses] == [0, EXCEEDED] and deleted.throttle_time_ms > 0
    quotas.pass_ms(deleted.throttle_time_ms + 1)
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="c", count=30, assignments=None)
    wire.send((CreatePartitionsRequest(topics=[more], timeout_ms=1000), 3))
    assert (await wire.answer()).results[0].error_code == 0
    quotas.pass_ms(1)
    wire.send((CreatePartitionsRequest(topics=[more], timeout_ms=1000), 3))
    assert (await wire.answer()).throttle_time_ms == 0, "an unchanged number is not charged"


async def test_older_clients_are_throttled_after_their_changes(quotas: Quotas) -> None:
    quotas.limit(("user", "alice"), controller_mutation_rate=1)
    wire = quotas.wire()
    wire.send((new_topics("a", "b", "c", partitions=8), 5))
    created = await wire.answer()
    assert [each.error_code for each in created.topics] == [0, 0, 0] and created.throttle_time_ms == 13_000


async def test_stored_quotas_are_enforced_after_a_restart_and_changes_at_once(tmp_path: Path) -> None:
    entity = QuotaEntity.of({"user": "ANONYMOUS"})
    for restarted in (False, True):
        async with running(str(tmp_path)) as client, Admin(client.broker.address) as admin:
            if not restarted:
                (await admin.quotas.alter({entity: {"producer_byte_rate": 10}})).check()
                await client.create("t")
            response = await client.call(*produce())
            assert response.throttle_time_ms > 1000
            quotas = client.broker.quotas.enforced
            assert quotas is not None and len(quotas.muted) == 1
    async with running(str(tmp_path)) as client, Admin(client.broker.address) as admin:
        (await admin.quotas.alter({entity: {"producer_byte_rate": None}})).check()
        assert (await client.call(*produce())).throttle_time_ms == 0
        assert client.broker.dispatcher.quotas is None


async def test_sdk_producer_keeps_its_quota() -> None:
    """Two windows of one second: the rate is reached after two seconds."""
    settings = {"quota.window.num": "2"}
    async with running(settings=settings) as client, Admin(client.broker.address) as admin:
        await client.create("t")
        (await admin.quotas.alter({QuotaEntity.of({"client-id": "p"}): {"producer_byte_rate": 40_000}})).check()
        async with Producer(client.broker.address, client_id="p", linger_ms=0, batch_size=4000) as producer:
            loop = asyncio.get_running_loop()
            began = loop.time()
            for _ in range(40):
                await producer.send("t", bytes(4000))
            elapsed = loop.time() - began
        sent = 40 * 4000 - 40_000  # without the burst of the first window
        assert sent / elapsed < 60_000, "a loaded machine may be slower, never faster"


async def is_served(address: str) -> bool:
    """Whether a new connection is served; False: the broker has closed it."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(API_VERSIONS)
    try:
        return bool(await reader.read(4))
    except ConnectionResetError:  # the request was not read
        return False
    finally:
        writer.close()


async def test_new_connections_have_a_rate() -> None:
    settings = {"max.connection.creation.rate": "20", "quota.window.num": "2"}
    async with running(settings=settings) as client, Admin(client.broker.address) as admin:
        loop, address = asyncio.get_running_loop(), client.broker.address
        began = loop.time()
        assert all([await is_served(address) for _ in range(40)])
        assert loop.time() - began > 0.5, "20 at once, then 20 per second"
        limits = {QuotaEntity.of({"ip": address.partition(":")[0]}): {"connection_creation_rate": 1}}
        (await admin.quotas.alter(limits)).check()
        assert [await is_served(address) for _ in range(3)].count(False) >= 1, "closed after the throttle time"
        limits = {key: {"connection_creation_rate": None} for key in limits}
        (await admin.quotas.alter(limits)).check()
        assert await is_served(address)


async def test_requests_that_are_refused_by_acls_are_charged() -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    async with running(settings=settings) as client:
        await client.create("t")
        quotas = Quotas(client)
        quotas.limit(("user", "alice"), producer_byte_rate=100)
        wire = quotas.wire()
        wire.send(produce())
        response = wire.answers()[0]
        denied = KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert response.responses[0].partition_responses[0].error_code == denied and response.throttle_time_ms > 0
