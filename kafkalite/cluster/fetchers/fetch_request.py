"""Builds the Fetch request of a follower.

Version notes: topics by id (v13); broker id and broker epoch in ReplicaState (v15, KIP-903), before that the id alone.
"""

from kafkalite.cluster.fetchers.fetched_replica import PartitionKey
from kafkalite.cluster.fetchers.host import FetcherHost
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.state.follower.fetch_session import SessionRequest

Topic = FetchRequest.FetchTopic
Forgotten = FetchRequest.ForgottenTopic


def build_request(host: FetcherHost, part: SessionRequest[PartitionKey], wait_ms: int) -> FetchRequest:
    """The request of a session.

    Arguments:
        host: the broker.
        part: what the session names.
        wait_ms: how long the leader may wait for records.
    """
    config = host.config
    topics: dict[bytes, Topic] = {}
    for (topic_id, index), position in part.positions.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = Topic(topic_id=topic_id, partitions=[])
        topic.partitions.append(
            Topic.FetchPartition(
                partition=index,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.offset,
                last_fetched_epoch=position.last_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=config.replica_fetch_max_bytes,
            )
        )
    forgotten: dict[bytes, Forgotten] = {}
    for topic_id, index in part.forgotten:
        forgotten.setdefault(topic_id, Forgotten(topic_id=topic_id, partitions=[])).partitions.append(index)
    return FetchRequest(
        replica_id=host.broker_id,
        replica_state=FetchRequest.ReplicaState(replica_id=host.broker_id, replica_epoch=host.broker_epoch()),
        max_wait_ms=wait_ms,
        min_bytes=config.replica_fetch_min_bytes,
        max_bytes=config.replica_fetch_response_max_bytes,
        session_id=part.session_id,
        session_epoch=part.epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten.values()),
    )
