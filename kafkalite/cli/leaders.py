"""Connections to the brokers of a cluster, opened when first needed, and what the leaders of partitions know."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from kafkalite.cli.client import CLIENT_ID, check, connect
from kafkalite.errors import KafkaErrorCode
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
EARLIEST, LATEST = -2, -1
NO_REPLICA = -1
READ_COMMITTED = 1
Topic = MetadataResponse.MetadataResponseTopic
ListTopic = ListOffsetsRequest.ListOffsetsTopic


class Leaders:
    """The cluster behind one bootstrap address, for the length of a command."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stack = AsyncExitStack()
        self._peers: dict[int, Peer] = {}
        self._topics: dict[str, Topic] = {}
        self._brokers: dict[int, tuple[str, int]] = {}

    async def __aenter__(self) -> "Leaders":
        self.first = await self._stack.enter_async_context(connect(self._bootstrap))
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._stack.aclose()

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
            check(place.error_code or KafkaErrorCode.LEADER_NOT_AVAILABLE, None, f"{topic}-{partition}")
        return await self.broker(place.leader_id, *self._brokers[place.leader_id])

    async def broker(self, broker_id: int, host: str, port: int) -> Peer:
        """A connection to this broker."""
        if broker_id not in self._peers:
            peer = await self._stack.enter_async_context(Peer(host, port, client_id=CLIENT_ID))
            self._peers[broker_id] = peer
        return self._peers[broker_id]

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
                    check(each.error_code, None, str(place))
                    found[place] = int(each.offset)
        return found


def patience_s(topic: Topic) -> float:
    """For how many seconds a topic may still be in the making; 0 when it is there, or refused."""
    if not topic.error_code and all(partition.leader_id >= 0 for partition in topic.partitions):
        return 0
    return CREATION_S.get(topic.error_code, 0)
