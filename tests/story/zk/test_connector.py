"""The consumer of a group in ZooKeeper on a kafkalite cluster: joins, leaves, lost sessions, commits, clear errors."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from kafkalite_sdk import Admin, OffsetAndMetadata, Producer
from kafkalite_sdk.zk.consumer.connector import ConsumerConnector
from kafkalite_sdk.zk.consumer.listener import ConsumerRebalanceListener
from kafkalite_sdk.zk.consumer.streams import ConsumerTimeoutError, MessageStream
from kafkalite_sdk.zk.membership.errors import ConsumerIdInUseError
from kafkalite_sdk.zk.session import opened_session, result_of

from kafkalite.clock import Outcome
from kafkalite.coordination.errors import NoAuthError, NoNodeError
from kafkalite.coordination.znodes.consumers import StreamId
from kafkalite.errors import ClientUseError
from kafkalite.model import TopicPartition
from kafkalite.testing.broker_cluster import BrokerCluster

DEADLINE_S = 60.0
PARTITIONS = 4
RECORDS = 200
FAST = {"auto_offset_reset": "smallest", "rebalance_backoff_ms": 100, "rebalance_max_retries": 50}


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(1) as running:
        yield running


@pytest.fixture
def topic(cluster: BrokerCluster, request: pytest.FixtureRequest) -> str:
    """A topic with records 0 to RECORDS - 1; its name is also that of the group."""
    name = f"{request.node.originalname}-{abs(hash(request.node.name)) % 10**6}"
    cluster.create_topic(name, PARTITIONS)
    run(produce(cluster, name, range(RECORDS)))
    return name


def run(test: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await test

    asyncio.run(limited())


async def produce(cluster: BrokerCluster, topic: str, numbers: Collection[int]) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        await producer.flush()


def connector(cluster: BrokerCluster, group: str, **options: Any) -> ConsumerConnector[bytes, bytes]:
    return ConsumerConnector(cluster.zookeeper_connect, group, **{**FAST, **options})


class Readers:
    """Tasks that read streams, and what they have received."""

    def __init__(self, changed: asyncio.Event | None = None) -> None:
        self.received: Counter[int] = Counter()
        self.errors: list[Exception] = []
        self.changed = asyncio.Event() if changed is None else changed
        self._tasks: list[asyncio.Task[None]] = []

    def read(self, streams: Collection[MessageStream[bytes, bytes]]) -> None:
        self._tasks += [asyncio.create_task(self._read(each)) for each in streams]

    async def _read(self, stream: MessageStream[bytes, bytes]) -> None:
        try:
            async for record in stream:
                assert record.value is not None
                self.received[int(record.value)] += 1
                self.changed.set()
        except Exception as error:
            self.errors.append(error)
            self.changed.set()

    async def have(self, numbers: Collection[int], other: "Readers | None" = None, times: int = 1) -> None:
        """Wait until each record was received so many times, by these readers or by others."""
        while not all(
            self.received[each] + (0 if other is None else other.received[each]) >= times for each in numbers
        ):
            self.changed.clear()
            await self.changed.wait()
            assert not self.errors, self.errors

    async def end(self) -> None:
        await asyncio.gather(*self._tasks)


@asynccontextmanager
async def reading(
    cluster: BrokerCluster, topic: str, streams: int = 2, changed: asyncio.Event | None = None, **options: Any
) -> AsyncIterator[tuple[ConsumerConnector[bytes, bytes], Readers]]:
    readers = Readers(changed)
    async with connector(cluster, topic, **options) as member:
        readers.read(member.create_message_streams({topic: streams})[topic])
        await member.wait_until_assigned(DEADLINE_S)
        yield member, readers
    await readers.end()


async def node(cluster: BrokerCluster, path: str) -> bytes:
    async with opened_session(cluster.zookeeper_connect, DEADLINE_S) as session:
        data, _ = await result_of(partial(session.get, path), DEADLINE_S)
        assert isinstance(data, bytes)
        return data


async def children(cluster: BrokerCluster, path: str) -> list[str]:
    async with opened_session(cluster.zookeeper_connect, DEADLINE_S) as session:
        names, _ = await result_of(partial(session.children, path), DEADLINE_S)
        assert isinstance(names, list)
        return names


async def committed(cluster: BrokerCluster, topic: str) -> dict[int, int]:
    numbers = await children(cluster, f"/consumers/{topic}/offsets/{topic}")
    return {int(each): int(await node(cluster, f"/consumers/{topic}/offsets/{topic}/{each}")) for each in numbers}


async def broker_offsets(cluster: BrokerCluster, topic: str) -> dict[int, int]:
    async with Admin(cluster.bootstrap_servers) as admin:
        found = (await admin.group_offsets.list(topic))[topic]
    return {each.partition: to.offset for each, to in found.items()}


def test_streams_share_the_partitions_and_the_shutdown_commits(cluster: BrokerCluster, topic: str) -> None:
    async def story() -> None:
        async with reading(cluster, topic, streams=3) as (member, readers):
            registered = json.loads(await node(cluster, f"/consumers/{topic}/ids/{member.consumer_id}"))
            assert registered | {"timestamp": ""} == {
                "version": 1, "subscription": {topic: 3}, "pattern": "static", "timestamp": "",
            }  # fmt: skip
            owners = [(await node(cluster, f"/consumers/{topic}/owners/{topic}/{each}")).decode() for each in range(4)]
            assert owners == [f"{member.consumer_id}-{number}" for number in (0, 0, 1, 2)]
            await readers.have(range(RECORDS))
        assert set(readers.received.values()) == {1} and not readers.errors
        assert await committed(cluster, topic) == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
        assert await children(cluster, f"/consumers/{topic}/ids") == []
        assert await children(cluster, f"/consumers/{topic}/owners/{topic}") == []
        await produce(cluster, topic, range(RECORDS, 2 * RECORDS))
        async with reading(cluster, topic) as (_, readers):
            await readers.have(range(RECORDS, 2 * RECORDS))
        assert min(readers.received) == RECORDS, "it continues behind the committed offsets"

    run(story())


def test_commit_covers_what_the_streams_have_returned(cluster: BrokerCluster, topic: str) -> None:
    async def story() -> None:
        async with connector(cluster, topic, auto_commit_enable=False) as member:
            [stream] = member.create_message_streams({topic: 1})[topic]
            returned: Counter[int] = Counter()
            async for record in stream:
                returned[record.partition] += 1
                if sum(returned.values()) == RECORDS // 2 + 5:
                    break
            await member.commit_offsets()
            expected = {each: returned[each] for each in range(PARTITIONS)}
            assert await committed(cluster, topic) == expected
        assert await committed(cluster, topic) == expected, "no automatic commit"
        async with reading(cluster, topic) as (_, readers):
            await readers.have({each for each in range(RECORDS) if each // PARTITIONS >= expected[each % PARTITIONS]})
        assert sum(readers.received.values()) == RECORDS - sum(returned.values())

    run(story())


def test_batches_and_iterations_return_each_record_once(cluster: BrokerCluster, topic: str) -> None:
    async def story() -> None:
        async with connector(cluster, topic, auto_commit_enable=False) as member:
            [stream] = member.create_message_streams({topic: 1})[topic]
            received = [await anext(stream)]
            await member.commit_offsets()
            assert sum((await committed(cluster, topic)).values()) == 1
            while len(received) < RECORDS:
                received += await stream.next_batch()
                await member.commit_offsets()
                assert sum((await committed(cluster, topic)).values()) == len(received)
            assert {int(each.value or b"") for each in received} == set(range(RECORDS))
        assert await stream.next_batch() == []

    run(story())


def test_partitions_move_to_a_consumer_that_joins_and_back(cluster: BrokerCluster, topic: str) -> None:
    async def story() -> None:
        async with reading(cluster, topic) as (_, first):
            await first.have(range(RECORDS))
            async with reading(cluster, topic, changed=first.changed) as (_, second):
                await produce(cluster, topic, range(RECORDS, 2 * RECORDS))
                await first.have(range(2 * RECORDS), second)
                assert second.received, "the second consumer owns two of the partitions"
                assert (first.received + second.received).total() == 2 * RECORDS
            await produce(cluster, topic, range(2 * RECORDS, 3 * RECORDS))
            await first.have(range(2 * RECORDS, 3 * RECORDS))

    run(story())


def test_lost_session_is_replaced_and_uncommitted_records_are_read_again(cluster: BrokerCluster, topic: str) -> None:
    async def story() -> None:
        async with reading(cluster, topic, auto_commit_enable=False) as (member, readers):
            await readers.have(range(RECORDS))
            session = member._sessions.current
            assert session is not None
            expired = session.session_id
            cluster._zookeeper.call(lambda server: server.expire(expired))
            await readers.have(range(RECORDS), times=2)
            assert await children(cluster, f"/consumers/{topic}/ids") == [member.consumer_id]
        assert set(readers.received.values()) == {2}

    run(story())


@pytest.mark.parametrize(("dual", "storages"), [(True, "both"), (False, "broker")])
def test_offsets_in_the_broker(cluster: BrokerCluster, topic: str, dual: bool, storages: str) -> None:
    async def story() -> None:
        options = {"offsets_storage": "kafka", "dual_commit_enabled": dual}
        async with reading(cluster, topic, **options) as (member, readers):
            await readers.have(range(RECORDS))
            await member.commit_offsets({TopicPartition(topic, 0): OffsetAndMetadata(7, "note")})
            async with Admin(cluster.bootstrap_servers) as admin:
                found = (await admin.group_offsets.list(topic))[topic]
            assert found[TopicPartition(topic, 0)][:2] == (7, "note")
        expected = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
        assert await broker_offsets(cluster, topic) == expected
        if storages == "both":
            assert await committed(cluster, topic) == expected
        else:
            with pytest.raises(NoNodeError):
                await committed(cluster, topic)
        await produce(cluster, topic, range(RECORDS, RECORDS + 10))
        async with reading(cluster, topic, **options) as (_, readers):
            await readers.have(range(RECORDS, RECORDS + 10))
        assert min(readers.received) == RECORDS

    run(story())


def test_pattern_reads_topics_that_are_created_later(cluster: BrokerCluster) -> None:
    async def story() -> None:
        readers = Readers()
        async with connector(cluster, "pattern") as member:
            streams = member.create_message_streams_by_filter(whitelist="later-.*, also", streams=2)
            readers.read(streams)
            await member.wait_until_assigned(DEADLINE_S)
            assert not any(each.partitions for each in streams)
            await asyncio.to_thread(cluster.create_topic, "later-1", PARTITIONS)
            await produce(cluster, "later-1", range(RECORDS))
            await readers.have(range(RECORDS))
        await readers.end()

    run(story())


def test_second_consumer_with_the_same_id_fails(cluster: BrokerCluster, topic: str) -> None:
    async def story() -> None:
        async with reading(cluster, topic, consumer_id="same") as (member, readers):
            assert member.consumer_id == f"{topic}_same"
            await readers.have(range(RECORDS))
            async with connector(cluster, topic, consumer_id="same", zookeeper_session_timeout_ms=400) as other:
                [stream] = other.create_message_streams({topic: 1})[topic]
                with pytest.raises(ConsumerIdInUseError, match=f"{topic}_same"):
                    await anext(stream)
            await produce(cluster, topic, [RECORDS])
            await readers.have([RECORDS])

    run(story())


def test_offset_beyond_the_log_end_is_reset_and_reported(
    cluster: BrokerCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with opened_session(cluster.zookeeper_connect, DEADLINE_S) as session:
            path = ""
            for name in ("consumers", topic, "offsets", topic, "1"):
                path += f"/{name}"
                if await result_of(partial(session.exists, path), DEADLINE_S) is None:
                    await result_of(partial(session.create, path, b"1000000" if name == "1" else b""), DEADLINE_S)
        async with reading(cluster, topic) as (_, readers):
            await readers.have(range(RECORDS))

    with caplog.at_level(logging.WARNING, "kafkalite_sdk.zk.consumer"):
        run(story())
    assert any(f"the offset of {topic}-1 is not in its log" in each for each in caplog.messages), caplog.messages


def test_topic_that_is_deleted_under_its_owner_is_released(cluster: BrokerCluster, topic: str) -> None:
    async def story() -> None:
        readers, listener = Readers(), Listener()
        member = connector(cluster, topic)
        member.set_consumer_rebalance_listener(listener)
        async with member:
            other = f"{topic}-other"
            await asyncio.to_thread(cluster.create_topic, other, PARTITIONS)
            streams = member.create_message_streams({topic: 1, other: 1})
            readers.read([*streams[topic], *streams[other]])
            await readers.have(range(RECORDS))
            await asyncio.to_thread(cluster.delete_topic, topic)
            while listener.topics != {other}:
                await listener.changed.wait()
                listener.changed.clear()
            assert not streams[topic][0].partitions
            await produce(cluster, other, [RECORDS])
            await readers.have([RECORDS])
        await readers.end()
        assert not readers.errors

    run(story())


class Listener(ConsumerRebalanceListener):
    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[object] = []
        self.topics: set[str] = set()
        self.changed = asyncio.Event()
        self._error = error

    async def before_releasing_partitions(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.calls.append(("release", len(partitions)))

    def before_starting_fetchers(self, consumer_id: str, assignment: Mapping[TopicPartition, StreamId]) -> None:
        self.calls.append(("start", consumer_id, {each.consumer_id for each in assignment.values()}))
        self.topics = {each.topic for each in assignment}
        self.changed.set()
        if self._error is not None:
            raise self._error


def test_listener_is_called_around_each_rebalance(cluster: BrokerCluster, topic: str) -> None:
    async def story() -> None:
        listener = Listener()
        member = connector(cluster, topic)
        member.set_consumer_rebalance_listener(listener)
        async with member:
            member.create_message_streams({topic: 1})
            await member.wait_until_assigned(DEADLINE_S)
            started = ("start", member.consumer_id, {member.consumer_id})
            assert listener.calls[-1] == started
        assert listener.calls[-2:] == [started, ("release", PARTITIONS)]

    run(story())


def test_error_of_a_listener_ends_the_consumer(cluster: BrokerCluster, topic: str) -> None:
    async def story() -> None:
        member = connector(cluster, topic)
        member.set_consumer_rebalance_listener(Listener(LookupError("the table is missing")))
        async with member:
            [stream] = member.create_message_streams({topic: 1})[topic]
            with pytest.raises(LookupError, match="the table is missing"):
                await anext(stream)
        assert await children(cluster, f"/consumers/{topic}/ids") == []

    run(story())


def test_stream_without_records_raises_after_its_timeout_and_continues(cluster: BrokerCluster, topic: str) -> None:
    async def story() -> None:
        async with connector(cluster, topic, consumer_timeout_ms=300) as member:
            [stream] = member.create_message_streams({topic: 1})[topic]
            received = []
            with pytest.raises(ConsumerTimeoutError, match=r"0\.3 s"):
                async for record in stream:
                    received.append(record)
            assert len(received) == RECORDS
            await produce(cluster, topic, [RECORDS])
            assert (await anext(stream)).value == b"%d" % RECORDS
            with pytest.raises(ClientUseError, match="created once"):
                member.create_message_streams({topic: 1})
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(story())


def test_session_that_may_not_write_is_a_clear_error(cluster: BrokerCluster, topic: str) -> None:
    """The fake server has no access control: each create below the group is rejected as ZooKeeper does."""

    async def story() -> None:
        async with connector(cluster, topic) as member:
            session = member._sessions.current
            assert session is not None

            def rejected(path: str, _data: bytes, then: Any, **_options: Any) -> None:
                then(Outcome(error=NoAuthError(path)))

            session.create = rejected  # type: ignore[method-assign]
            [stream] = member.create_message_streams({topic: 1})[topic]
            with pytest.raises(NoAuthError, match="no permission: /consumers"):
                await anext(stream)

    run(story())
