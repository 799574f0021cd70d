"""Opens connections to the leaders of partitions on first use, and finds the leaders and their offsets.

A closed connection is opened again when it is next needed, after `refresh`, which asks any available broker for the
current leaders of a topic.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from kafkalite.cli.client_options import CLIENT_ID, check, parse_address
from kafkalite.cli.connection import connect_when_started, first_that_answers
from kafkalite.cli.failure import fail
from kafkalite.cli.retry import require
from kafkalite.errors import KafkaConnectionError, KafkaErrorCode, RetriableError
from kafkalite.model import READ_COMMITTED, TopicPartition
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse

# Seconds to wait for a topic: a new topic has no leaders at first, and an unknown topic may still be in creation.
CREATION_S: dict[int, float] = {
    KafkaErrorCode.NONE: 10.0,
    KafkaErrorCode.LEADER_NOT_AVAILABLE: 10.0,
    KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 2.0,
}
PAUSE_S = 0.1
CLOSE_S = 1.0  # for a connection whose broker no longer receives
EARLIEST, LATEST = -2, -1
NO_REPLICA = -1
Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
ListTopic = ListOffsetsRequest.ListOffsetsTopic


class LeaderConnections:
    """The cluster behind one bootstrap address, for the length of a command."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = [parse_address(address) for address in bootstrap.split(",")]
        self._peers: dict[int, ClientConnection] = {}
        self._topics: dict[str, Topic] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._reached: set[tuple[str, int]] = set()  # addresses that were connected to before

    async def __aenter__(self) -> "LeaderConnections":
        self.first = await connect_when_started(self._bootstrap)
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.disconnect()

    async def disconnect(self) -> None:
        """Close all connections; `refresh` opens the first one again."""
        peers = [self.first, *self._peers.values()]
        self._peers.clear()
        for peer in peers:
            with suppress(TimeoutError):  # the process does not wait for unsent bytes
                async with asyncio.timeout(CLOSE_S):
                    await peer.close()

    async def refresh(self, topic: str) -> int:
        """Ask an available broker for the current leaders of the topic; return the number of partitions.

        Raises KafkaError, retriable while no broker answers or the topic is not available. Ends the command if the
        topic was deleted, even if another topic has its name now.
        """
        if self.first.closed:
            brokers = dict.fromkeys((*self._brokers.values(), *self._bootstrap))
            self.first = await first_that_answers(list(brokers), report=False)
        known = self._topics[topic].topic_id
        wanted = MetadataRequest.MetadataRequestTopic(name=topic)
        answer = await self.first.call(MetadataRequest(topics=[wanted], allow_auto_topic_creation=False))
        (described,) = answer.topics
        if described.error_code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            fail(f"{topic} was deleted while the command ran")
        require(described.error_code, None, topic)
        if described.topic_id != known:
            fail(f"{topic} was deleted and created again while the command ran")
        self._topics[topic] = described
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return len(described.partitions)

    async def partitions(self, topic: str, *, may_create: bool = False) -> int:
        """Return the number of partitions of a topic; ends the command if the topic does not exist."""
        wanted = MetadataRequest.MetadataRequestTopic(name=topic)
        request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=may_create)
        loop = asyncio.get_running_loop()
        begin = loop.time()
        while True:
            answer = await self.first.call(request)
            (described,) = answer.topics
            if not may_create or loop.time() - begin >= creation_wait_s(described):
                break
            await asyncio.sleep(PAUSE_S)
        check(described.error_code, None, topic)
        self._topics[topic] = described
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return len(described.partitions)

    async def known(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of each existing topic of these."""
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        answer = await self.first.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        for described in answer.topics:
            if described.error_code != KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                check(described.error_code, None, described.name)
                self._topics[described.name] = described
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return {name: len(self._topics[name].partitions) for name in topics if name in self._topics}

    def topic_id(self, topic: str) -> bytes:
        """Return the id of a topic that `partitions` or `known` described."""
        return self._topics[topic].topic_id

    async def leader(self, topic: str, partition: int) -> ClientConnection:
        """Return a connection to the leader of the partition."""
        (entry,) = [p for p in self._topics[topic].partitions if p.partition_index == partition]
        if entry.leader_id not in self._brokers:
            if entry.offline_replicas:
                raise RetriableError(offline(topic, entry))
            require(entry.error_code or KafkaErrorCode.LEADER_NOT_AVAILABLE, None, f"{topic}-{partition}")
        return await self.broker(entry.leader_id, *self._brokers[entry.leader_id])

    async def broker(self, broker_id: int, host: str, port: int) -> ClientConnection:
        """Return a connection to this broker."""
        peer = self._peers.get(broker_id)
        if peer is None or peer.closed or (peer.host, peer.port) != (host, port):
            peer = self._peers[broker_id] = ClientConnection(host, port, client_id=CLIENT_ID)
            await self._connect(peer)
        return peer

    async def _connect(self, peer: ClientConnection) -> None:
        """Connect to a broker at the address that it advertises; raises KafkaConnectionError, KafkaTimeoutError."""
        address = peer.host, peer.port
        try:
            await peer.connect()
            self._reached.add(address)
        except KafkaConnectionError as error:
            if address in self._bootstrap or address in self._reached:
                raise
            given = ",".join(f"{host}:{port}" for host, port in self._bootstrap)
            text = f"{error} The cluster behind {given} advertises this address; check advertised.listeners"
            raise KafkaConnectionError(text) from error

    async def brokers(self) -> dict[int, ClientConnection]:
        """A connection to each broker of the cluster, by id."""
        answer = await self.first.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        return {each.node_id: await self.broker(each.node_id, each.host, each.port) for each in answer.brokers}

    async def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset at or after each time (in ms, or EARLIEST or LATEST), -1 if no record is that late.

        `partitions` or `known` must have described the topics.
        """
        by_leader: dict[ClientConnection, dict[str, list[ListTopic.ListOffsetsPartition]]] = {}
        for topic_partition, timestamp in wanted.items():
            asked = ListTopic.ListOffsetsPartition(partition_index=topic_partition.partition, timestamp=timestamp)
            topics = by_leader.setdefault(await self.leader(*topic_partition), {})
            topics.setdefault(topic_partition.topic, []).append(asked)
        found = {}
        for peer, topics in by_leader.items():
            request = ListOffsetsRequest(
                replica_id=NO_REPLICA,
                isolation_level=READ_COMMITTED,
                topics=[ListTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
            )
            for topic in (await peer.call(request)).topics:
                for each in topic.partitions:
                    topic_partition = TopicPartition(topic.name, each.partition_index)
                    require(each.error_code, None, str(topic_partition))
                    found[topic_partition] = int(each.offset)
        return found


def offline(topic: str, entry: Partition) -> str:
    """Return the error text for a partition whose replicas are all offline."""
    brokers = ", ".join(map(str, entry.offline_replicas))
    return (
        f"{topic}-{entry.partition_index}: the partition is offline; the log of broker {brokers} names the reason and "
        f"the next step, and `kafkalite topic describe {topic}` lists all partitions"
    )


def creation_wait_s(topic: Topic) -> float:
    """Return for how many seconds to wait for a topic in creation; 0 if it exists or was rejected.

    A partition without a leader whose replicas are offline already exists: the command does not wait for it.
    """
    if not topic.error_code and all(part.leader_id >= 0 or part.offline_replicas for part in topic.partitions):
        return 0
    return CREATION_S.get(topic.error_code, 0)
