"""The current leaders and their addresses in the responses of Produce and Fetch (KIP-951).

With them, clients need no Metadata request after NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH.
Source: KafkaApis.getCurrentLeader of Apache Kafka 3.9.
"""

from typing import NamedTuple

from kafkalite.cluster.metadata.image import NO_LEADER
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Node
from kafkalite.server.requests.call import PartitionCall

NO_EPOCH = -1
HINTED = (KafkaErrorCode.NOT_LEADER_OR_FOLLOWER, KafkaErrorCode.FENCED_LEADER_EPOCH)


class CurrentLeader(NamedTuple):
    """The leader of a partition, -1 = none or not known."""

    leader_id: int
    leader_epoch: int


class LeaderHints:
    """Collects the leaders for one response.

    Arguments:
        call: of the request.
        by_id: whether the request names topics by their ids.

    Attributes:
        nodes: the leaders that the client of the call can reach, by id.
    """

    def __init__(self, call: PartitionCall, *, by_id: bool) -> None:
        context = call.context
        self.nodes: dict[int, Node] = {}
        self._replicas = context.replicas
        self._image = context.image
        self._reachable = {node.broker_id: node for node in context.nodes(self._image, call.connection)}
        self._by_id = by_id

    def leader(self, topic: str, topic_id: bytes, index: int) -> CurrentLeader:
        """The leader of a partition: the one that the controller has assigned here, else the one in the image."""
        found = self._leader(topic, topic_id, index)
        node = self._reachable.get(found.leader_id)
        if node is not None:
            self.nodes[node.broker_id] = node
        return found

    def _leader(self, topic: str, topic_id: bytes, index: int) -> CurrentLeader:
        hosted = self._replicas.partition(topic, topic_id, index, by_id=self._by_id)
        if isinstance(hosted, Partition):
            return CurrentLeader(hosted.leader, hosted.leader_epoch)
        known = self._image.topic(topic, topic_id, by_id=self._by_id)
        state = None if known is None else known.partition(index)
        return CurrentLeader(NO_LEADER, NO_EPOCH) if state is None else CurrentLeader(state.leader, state.leader_epoch)
