"""Decides which partitions are fetched from which broker.

Pure: no I/O, no clock. Invariants:
1. After `update` each partition that may be fetched is `wanted` or `full` at one broker, any other at none.
2. `update` visits the partitions of `change`, and those whose time has come: its cost does not depend on the others.
Sources: AbstractFetch.java of Apache Kafka 4.3; KIP-392.
"""

from collections.abc import Iterable
from math import inf
from typing import Any

from kafkalite.model import ZERO_UUID
from kafkalite_sdk.client.cluster_view import NO_LEADER, ClusterView
from kafkalite_sdk.consumer.fetch.fetch_node import FetchNode
from kafkalite_sdk.consumer.fetch.fetch_session import WantedPartition
from kafkalite_sdk.consumer.fetch.fetch_settings import FetchSettings
from kafkalite_sdk.consumer.fetch.partition_buffer import NO_NODE, PartitionBuffer
from kafkalite_sdk.consumer.offsets.positions import NO_REPLICA

Buffer = PartitionBuffer[Any, Any]


class FetchPlan:
    """The partitions of each broker.

    Arguments:
        settings: sizes and times.
        view: the brokers and leaders.
        stale_topics: gets the topics of partitions without a leader.

    Attributes:
        nodes: by broker id.
    """

    def __init__(self, settings: FetchSettings, view: ClusterView, stale_topics: set[str]) -> None:
        self.nodes: dict[int, FetchNode] = {}
        self._settings = settings
        self._view = view
        self._stale_topics = stale_topics
        self._changed: dict[Buffer, None] = {}
        self._later: dict[Buffer, float] = {}  # those that change at a time
        self._earliest = inf  # not later than the times in `_later`

    def change(self, buffers: Iterable[Buffer]) -> None:
        """Visit partitions in the next `update`."""
        self._changed.update(dict.fromkeys(buffers))

    def remove(self, buffer: Buffer) -> None:
        """A partition is not assigned any more."""
        buffer.assigned = False
        self._changed.pop(buffer, None)
        self._later.pop(buffer, None)
        self._move(buffer, None)

    def update(self, now: float) -> float:
        """Apply all changes. Return when the next one comes with time; infinity = none does.

        Arguments:
            now: in seconds of the loop's clock.
        """
        if self._earliest <= now:
            self.change([each for each, at in self._later.items() if at <= now])
            self._earliest = min((at for at in self._later.values() if at > now), default=inf)
        for buffer in self._changed:
            self._visit(buffer, now)
        self._changed.clear()  # after an exception they are visited again
        return self._earliest

    def active(self) -> list[FetchNode]:
        """Return the brokers with partitions; the one whose last request ended first is the first."""
        return sorted(
            (each for each in self.nodes.values() if each.wanted or each.full), key=lambda each: each.ended_at
        )

    def _visit(self, buffer: Buffer, now: float) -> None:
        name = buffer.state.topic_partition
        node = self._node(buffer, now)
        self._move(buffer, node)
        if node is None:
            return
        if buffer.size >= self._settings.partition_max_bytes:
            node.mark_full(name)
            return
        view = self._view.topics.get(name.topic)
        topic_id = ZERO_UUID if view is None else view.topic_id
        buffer.leader_epoch = self._view.leader_epoch(*name)
        max_bytes = self._settings.partition_max_bytes
        node.want(name, WantedPartition(topic_id, buffer.next_offset, buffer.leader_epoch, max_bytes))

    def _move(self, buffer: Buffer, node: FetchNode | None) -> None:
        broker_id = NO_NODE if node is None else node.node
        if buffer.node != broker_id:
            if buffer.node != NO_NODE:
                self.nodes[buffer.node].remove(buffer.state.topic_partition)
            buffer.node = broker_id

    def _node(self, buffer: Buffer, now: float) -> FetchNode | None:
        """The broker to fetch a partition from; None = it is not fetched now."""
        state = buffer.state
        self._later.pop(buffer, None)
        if not buffer.assigned or not buffer.fetchable:
            return None
        if not state.fetchable(now):
            if state.retry_at > now:
                self._visit_at(buffer, state.retry_at)
            return None
        broker_id = self._source(buffer, now)
        if broker_id == NO_LEADER:
            self._stale_topics.add(state.topic_partition.topic)
            return None
        node = self.nodes.get(broker_id)
        if node is None:
            node = self.nodes[broker_id] = FetchNode(broker_id, self._settings)
        return node

    def _source(self, buffer: Buffer, now: float) -> int:
        """The broker id of the preferred replica, or of the leader."""
        state = buffer.state
        replica = state.preferred_replica
        if replica != NO_REPLICA:
            if now < state.preferred_until and replica in self._view.brokers:
                self._visit_at(buffer, state.preferred_until)
                return replica
            state.preferred_replica = NO_REPLICA
        return self._view.leader(*state.topic_partition)

    def _visit_at(self, buffer: Buffer, at: float) -> None:
        self._later[buffer] = at
        self._earliest = min(self._earliest, at)
