"""The consumer of a group in ZooKeeper with processes of brokers: kafkalite over the served tree and over Apache
ZooKeeper, and Apache Kafka 3.9. Members join, are killed, and leave, with offsets in each storage.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from kafkalite_sdk import Admin, Producer
from kafkalite_sdk.admin.topic_types import NewTopic
from kafkalite_sdk.zk import ConsumerConnector
from kafkalite_sdk.zk.consumer.streams import MessageStream
from kafkalite_sdk.zk.session import ClientSessions, opened_session, result_of

from kafkalite.coordination.errors import NoAuthError
from kafkalite.coordination.zookeeper.access import READABLE_ACL, Access
from tests.kit.brokers import ApacheKafkaZooKeeper, Broker, Kafkalite, KafkaliteCluster

DEADLINE_S = 90.0
PARTITIONS = 4
SESSION_MS = 3000
STORAGES: dict[str, dict[str, Any]] = {
    "zookeeper": {},
    "dual": {"offsets_storage": "kafka"},
    "broker": {"offsets_storage": "kafka", "dual_commit_enabled": False},
}


class Service(NamedTuple):
    """Brokers, and the connect string of their tree."""

    broker: Broker
    connect: str


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafkaZooKeeper]:
    broker = ApacheKafkaZooKeeper(tmp_path_factory.mktemp("kafka"), {})
    broker.start()
    yield broker
    broker.close()


@pytest.fixture(scope="module")
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "served":
        cluster = KafkaliteCluster(directory, {})
        cluster.start()
        yield Service(cluster, str(directory / "shared"))
        cluster.close()
        return
    kafka: ApacheKafkaZooKeeper = request.getfixturevalue("kafka")
    if request.param == "kafka":
        yield Service(kafka, kafka.zookeeper.address)
        return
    connect = f"{kafka.zookeeper.address}/{directory.name}"  # a tree of its own: its log directory is new
    broker = Kafkalite(directory, {"zookeeper.connect": connect, "broker.id": "1"})
    broker.start()
    yield Service(broker, connect)
    broker.close()


class Member:
    """A consumer whose streams are read by tasks."""

    def __init__(self, service: Service, group: str, options: dict[str, Any], received: "Received") -> None:
        self.connector = ConsumerConnector(
            service.connect, group, auto_offset_reset="smallest", rebalance_backoff_ms=200, rebalance_max_retries=50,
            zookeeper_session_timeout_ms=SESSION_MS, zookeeper_connection_timeout_ms=20_000, **options,
        )  # fmt: skip
        self.received = received
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self, topic: str) -> None:
        await self.connector.start()
        for stream in self.connector.create_message_streams({topic: 2})[topic]:
            self._tasks.append(asyncio.create_task(self._read(stream)))
        await self.connector.wait_until_assigned(DEADLINE_S)

    async def _read(self, stream: MessageStream[bytes, bytes]) -> None:
        async for record in stream:
            assert record.value is not None
            self.received.add(self, int(record.value))

    async def leave(self) -> None:
        await self.connector.shutdown()
        await asyncio.gather(*self._tasks)

    async def kill(self) -> None:
        """End as a killed process does: nothing is written, and the session ends with its timeout."""
        connector = self.connector
        await connector._sessions.close(0.0)
        for each in self._tasks:
            each.cancel()
        assert connector._driver is not None
        await connector._driver.close()
        await connector._clients.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Received:
    """What all members have received."""

    def __init__(self) -> None:
        self.numbers: Counter[int] = Counter()
        self.members: Counter[Member] = Counter()
        self._changed = asyncio.Event()

    def add(self, member: Member, number: int) -> None:
        self.numbers[number] += 1
        self.members[member] += 1
        self._changed.set()

    async def have(self, numbers: Collection[int], times: int = 1) -> None:
        """Wait until each record was received so many times."""
        while any(self.numbers[each] < times for each in numbers):
            self._changed.clear()
            await self._changed.wait()


async def produce(service: Service, topic: str, numbers: Collection[int]) -> None:
    async with Producer(service.broker.address) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        await producer.flush()


async def committed(service: Service, topic: str, storage: str) -> dict[int, int]:
    """The offsets of the group, which both storages have in common."""
    found = []
    if storage != "broker":
        async with opened_session(service.connect, DEADLINE_S) as session:
            for each in range(PARTITIONS):
                path = f"/consumers/{topic}/offsets/{topic}/{each}"
                data, _ = await result_of(partial(session.get, path), DEADLINE_S)
                found.append((each, int(data)))
    if storage != "zookeeper":
        async with Admin(service.broker.address) as admin:
            offsets = (await admin.group_offsets.list(topic))[topic]
        in_broker = [(each.partition, to.offset) for each, to in offsets.items()]
        assert storage == "broker" or sorted(in_broker) == found
        found = in_broker
    return dict(found)


async def join_kill_and_leave(service: Service, storage: str) -> None:
    topic = f"orders-{storage}-{secrets.token_hex(4)}"
    async with Admin(service.broker.address) as admin:
        (await admin.topics.create(NewTopic(topic, partitions=PARTITIONS))).check()
        if storage != "zookeeper":
            (await admin.group_offsets.list(topic)).check()  # the first group waits for the topic of offsets
    received = Received()
    await produce(service, topic, range(100))
    first = Member(service, topic, STORAGES[storage], received)
    await first.join(topic)
    await received.have(range(100))
    await first.connector.commit_offsets()
    second = Member(service, topic, STORAGES[storage], received)
    await second.join(topic)
    await produce(service, topic, range(100, 200))
    await received.have(range(200))
    assert received.members[second] == 50, "it owns two partitions"
    assert set(received.numbers.values()) == {1}, "the members have committed when partitions moved"
    owned = {each.partition for stream in _streams(second) for each in stream.partitions}
    assert len(owned) == PARTITIONS // 2
    await second.kill()
    await received.have([each for each in range(100, 200) if each % PARTITIONS in owned], times=2)
    await produce(service, topic, range(200, 220))
    await received.have(range(220))
    await first.leave()
    assert await committed(service, topic, storage) == dict.fromkeys(range(PARTITIONS), 55)
    last = Member(service, topic, STORAGES[storage], received)
    await last.join(topic)
    await produce(service, topic, [220])
    await received.have([220])
    await last.leave()
    assert received.members[last] == 1, "it begins behind the committed offsets"


SHORT = {"served": ("zookeeper", "broker"), "kafkalite": ("dual",), "kafka": ("zookeeper",)}


@pytest.mark.parametrize(("service", "storages"), SHORT.items(), indirect=["service"], ids=SHORT)
def test_members_join_are_killed_and_leave(service: Service, storages: Collection[str]) -> None:
    for storage in storages:
        asyncio.run(asyncio.wait_for(join_kill_and_leave(service, storage), DEADLINE_S))


@pytest.mark.torture
@pytest.mark.parametrize("service", SHORT, indirect=True)
def test_members_join_are_killed_and_leave_with_each_storage(service: Service) -> None:
    for storage in STORAGES:
        asyncio.run(asyncio.wait_for(join_kill_and_leave(service, storage), DEADLINE_S))


def _streams(member: Member) -> list[MessageStream[bytes, bytes]]:
    return [each for streams in member.connector._clients.streams.streams.values() for each in streams]


def test_acls_that_only_permit_reads_are_a_clear_error(kafka: ApacheKafkaZooKeeper) -> None:
    async def story() -> None:
        address = kafka.zookeeper.address
        owner = Access(digest=b"owner:secret", acl=lambda _path: READABLE_ACL)
        sessions = ClientSessions(address, access=owner)
        session = await sessions.open(DEADLINE_S)
        for path in ("/closed", "/closed/consumers"):
            await result_of(partial(session.create, path, b""), DEADLINE_S)
        await sessions.close()
        async with ConsumerConnector(f"{address}/closed", "group", zookeeper_connection_timeout_ms=20_000) as connector:
            [stream] = connector.create_message_streams({"orders": 1})["orders"]
            with pytest.raises(NoAuthError, match="no permission: /consumers"):
                await anext(aiter(stream))

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))
