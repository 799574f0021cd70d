"""Looks up offsets in partitions that other brokers of the cluster lead, with ListOffsets.

A partition costs the requests of its leader, of which there are at most three: the log starts, the high watermarks, and
the first records of given times, each for all partitions of the leader.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from kafkalite.callbacks import gather
from kafkalite.cluster.broker_peers import BrokerPeers, CallResult
from kafkalite.cluster.metadata.image import ClusterImage
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import READ_UNCOMMITTED, TopicPartition
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.server.requests.call import OBJECTS_MAX
from kafkalite.server.requests.offset_lookup import EARLIEST, LATEST, UNKNOWN

CONSUMER = -1  # replica id
NO_LEADER = -1

Topic = ListOffsetsRequest.ListOffsetsTopic
Asked = Topic.ListOffsetsPartition


class RemotePartition(NamedTuple):
    """A partition to look up.

    Arguments:
        topic, partition: the partition.
        timestamp: milliseconds since 1970, or a constant of `offset_lookup`.
    """

    topic: str
    partition: int
    timestamp: int

    @property
    def key(self) -> TopicPartition:
        """The partition without the timestamp."""
        return TopicPartition(self.topic, self.partition)


class RemoteOffsets(NamedTuple):
    """The offsets of a partition.

    Arguments:
        error: why they are unknown, 0 = they are known.
        start, end: the log start and the high watermark.
        found: of the timestamp; -1 = no record has that time or a later one.
    """

    error: int = 0
    start: int = UNKNOWN
    end: int = UNKNOWN
    found: int = UNKNOWN


class Part(NamedTuple):
    """The offsets of one request, or their errors, by partition."""

    timestamp_field: str
    offsets: dict[TopicPartition, tuple[int, int]]


def look_up_elsewhere(
    image: ClusterImage,
    peers: BrokerPeers,
    wanted: Sequence[RemotePartition],
    then: Callable[[dict[TopicPartition, RemoteOffsets]], object],
) -> None:
    """Look up all partitions; `then` is called with the offsets of each."""
    by_leader: dict[int, list[RemotePartition]] = {}
    for each in wanted:
        by_leader.setdefault(leader_of(image, each), []).append(each)
    lost = by_leader.pop(NO_LEADER, [])
    calls = [
        partial(look_up, peers, leader, name, of_leader)
        for leader, partitions in by_leader.items()
        for name, of_leader in requests(partitions)
    ]

    def gathered(parts: list[Part]) -> None:
        found = {TopicPartition(each.topic, each.partition): RemoteOffsets() for each in wanted}
        found |= {
            TopicPartition(each.topic, each.partition): RemoteOffsets(KafkaErrorCode.LEADER_NOT_AVAILABLE)
            for each in lost
        }
        for part in parts:
            for key, (error, offset) in part.offsets.items():
                merged = found[key]._replace(**{part.timestamp_field: offset})
                found[key] = merged._replace(error=merged.error or error)
        then(found)

    gather(calls, gathered)


def leader_of(image: ClusterImage, wanted: RemotePartition) -> int:
    """The leader of a partition as this broker knows it."""
    topic = image.topics.get(wanted.topic)
    state = None if topic is None else topic.partition(wanted.partition)
    return NO_LEADER if state is None or state.leader < 0 else state.leader


def requests(partitions: Sequence[RemotePartition]) -> Iterable[tuple[str, list[RemotePartition]]]:
    """Yield the requests of one leader: the field that each fills in, and its partitions with their timestamps."""
    yield "start", [each._replace(timestamp=EARLIEST) for each in partitions]
    yield "end", [each._replace(timestamp=LATEST) for each in partitions]
    by_time = [each for each in partitions if each.timestamp not in (EARLIEST, LATEST)]
    if by_time:
        yield "found", by_time


def look_up(
    peers: BrokerPeers, leader: int, name: str, partitions: Sequence[RemotePartition], put: Callable[[Part], None]
) -> None:
    """Send one request to a leader.

    Arguments:
        peers: the connections to other brokers.
        leader: id of the broker.
        name: of the part of the result.
        partitions: led by it, each with the wanted timestamp.
        put: called once with their offsets or errors.
    """
    topics: dict[str, list[Asked]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(Asked(partition_index=each.partition, timestamp=each.timestamp))
    request = ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=READ_UNCOMMITTED,
        topics=[Topic(name=topic, partitions=asked) for topic, asked in topics.items()],
    )

    def answered(result: CallResult) -> None:
        if result.error:
            timed_out = result.error == KafkaErrorCode.REQUEST_TIMED_OUT
            error = result.error if timed_out else int(KafkaErrorCode.LEADER_NOT_AVAILABLE)
            put(Part(name, {each.key: (error, UNKNOWN) for each in partitions}))
        else:
            put(
                Part(
                    name,
                    {
                        TopicPartition(topic.name, each.partition_index): (each.error_code, each.offset)
                        for topic in result.response.topics
                        for each in topic.partitions
                    },
                )
            )

    peers.call(leader, request, answered, is_list=len(partitions) > OBJECTS_MAX)
