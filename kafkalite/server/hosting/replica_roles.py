"""Lets the partitions with several replicas lead or follow, as soon as their logs can have that role.

1. A replica has a log before it has a role that reads or writes it: files that are missing are created, and created
   ones are opened. The controller is answered then, so that a new replica is one with files.
2. A leader begins when no truncation and no restart of its log is in progress: what a fetcher has requested before
   would remove what the leader appends.
3. The fetchers follow a partition exactly while it is a follower with a leader and an open log, except during the last
   step of a move to another log directory. They stop before anything else happens to it.
4. A partition whose log cannot be opened has no role, and the controller receives KAFKA_STORAGE_ERROR. The log is
   opened later, for example when the disk has free space again; then the controller is asked for the state.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from kafkalite.clock import Clock, Timer
from kafkalite.cluster.metadata.image import NO_LEADER, PartitionImage
from kafkalite.cluster.partition.follower import Follower
from kafkalite.cluster.partition.leader import Leader
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.storage.log.log import Log
from kafkalite.storage.manager import LogManager

RETRY_S = 1.0  # before a log is opened again
NO_EPOCH = -1


class ReplicaFetching(Protocol):
    """Fetches the records of the partitions that this broker follows."""

    def follow(self, partition: Partition) -> None:
        """Fetch from the leader of a partition, in its leader epoch; its log is open."""

    def stop(self, partition: Partition) -> None:
        """Fetch a partition no longer: nothing is appended, truncated or flushed after the return."""

    def stop_all(self) -> None:
        """Fetch nothing, until partitions are followed again."""

    def brokers_changed(self) -> None:
        """The image has other brokers, or other addresses of them."""

    def configure(self) -> None:
        """The configs of the broker have changed."""

    def close(self) -> None:
        """End the connections."""


class NoFetching:
    """The fetchers of a broker without a cluster: of one whose partitions have one replica each."""

    def follow(self, partition: Partition) -> None:
        """Nothing is fetched."""

    def stop(self, partition: Partition) -> None:
        """Nothing is fetched."""

    def stop_all(self) -> None:
        """Nothing is fetched."""

    def brokers_changed(self) -> None:
        """Nothing is fetched."""

    def configure(self) -> None:
        """Nothing is fetched."""

    def close(self) -> None:
        """Nothing is fetched."""


class ReplicaHost(Protocol):
    """The part of the hosting that begins and ends leaderships."""

    def begin_leading(self, partition: Partition, image: PartitionImage) -> None:
        """This broker leads a partition whose log is open."""

    def end_leading(self, partition: Partition) -> None:
        """The partition has no role; if this broker has led it, that is announced."""


class ReplicaRoles:
    """The roles of the partitions with several replicas.

    Arguments:
        broker_id: of this broker.
        host: begins and ends leaderships.
        logs: the log directories.
        clock: for the pauses before logs are opened again.

    Attributes:
        fetchers: fetch for the followers; replaced by the owner.
        request_states: asks the controller for the states of all partitions; replaced by the owner.
        answer_followers: called when a leadership has begun: their waiting fetches do not name the partition; replaced
            by the owner.
    """

    def __init__(self, broker_id: int, host: ReplicaHost, logs: LogManager, clock: Clock) -> None:
        self.fetchers: ReplicaFetching = NoFetching()
        self.request_states: Callable[[], object] = do_nothing
        self.answer_followers: Callable[[], object] = do_nothing
        self._clock = clock
        self._unopened: dict[Partition, None] = {}  # their logs could not be opened
        self._timer: Timer | None = None  # of the next attempt to open them
        self._broker_id = broker_id
        self._host = host
        self._logs = logs
        self._awaited: dict[Partition, PartitionImage] = {}  # no log yet, or one that is being truncated
        self._failed: dict[TopicPartition, int] = {}  # since the last `when_ready`, with their errors
        self._then: Callable[[dict[TopicPartition, int]], object] | None = None

    def assign(self, partition: Partition, image: PartitionImage) -> None:
        """Let a partition have the role of a state, now or when its log can have it.

        Arguments:
            partition: hosted, without a defect.
            image: its state; this broker is one of the replicas.
        """
        self._awaited.pop(partition, None)
        if image.leader != self._broker_id:
            self._assign_follower(partition, image)
        elif isinstance(partition.role, Leader) and partition.log is not None:
            self._host.begin_leading(partition, image)  # another epoch
        else:
            self.end(partition)
            partition.leader_epoch = image.leader_epoch
            self._await_log(partition, image)

    def _assign_follower(self, partition: Partition, image: PartitionImage) -> None:
        if isinstance(partition.role, Leader):
            self._host.end_leading(partition)
        partition.follow(image)
        if image.leader == NO_LEADER:
            self.fetchers.stop(partition)
        if partition.log is None:
            self._await_log(partition, image)
        else:
            self.continue_fetching(partition)

    def end(self, partition: Partition) -> None:
        """Let a partition have no role: nothing is appended to its log, except by a job that already runs."""
        self._awaited.pop(partition, None)
        self.fetchers.stop(partition)
        self._host.end_leading(partition)

    def continue_fetching(self, partition: Partition) -> None:
        """Fetch a partition, if it follows a leader and no move needs its log unchanged."""
        role, log = partition.role, partition.log
        is_fetched = isinstance(role, Follower) and role.leader != NO_LEADER and log is not None
        if is_fetched and not (partition.is_paused or (log is not None and log.moving)):
            self.fetchers.follow(partition)

    def close(self) -> None:
        """Fetch nothing any more, and open no logs."""
        self._unopened.clear()
        if self._timer is not None:
            self._timer.cancel()
        fetchers, self.fetchers = self.fetchers, NoFetching()
        fetchers.close()

    # Logs that are not ready yet.

    def when_ready(self, then: Callable[[dict[TopicPartition, int]], object]) -> None:
        """Call `then` when all assigned partitions have their roles, perhaps at once.

        It receives the error codes of those that have none, because their log could not be opened.
        """
        self._then = then
        self._end_wait()

    def abandon(self) -> None:
        """The registration has ended: partitions whose logs are not ready get no role."""
        self._awaited.clear()
        self._end_wait()

    def _end_wait(self) -> None:
        if self._awaited or self._then is None:
            return
        then, self._then = self._then, None
        failed, self._failed = self._failed, {}
        then(failed)

    def _await_log(self, partition: Partition, image: PartitionImage) -> None:
        self._awaited[partition] = image
        if partition.log is not None:
            self._await_truncation(partition, partition.log)
        elif not partition.is_opening:  # else an append of an earlier leadership opens it
            partition.open(ignore)

    def log_opened(self, partition: Partition, opened: Log | int) -> None:
        """The log of a partition was opened, or could not be: then it is an error code."""
        if isinstance(opened, int):
            self._not_opened(partition)
        elif partition in self._awaited:
            self._unopened.pop(partition, None)
            self._await_truncation(partition, opened)
        elif partition in self._unopened:
            del self._unopened[partition]
            self.request_states()

    def _not_opened(self, partition: Partition) -> None:
        if self._awaited.pop(partition, None) is None:
            return
        key = TopicPartition(partition.topic, partition.index)
        self._failed[key] = partition.defect or KafkaErrorCode.KAFKA_STORAGE_ERROR
        if not partition.defect:
            partition.resign()
            partition.leader_epoch = NO_EPOCH  # the state is sent again
            self._unopened[partition] = None
            self._open_later()
        self._end_wait()

    def _open_later(self) -> None:
        if self._timer is None:
            self._timer = self._clock.call_at(self._clock.monotonic() + RETRY_S, self._open_again)

    def _open_again(self) -> None:
        self._timer = None
        for partition in list(self._unopened):
            if partition.defect or partition.log is not None:
                del self._unopened[partition]
            elif not partition.is_opening:
                partition.open(ignore)
        if self._unopened:
            self._open_later()

    def _await_truncation(self, partition: Partition, log: Log) -> None:
        self._logs.when_truncated(log, partial(self._ready_for, partition, self._awaited[partition]))

    def _ready_for(self, partition: Partition, image: PartitionImage) -> None:
        if self._awaited.get(partition) is image:
            self._ready(partition)

    def _ready(self, partition: Partition) -> None:
        image = self._awaited.pop(partition)
        try:
            if partition.defect:
                self._failed[TopicPartition(partition.topic, partition.index)] = partition.defect
            elif image.leader == self._broker_id:
                self._host.begin_leading(partition, image)
            else:
                self.continue_fetching(partition)
        finally:
            self._end_wait()


def do_nothing() -> None:
    """A broker without a tree asks for no states, and has no followers."""


def ignore(_error: int) -> None:
    """`ReplicaRoles.log_opened` is called for each opened log."""
