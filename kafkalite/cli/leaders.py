"""Connections to the brokers of a cluster, opened when first needed, and what the leaders of partitions know.

A connection that ended is opened again when it is next needed, after `refresh`, which asks any broker that answers for
the present leaders of a topic.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from kafkalite.cli.client import CLIENT_ID, check, parse_address
from kafkalite.cli.connecting import connect_when_started, first_that_answers
from kafkalite.cli.failure import fail
from kafkalite.cli.retries import require
from kafkalite.errors import KafkaConnectionError, KafkaErrorCode, RetriableError
from kafkalite.model import TopicPartition
from kafkalite.net.peer import Peer
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse

# A topic that was just created has no leaders for a moment; one that is unknown may be in the making, or never be.
CREATION_S: dict[int, float] = {
    KafkaErrorCode.NONE: 10.0,
    KafkaErrorCode.LEADER_NOT_AVAILABLE: 10.0,
    KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 2.0,
}
PAUSE_S = 0.1
CLOSE_S = 1.0  # for a connection whose broker takes no more bytes
EARLIEST, LATEST = -2, -1
NO_REPLICA = -1
READ_COMMITTED = 1
Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
ListTopic = ListOffsetsRequest.ListOffsetsTopic


class Leaders:
    """The cluster behind one bootstrap address, for the length of a command."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = [parse_address(address) for address in bootstrap.split(",")]
        self._peers: dict[int, Peer] = {}
        self._topics: dict[str, Topic] = {}
        self._brokers: dict[int, tuple[str, int]] = {}

    async def __aenter__(self) -> "Leaders":
        self.first = await connect_when_started(self._bootstrap)
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.disconnect()

    async def disconnect(self) -> None:
        """Close all connections; `refresh` opens the first one again."""
        peers = [self.first, *self._peers.values()]
        self._peers.clear()
        for peer in peers:
            with suppress(TimeoutError):  # its bytes cannot leave: the process does not wait for them
                async with asyncio.timeout(CLOSE_S):
                    await peer.close()

    async def refresh(self, topic: str) -> int:
        """Ask a broker that answers who leads the topic's partitions now; the number of partitions.

        Raises KafkaError, retriable while no broker answers or the topic is not available. Ends the command when the
        topic was deleted, also when another one has its name now.
        """
        if self.first.closed:
            brokers = dict.fromkeys((*self._brokers.values(), *self._bootstrap))
            self.first = await first_that_answers(list(brokers), report=False)
        known = self._topics[topic].topic_id
        wanted = MetadataRequest.MetadataRequestTopic(name=topic)
        answer = await self.first.call(MetadataRequest(topics=[wanted], allow_auto_topic_creation=False))
        (described,) = answer.topics
        if described.error_code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            fail(f"{topic} was deleted meanwhile")
        require(described.error_code, None, topic)
        if described.topic_id != known:
            fail(f"{topic} was deleted and created again meanwhile")
        self._topics[topic] = described
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return len(described.partitions)

    async def partitions(self, topic: str, *, may_create: bool = False) -> int:
        """How many partitions a topic has; ends the command when there is no such topic."""
        wanted = MetadataRequest.MetadataRequestTopic(name=topic)
        request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=may_create)
        loop = asyncio.get_running_loop()
        begin = loop.time()
        while True:
            answer = await self.first.call(request)
            (described,) = answer.topics
            if not may_create or loop.time() - begin >= patience_s(described):
                break
            await asyncio.sleep(PAUSE_S)
        check(described.error_code, None, topic)
        self._topics[topic] = described
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return len(described.partitions)

    async def known(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions each of these topics has; those that are not there are left out."""
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        answer = await self.first.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        for described in answer.topics:
            if described.error_code != KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                check(described.error_code, None, described.name)
                self._topics[described.name] = described
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return {name: len(self._topics[name].partitions) for name in topics if name in self._topics}

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic whose partitions were asked for."""
        return self._topics[topic].topic_id

    async def leader(self, topic: str, partition: int) -> Peer:
        """A connection to the broker that leads the partition."""
        (place,) = [p for p in self._topics[topic].partitions if p.partition_index == partition]
        if place.leader_id not in self._brokers:
            if place.offline_replicas:
                raise RetriableError(offline(topic, place))
            require(place.error_code or KafkaErrorCode.LEADER_NOT_AVAILABLE, None, f"{topic}-{partition}")
        return await self.broker(place.leader_id, *self._brokers[place.leader_id])

    async def broker(self, broker_id: int, host: str, port: int) -> Peer:
        """A connection to this broker."""
        peer = self._peers.get(broker_id)
        if peer is None or peer.closed or (peer.host, peer.port) != (host, port):
            peer = self._peers[broker_id] = Peer(host, port, client_id=CLIENT_ID)
            await self._connect(peer)
        return peer

    async def _connect(self, peer: Peer) -> None:
        """Connect to a broker at the address that it advertises; raises KafkaConnectionError, KafkaTimeoutError."""
        try:
            await peer.connect()
        except KafkaConnectionError as error:
            if (peer.host, peer.port) in self._bootstrap:
                raise
            given = ",".join(f"{host}:{port}" for host, port in self._bootstrap)
            text = f"{error} The cluster behind {given} advertises this address; check advertised.listeners"
            raise KafkaConnectionError(text) from error

    async def brokers(self) -> dict[int, Peer]:
        """A connection to each broker of the cluster, by id."""
        answer = await self.first.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        return {each.node_id: await self.broker(each.node_id, each.host, each.port) for each in answer.brokers}

    async def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset that belongs to each time (in ms, or EARLIEST or LATEST), -1 where nothing is so late.

        The topics' partitions have been asked for before.
        """
        by_leader: dict[Peer, dict[str, list[ListTopic.ListOffsetsPartition]]] = {}
        for place, timestamp in wanted.items():
            asked = ListTopic.ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp)
            topics = by_leader.setdefault(await self.leader(*place), {})
            topics.setdefault(place.topic, []).append(asked)
        found = {}
        for peer, topics in by_leader.items():
            request = ListOffsetsRequest(
                replica_id=NO_REPLICA,
                isolation_level=READ_COMMITTED,
                topics=[ListTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
            )
            for topic in (await peer.call(request)).topics:
                for each in topic.partitions:
                    place = TopicPartition(topic.name, each.partition_index)
                    require(each.error_code, None, str(place))
                    found[place] = int(each.offset)
        return found


def offline(topic: str, place: Partition) -> str:
    """What to do about a partition without a leader whose replicas are offline."""
    brokers = ", ".join(map(str, place.offline_replicas))
    return (
        f"{topic}-{place.partition_index}: the partition is offline; the log of broker {brokers} says why and what to "
        f"do, and `kafkalite topic describe {topic}` shows all of its partitions"
    )


def patience_s(topic: Topic) -> float:
    """For how many seconds a topic may still be in the making; 0 when it is there, or refused."""
    if not topic.error_code and all(partition.leader_id >= 0 for partition in topic.partitions):
        return 0
    return CREATION_S.get(topic.error_code, 0)
