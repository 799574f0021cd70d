"""Fetches of consumers that send their rack: a leader names a follower in that rack (KIP-392, Fetch v11 and later).

The response for such a partition has no records: the consumer reads from the named follower until its metadata is
refreshed. The follower receives each high watermark soon during that time.
"""

from kafkalite.cluster.partition.leader import Leader
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.reads import PartitionRead
from kafkalite.model import Node
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.server.requests.call import PartitionCall
from kafkalite.server.requests.fetch_context import FetchContext
from kafkalite.server.requests.fetched_partition import PartitionData
from kafkalite.server.requests.pending_fetch import PendingFetch
from kafkalite.state.fetch_sessions import SessionPartition
from kafkalite.state.isr.preferred_read_replica import LEADER, ReadCandidate, choose_in_rack

READ_MS = 330_000  # metadata.max.age.ms of consumers, and a reserve


class RackAwareFetch(PendingFetch):
    """A fetch of a consumer in a rack.

    Arguments:
        call, request, context: as of `PendingFetch`.
    """

    __slots__ = ("_nodes", "_now_ms", "_rack")

    def __init__(self, call: PartitionCall, request: FetchRequest, context: FetchContext) -> None:
        super().__init__(call, request, context)
        self._rack = request.rack_id
        broker = call.context
        self._nodes: dict[int, Node] = {node.broker_id: node for node in broker.nodes(broker.image, call.connection)}
        self._now_ms = int(broker.clock.monotonic() * 1000)

    def _read(self, part: SessionPartition, bytes_left: int, min_one: bool) -> PartitionRead:
        partition = self._context.resolve(part)
        if isinstance(partition, Partition) and isinstance(partition.role, Leader) and partition.role.followers:
            replica_id = self._choose(part, partition, partition.role)
            if replica_id != LEADER and not partition.check_leader_epoch(part.current_leader_epoch):
                expect_reads(partition, replica_id, self._now_ms)
                return redirect_to(partition, replica_id)
        return super()._read(part, bytes_left, min_one)

    def _choose(self, part: SessionPartition, partition: Partition, leader: Leader) -> int:
        own = self._nodes.get(self._call.context.broker_id)
        candidates = [
            ReadCandidate(replica_id, self._nodes[replica_id].rack, progress.end_offset, progress.caught_up_ms)
            for replica_id, progress in leader.followers.items()
            if replica_id in partition.isr
            and replica_id in self._nodes
            and progress.log_start_offset <= part.fetch_offset <= progress.end_offset
        ]
        return choose_in_rack(self._rack, None if own is None else own.rack, candidates)

    def _bytes_missing(self, reads: list[PartitionRead]) -> int:
        if any(found.preferred_replica != LEADER for found in reads):
            return 0
        return super()._bytes_missing(reads)

    def _data(self, part: SessionPartition, found: PartitionRead) -> PartitionData:
        data = super()._data(part, found)
        data.preferred_read_replica = found.preferred_replica
        return data


def redirect_to(partition: Partition, replica_id: int) -> PartitionRead:
    """Return the response that names a follower: the offsets of the leader, without records."""
    found = PartitionRead()
    found.high_watermark = partition.high_watermark
    found.last_stable_offset = partition.last_stable_offset
    found.log_start_offset = partition.log_start_offset
    found.preferred_replica = replica_id
    return found


def expect_reads(partition: Partition, replica_id: int, now_ms: int) -> None:
    """Let a follower receive the high watermarks soon while the consumer reads from it."""
    for mark in partition.replica_sessions:
        if mark.session.replica_id == replica_id:
            mark.read_until_ms = now_ms + READ_MS
