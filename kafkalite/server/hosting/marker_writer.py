"""Writes the markers of ended transactions to partitions that this broker leads: a control batch for each (KIP-98).

1. A partition of `__consumer_offsets` belongs to a group shard. The marker is a command of the shard, which appends the
   control batch and ends the pending offsets in one step, if the log would accept the batch. Errors of the group
   coordinator become NOT_LEADER_OR_FOLLOWER: the transaction coordinator repeats the marker.
2. The log checks the epochs of the producer and of the coordinator. A marker of a partition without this producer is
   written too, and a repeated marker changes nothing.

Deviation: other internal topics are rejected with INVALID_TOPIC_EXCEPTION. Kafka appends the marker, which the
coordinator of that topic cannot read.
Source: KafkaApis.handleWriteTxnMarkersRequest of Apache Kafka.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kafkalite.callbacks import Completion, FanIn
from kafkalite.clock import Clock, Outcome
from kafkalite.cluster.partition.append import Append, OwnAppend
from kafkalite.cluster.replicas import Replicas
from kafkalite.cluster.topics.internal_topics import INTERNAL_TOPICS, OFFSETS
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.records.control import TransactionMarker
from kafkalite.slicing import Slicer, Steps, finish, group_steps

if TYPE_CHECKING:
    from kafkalite.coordinators.group.service import GroupService

PARTITIONS_AT_ONCE = 500  # in one loop iteration; each takes some 10 us
COORDINATOR_ERRORS = frozenset(
    {
        KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaErrorCode.COORDINATOR_NOT_AVAILABLE,
        KafkaErrorCode.NOT_COORDINATOR,
    }
)

MarkersWritten = Callable[[dict[TopicPartition, int]], object]


class MarkerWriterHost(Protocol):
    """The broker, as the writer needs it."""

    replicas: Replicas
    slicer: Slicer

    @property
    def clock(self) -> Clock: ...

    @property
    def groups(self) -> "GroupService": ...


class MarkerWriter:
    """Writes markers to partitions of this broker.

    Arguments:
        host: the broker.
    """

    def __init__(self, host: MarkerWriterHost) -> None:
        self._host = host

    def write(self, marker: TransactionMarker, partitions: Iterable[TopicPartition], then: MarkersWritten) -> None:
        """Write a marker to partitions; it is appended now, or in slices to many of them.

        Arguments:
            marker: the end of the transaction.
            partitions: each of them once or several times.
            then: called once with the error code of each partition, 0 = the marker is committed.
        """
        each = list(partitions)
        steps = self.steps(marker, each, then)
        if len(each) <= PARTITIONS_AT_ONCE:
            finish(steps)
        else:
            self._host.slicer.run(self._writing(steps), Outcome.result)

    def steps(self, marker: TransactionMarker, partitions: Iterable[TopicPartition], then: MarkersWritten) -> Steps:
        """Return the same as steps, one for each partition. The caller writes what was appended.

        Arguments:
            marker, partitions, then: as for `write`.
        """
        each = list(dict.fromkeys(partitions))
        written: FanIn[int] = FanIn(len(each), lambda errors: then(dict(zip(each, errors, strict=True))))
        batch = marker.build(self._host.clock.wall_ms())
        for at, partition in enumerate(each):
            self._write_one(marker, batch, partition, written, at)
            yield

    def _writing(self, steps: Steps) -> Steps:
        for _ in group_steps(steps):
            self._host.replicas.write_pending()
            yield
        self._host.replicas.write_pending()

    def _write_one(
        self, marker: TransactionMarker, batch: bytes, partition: TopicPartition, written: FanIn[int], at: int
    ) -> None:
        topic = partition.topic
        if topic in INTERNAL_TOPICS and topic != OFFSETS.name:
            written.put(at, KafkaErrorCode.INVALID_TOPIC_EXCEPTION)
            return
        found = self._host.replicas.hosted_partition(partition)
        if found is None:
            written.put(at, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif found.error:
            written.put(at, found.error)
        elif topic != OFFSETS.name:
            found.append_internal(OwnAppend(bytearray(batch), partial(put_error, written, at), None, marker.version))
        else:
            put = partial(written.put, at)
            completion = Completion(put, partial(put_coordinator_error, put))
            self._host.groups.end_transaction(partition.partition, marker, completion)


def put_error(written: FanIn[int], at: int, append: Append) -> None:
    """Use the error of an append.

    Arguments:
        written: receives it.
        at: the index of the partition.
        append: has ended.
    """
    written.put(at, append.error)


def put_coordinator_error(put: Callable[[int], None], error: int) -> None:
    """Use the error of a group shard that cannot end the transaction now.

    Arguments:
        put: receives the error for the coordinator of the transaction.
        error: of the group coordinator.
    """
    put(KafkaErrorCode.NOT_LEADER_OR_FOLLOWER if error in COORDINATOR_ERRORS else error)
