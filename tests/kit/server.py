"""A whole broker in the event loop of the test, with clients for its requests.

`Client` speaks over a socket through `net.client`. `Wire` puts requests straight into the broker's pipeline: nothing
happens between two calls of a test, so the order of events is the order of its lines.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kafkalite._speedups.codec import decode, encode_request, read_response_header
from kafkalite._speedups.net.framing import Connection
from kafkalite.model import Principal
from kafkalite.net.client import ClientConnection
from kafkalite.net.memory_transport import MemoryHub, frozen_clock
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkalite.protocol.schema import Request, response_class
from kafkalite.records import Builder, batches
from kafkalite.server.broker import Broker
from kafkalite.server.requests.dispatch import BrokerService
from kafkalite.server.running.running_broker import RunningBroker
from kafkalite.testing.virtual_clock import VirtualClock

ANSWER_S = 120.0
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
ALL = -1
NOW_MS = 1_700_000_000_000


def batch(
    *values: bytes | None, codec: int = NONE, timestamp: int = NOW_MS, key: bytes | None = b"k", **producer: Any
) -> bytes:
    """A batch of records with these values; `producer`: producer_id, producer_epoch, base_sequence."""
    builder = Builder(1 << 24)
    for value in values:
        assert builder.append(timestamp, key, value) >= 0
    return bytes(builder.build(codec, **producer))


def idempotent(*values: bytes, sequence: int, producer: int = 7, epoch: int = 0) -> bytes:
    """A batch of an idempotent producer that begins at `sequence`."""
    return batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def compressible(size: int, codec: int) -> bytes:
    """A compressed batch of about `size` bytes on the wire."""
    return batch(os.urandom(size), codec=codec)


def produce_request(
    topic: str | bytes, *parts: tuple[int, bytes | None], acks: int = ALL, transactional_id: str | None = None
) -> ProduceRequest:
    """Batches for (partition, batch) of one topic, named or given by its id."""
    data = ProduceRequest.TopicProduceData(partition_data=[])
    if isinstance(topic, bytes):
        data.topic_id = topic
    else:
        data.name = topic
    for index, records in parts:
        data.partition_data.append(ProduceRequest.TopicProduceData.PartitionProduceData(index=index, records=records))
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data], transactional_id=transactional_id)


def fetch_request(
    topic: str | bytes, *parts: tuple[int, int], max_wait_ms: int = 0, min_bytes: int = 1, **more: Any
) -> FetchRequest:
    """A fetch of (partition, offset) of one topic. `more`: fields of the request or of each partition."""
    of_partition = {name: more.pop(name) for name in ("current_leader_epoch", "last_fetched_epoch") if name in more}
    bytes_max = more.pop("partition_max_bytes", 1 << 20)
    asked = FetchRequest.FetchTopic(partitions=[])
    if isinstance(topic, bytes):
        asked.topic_id = topic
    else:
        asked.topic = topic
    for partition, offset in parts:
        asked.partitions.append(
            FetchRequest.FetchTopic.FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max, **of_partition
            )
        )
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=[asked] if parts else [], **more)


def values_of(records: Any) -> list[bytes | None]:
    """The values of all records of a fetched partition."""
    return [record.value for found in batches(records) for record in found]


def outcomes(answer: ProduceResponse) -> list[Any]:
    """The outcome of every partition of a produce, in order."""
    return [part for topic in answer.responses for part in topic.partition_responses]


def fetched(answer: FetchResponse) -> dict[tuple[str | bytes, int], Any]:
    """Every partition that a fetch's answer names, by topic (name or id) and index."""
    return {
        (topic.topic or topic.topic_id, part.partition_index): part
        for topic in answer.responses
        for part in topic.partitions
    }


class Client:
    """A client over a socket."""

    def __init__(self, broker: RunningBroker, peer: ClientConnection) -> None:
        self.broker = broker
        self.peer = peer

    async def call(self, request: Request, version: int | None = None) -> Any:
        """Ask in exactly this version, or the highest."""
        assert version is None or self.peer.version(type(request), version) == version
        return await self.peer.call(request, version_max=version)

    def topic_id(self, topic: str) -> bytes:
        return self.broker.image.topics[topic].topic_id

    async def create(
        self, *names: str, partitions: int = 1, validate_only: bool = False, factor: int = 1, **configs: str | None
    ) -> list[Any]:
        """Create topics; config names with underscores. The results."""
        entry = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
        topics = [
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=factor,
                configs=[entry(name=key.replace("_", "."), value=value) for key, value in configs.items()],
            )
            for name in names
        ]
        answer = await self.call(CreateTopicsRequest(topics=topics, validate_only=validate_only))
        return list(answer.topics)

    async def delete(self, *names: str) -> list[Any]:
        states = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
        return list((await self.call(DeleteTopicsRequest(topics=states, timeout_ms=1000))).responses)

    async def produce(
        self, topic: str, records: bytes | None, *, partition: int = 0, acks: int = ALL, version: int = 12
    ) -> Any:
        """Produce one batch; the outcome of its partition."""
        named: str | bytes = self.topic_id(topic) if version >= 13 and topic in self.broker.image.topics else topic
        answer = await self.call(produce_request(named, (partition, records), acks=acks), version)
        (found,) = outcomes(answer)
        return found

    async def read(self, topic: str, partition: int = 0, offset: int = 0) -> list[bytes | None]:
        """The values of what one fetch gets."""
        answer = await self.call(fetch_request(topic, (partition, offset), max_bytes=1 << 26), 12)
        part = fetched(answer)[topic, partition]
        assert part.error_code == 0, part
        return values_of(part.records)

    async def offset(self, topic: str, timestamp: int, partition: int = 0, version: int = 11, **more: Any) -> Any:
        """The response of ListOffsets for one partition."""
        asked = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        isolation, replica_id = more.pop("isolation_level", 0), more.pop("replica_id", -1)
        for name, value in more.items():
            setattr(asked, name, value)
        topics = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])]
        request = ListOffsetsRequest(replica_id=replica_id, isolation_level=isolation, topics=topics)
        return (await self.call(request, version)).topics[0].partitions[0]


