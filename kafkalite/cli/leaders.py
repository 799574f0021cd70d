"""Connections to the brokers that lead a topic's partitions, opened when first needed."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from kafkalite.cli.client import CLIENT_ID, check, connect
from kafkalite.errors import KafkaErrorCode
from kafkalite.net.peer import Peer
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse

# A topic that was just created has no leaders for a moment; one that is unknown may be in the making, or never be.
CREATION_S: dict[int, float] = {
    KafkaErrorCode.NONE: 10.0,
    KafkaErrorCode.LEADER_NOT_AVAILABLE: 10.0,
    KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 2.0,
}
PAUSE_S = 0.1
Topic = MetadataResponse.MetadataResponseTopic


class Leaders:
    """The cluster behind one bootstrap address, for the length of a command."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stack = AsyncExitStack()
        self._peers: dict[int, Peer] = {}
        self._topics: dict[str, Topic] = {}
        self._brokers: dict[int, tuple[str, int]] = {}

    async def __aenter__(self) -> "Leaders":
        self._first = await self._stack.enter_async_context(connect(self._bootstrap))
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
            answer = await self._first.call(request)
            (described,) = answer.topics
            if not may_create or loop.time() - begin >= patience_s(described):
                break
            await asyncio.sleep(PAUSE_S)
        check(described.error_code, None, topic)
        self._topics[topic] = described
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return len(described.partitions)

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic whose partitions were asked for."""
        return self._topics[topic].topic_id

    async def leader(self, topic: str, partition: int) -> Peer:
        """A connection to the broker that leads the partition."""
        (place,) = [p for p in self._topics[topic].partitions if p.partition_index == partition]
        if place.leader_id not in self._brokers:
            check(place.error_code or KafkaErrorCode.LEADER_NOT_AVAILABLE, None, f"{topic}-{partition}")
        if place.leader_id not in self._peers:
            host, port = self._brokers[place.leader_id]
            peer = await self._stack.enter_async_context(Peer(host, port, client_id=CLIENT_ID))
            self._peers[place.leader_id] = peer
        return self._peers[place.leader_id]


def patience_s(topic: Topic) -> float:
    """For how many seconds a topic may still be in the making; 0 when it is there, or refused."""
    if not topic.error_code and all(partition.leader_id >= 0 for partition in topic.partitions):
        return 0
    return CREATION_S.get(topic.error_code, 0)
