"""Records the fetches of followers, and reads for them: up to the log end instead of the high watermark.

A fetch is recorded before the read, so that the response has the high watermark that it leads to. One that is rejected,
out of range or behind a diverging epoch says nothing about the follower's log and is not recorded.

Source: Partition.fetchRecords, followerReplicaOrThrow and readRecords of Apache Kafka 3.9, which reads first.
"""

from kafkalite._speedups.storage.page_cache import PageCacheMiss, ReadAttempt
from kafkalite.cluster.partition.leader import Leader
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.reads import PartitionRead, diverging_epoch, read_log
from kafkalite.errors import KafkaErrorCode
from kafkalite.state.replica_sessions import ReplicaPartition


def find_rejection(partition: Partition, part: ReplicaPartition) -> PartitionRead | None:
    """Return the response to a fetch that cannot be recorded: an error or a diverging epoch; None if it can be.

    Arguments:
        partition: that this broker hosts.
        part: the newest request for it.
    """
    error = partition.check_leader_epoch(part.current_leader_epoch) or error_of_replica(partition, part)
    if error:
        return PartitionRead(error)
    if part.last_fetched_epoch >= 0:
        diverging = diverging_epoch(partition, part.fetch_offset, part.last_fetched_epoch)
        if diverging is not None:
            return divergence_of(partition, diverging)
    if not partition.log_start_offset <= part.fetch_offset <= log_end_of(partition):
        return with_offsets(partition, PartitionRead(KafkaErrorCode.OFFSET_OUT_OF_RANGE))
    return None


def error_of_replica(partition: Partition, part: ReplicaPartition) -> int:
    """Return the error of a broker that is no follower of this leader, else 0."""
    role = partition.role
    if isinstance(role, Leader) and part.session.replica_id in role.followers:
        return 0
    # With a leader epoch, the assignment may be on its way. Without one, either side may know an old state.
    known = part.current_leader_epoch >= 0
    return KafkaErrorCode.UNKNOWN_LEADER_EPOCH if known else KafkaErrorCode.NOT_LEADER_OR_FOLLOWER


def divergence_of(partition: Partition, diverging: tuple[int, int] | KafkaErrorCode) -> PartitionRead:
    """Return the response where the logs differ."""
    if isinstance(diverging, KafkaErrorCode):
        return with_offsets(partition, PartitionRead(diverging))
    found = with_offsets(partition, PartitionRead())
    found.diverging = diverging
    return found


def record(partition: Partition, part: ReplicaPartition) -> int:
    """Record a fetch that was not rejected; what waits for it is answered. Returns a Kafka error code, 0 = recorded."""
    leader, session = partition.role, part.session
    assert isinstance(leader, Leader), "`find_rejection` has checked it"
    error = leader.follower_fetched(
        session.replica_id, session.broker_epoch, part.fetch_offset, part.log_start_offset, session.fetched_ms
    )
    part.progress = None if error else leader.followers.get(session.replica_id)
    return error


def read_to_log_end(
    partition: Partition,
    part: ReplicaPartition,
    max_bytes: int,
    *,
    min_one: bool,
    read_ahead: PageCacheMiss | None = None,
) -> PartitionRead:
    """Read whole batches up to the log end, for a fetch that was not rejected.

    Arguments:
        partition: to read.
        part: the request for it.
        max_bytes: bound on the bytes of the batches.
        min_one: whether the first batch is returned even if it is larger than `max_bytes` (KIP-74).
        read_ahead: the miss of the previous read, after a job has read its bytes.
    """
    found = with_offsets(partition, PartitionRead())
    end_offset = log_end_of(partition)
    if part.fetch_offset < end_offset:
        attempt = ReadAttempt(part.fetch_offset, max_bytes, end_offset, min_one=min_one, read_ahead=read_ahead)
        found.add(read_log(partition, attempt), attempt)
    return found


def with_offsets(partition: Partition, found: PartitionRead) -> PartitionRead:
    """Fill in the offsets of a partition."""
    found.high_watermark = partition.high_watermark
    found.last_stable_offset = partition.last_stable_offset
    found.log_start_offset = partition.log_start_offset
    return found


def log_end_of(partition: Partition) -> int:
    """Return the log end; 0 without files."""
    return partition.log.log_end_offset if partition.log is not None else 0