@asynccontextmanager
async def running(data: str | None = None, settings: Mapping[str, str] | None = None) -> AsyncIterator[Client]:
    """A broker and a client of it."""
    async with Broker(data, settings) as broker, connected(broker) as client:
        yield client


@asynccontextmanager
async def connected(broker: Broker | RunningBroker, host: str | None = None) -> AsyncIterator[Client]:
    """One more client of a broker, which it reaches at `host`."""
    running = broker.running if isinstance(broker, Broker) else broker
    bound, port = running.address.rsplit(":", 1)
    async with ClientConnection(host or bound, int(port), timeout_s=ANSWER_S) as peer:
        yield Client(running, peer)


class Hub(MemoryHub):
    """Connections in memory that follow the test's loop: what a job or timer completes is sent in the next turn."""

    def __init__(self, broker: RunningBroker, clock: Callable[[], int] = frozen_clock) -> None:
        service = BrokerService(broker.dispatcher, broker.replicas, broker.heartbeats, broker.fetch_sessions)
        super().__init__(service, clock=clock)
        self.passed = asyncio.Event()

    def wake(self) -> None:
        super().wake()
        asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self.pump()
        self.passed.set()


class Wire:
    """One connection into the pipeline of a running broker."""

    def __init__(self, hub: Hub, listener: str = "memory", principal: Principal | None = None) -> None:
        self._hub = hub
        self._client = hub.connect(listener)
        self._client.connection.principal = principal
        self._open: deque[tuple[type[Request], int]] = deque()
        self._ready: deque[Any] = deque()
        self._bytes = bytearray()
        self._correlation_id = 0

    @property
    def connection(self) -> Connection:
        return self._client.connection

    @property
    def closed(self) -> bool:
        return bool(self._client.connection.closed)

    def send(self, *asked: tuple[Request, int], silent: bool = False) -> None:
        """One pass with these requests in their versions; `silent`: they get no answers."""
        frames = bytearray()
        for request, version in asked:
            self._correlation_id += 1
            frame = encode_request(request, version, self._correlation_id, "wire")
            frames += len(frame).to_bytes(4, "big") + frame
            if not silent:
                self._open.append((type(request), version))
        self.send_bytes(bytes(frames))

    def send_bytes(self, data: bytes) -> None:
        self._client.send(data)

    def hang_up(self) -> None:
        self._client.close()

    def end(self) -> None:
        """Close the client's side in order, as a FIN does."""
        self._client.end()

    def answers(self) -> list[Any]:
        """All that has arrived by now."""
        self._take()
        found = list(self._ready)
        self._ready.clear()
        return found

    async def answer(self) -> Any:
        """The next answer, waited for."""
        async with asyncio.timeout(ANSWER_S):
            while not self._ready:
                self._hub.passed.clear()
                closed = self.closed  # `_take` runs a pass, which may send an answer and close
                self._take()
                if not self._ready:
                    assert not closed, "the connection was closed before the answer"
                    await self._hub.passed.wait()
        return self._ready.popleft()

    def _take(self) -> None:
        self._bytes += self._client.take_received()
        while len(self._bytes) >= 4 and len(self._bytes) >= 4 + int.from_bytes(self._bytes[:4], "big"):
            end = 4 + int.from_bytes(self._bytes[:4], "big")
            request, version = self._open.popleft()
            answer = response_class(request)
            _, body = read_response_header(answer, version, bytes(self._bytes[4:end]))
            self._ready.append(decode(answer, version, body))
            del self._bytes[:end]


def stopped_time(broker: RunningBroker) -> VirtualClock:
    """Replace the deadlines of requests: they pass when the test advances the time."""
    broker.clock.close()  # type: ignore[attr-defined]
    broker.clock = clock = VirtualClock()
    return clock
