"""Asks a leader for the first and the last offset of partitions, after OFFSET_OUT_OF_RANGE.

The leader's end is asked for before its start, as in Kafka: in between, the start may only rise to the end.
Source: RemoteLeaderEndPoint.fetchOffset of Apache Kafka 3.9.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from kafkalite.callbacks import FanIn, call_each
from kafkalite.cluster.fetchers.fetched_replica import FetchedReplica
from kafkalite.cluster.peer import Peer
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkalite.state.follower.truncation import OffsetRange

LATEST, EARLIEST = -1, -2  # timestamps
Topic = ListOffsetsRequest.ListOffsetsTopic


class Lookup(NamedTuple):
    """A replica whose leader is asked, and the step for which it waits."""

    replica: FetchedReplica
    step: object


class LeaderRange(NamedTuple):
    """The offsets of a leader, or the error code of one of the two lookups."""

    offsets: OffsetRange
    error: int


Offsets = dict[tuple[str, int], tuple[int, int]]  # by topic and index: offset, error
Found = Callable[[FetchedReplica, LeaderRange], object]


def look_up(peer: Peer, broker_id: int, lookups: list[Lookup], found: Found) -> None:
    """Ask a leader for the offsets of replicas.

    Arguments:
        peer: the leader.
        broker_id: of this broker.
        lookups: at least one.
        found: called for each replica that still waits for its step.
    """

    def done(results: list[Offsets]) -> None:
        latest, earliest = results
        call_each(partial(_report, latest, earliest, found), lookups)

    results: FanIn[Offsets] = FanIn(2, done)
    for index, timestamp in enumerate((LATEST, EARLIEST)):
        request = _request(broker_id, [lookup.replica for lookup in lookups], timestamp)
        peer.call(request, partial(_received, results, index), partial(_lost, results, index))


def _request(broker_id: int, replicas: Iterable[FetchedReplica], timestamp: int) -> ListOffsetsRequest:
    topics: dict[str, Topic] = {}
    for replica in replicas:
        name = replica.partition.topic
        topics.setdefault(name, Topic(name=name, partitions=[])).partitions.append(
            Topic.ListOffsetsPartition(
                partition_index=replica.partition.index,
                current_leader_epoch=replica.leader_epoch,
                timestamp=timestamp,
            )
        )
    return ListOffsetsRequest(replica_id=broker_id, topics=list(topics.values()))


def _received(results: FanIn[Offsets], index: int, response: ListOffsetsResponse) -> None:
    offsets = {
        (topic.name, each.partition_index): (each.offset, each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }
    results.put(index, offsets)


def _lost(results: FanIn[Offsets], index: int, _reason: str) -> None:
    results.put(index, {})


def _report(latest: Offsets, earliest: Offsets, found: Found, lookup: Lookup) -> None:
    replica, step = lookup
    if replica.step is not step:
        return
    replica.end_steps()
    key, none = (replica.partition.topic, replica.partition.index), (-1, int(KafkaErrorCode.REQUEST_TIMED_OUT))
    end, end_error = latest.get(key, none)
    start, start_error = earliest.get(key, none)
    found(replica, LeaderRange(OffsetRange(start, end), end_error or start_error))
