"""Determines the session of a replica's fetch, and names its partitions there."""

from collections.abc import Generator
from functools import partial

from kafkalite.clock import Outcome
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.server.requests.call import OBJECTS_MAX, PartitionCall
from kafkalite.slicing import Slicer, Steps, finish
from kafkalite.state.fetch_sessions import EPOCH_FINAL, EPOCH_INITIAL
from kafkalite.state.quotas.rates import Windows
from kafkalite.state.quotas.replication_quota import ReplicationQuota
from kafkalite.state.replica_sessions import ReplicaPartitions, ReplicaSession, ReplicaSessions

TOPIC_ID_SINCE = 13
FREED_AT_ONCE = 64


def sessions_of_replicas(call: PartitionCall) -> ReplicaSessions:
    """Return the sessions of replicas; they exist from the first fetch of a replica on."""
    sessions = call.context.fetch_sessions
    if not isinstance(sessions.of_replicas, ReplicaSessions):
        config = call.context.config
        windows = Windows(config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000)
        quota = ReplicationQuota(call.context.broker_id, windows)
        sessions.of_replicas = ReplicaSessions(sessions.new_id, partial(free, call.context.slicer), quota)
    return sessions.of_replicas


def free(slicer: Slicer, partitions: ReplicaPartitions) -> None:
    """Detach the partitions of a session that has ended, in several loop iterations if they are many."""
    if len(partitions) <= OBJECTS_MAX:
        finish(detach_in_steps(partitions))
    else:
        slicer.run(detach_in_steps(partitions), Outcome.result)


def detach_in_steps(partitions: ReplicaPartitions) -> Steps:
    while partitions:
        for _ in range(min(FREED_AT_ONCE, len(partitions))):
            partitions.popitem()[1].detach()
        yield


def session_of(
    call: PartitionCall, request: FetchRequest, sessions: ReplicaSessions, replica_id: int, broker_epoch: int
) -> ReplicaSession | KafkaErrorCode:
    """Return the session that a request continues, a new one that is not open yet, or an error code.

    Arguments:
        call, request: of the fetch.
        sessions: of all replicas.
        replica_id, broker_epoch: of the follower.
    """
    now_ms = int(call.context.clock.monotonic() * 1000)
    by_id = call.version >= TOPIC_ID_SINCE
    session = ReplicaSession(replica_id, broker_epoch, by_id, call.connection, now_ms)
    if request.session_epoch in (EPOCH_INITIAL, EPOCH_FINAL):
        sessions.close(request.session_id)
        return session
    return sessions.resume(request.session_id, request.session_epoch, session)


def named_in_steps(request: FetchRequest, session: ReplicaSession) -> Generator[None, None, None]:
    """Add the named partitions to a session, or change their parameters; remove the forgotten ones."""
    for topic in request.topics:
        for asked in topic.partitions:
            session.name(topic.topic, topic.topic_id, asked.partition).update_request(
                asked.fetch_offset,
                asked.partition_max_bytes,
                asked.current_leader_epoch,
                asked.last_fetched_epoch,
                asked.log_start_offset,
            )
            yield
    for forgotten in request.forgotten_topics_data:
        name = forgotten.topic_id if session.by_id else forgotten.topic
        for index in forgotten.partitions:
            session.forget((name, index))
            yield
