"""The ISR changes of one partition that this broker leads: when they are requested, and how their results are used.

1. A fetch of a follower outside the ISR may start an expansion; a lag check may start the removal of followers. One
   change is in flight (`PartitionIsr`).
2. A follower that the controller has rejected is proposed again after a pause. Until then it does not delay the high
   watermark: it may be shutting down, and fetch no more.
3. At the end of the leadership, or with a newer state, the change is withdrawn; its result is ignored.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from kafkalite.clock import Clock
from kafkalite.cluster.isr.alter_partition_sender import AlterPartitionSender
from kafkalite.cluster.isr.check_timer import IsrCheckTimer
from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.metrics import Registry
from kafkalite.state.isr.partition_isr import CommittedIsr, IsrChange, PartitionIsr, Result
from kafkalite.state.isr.replica_progress import ReplicaProgress
from kafkalite.storage.log.log import Log

RETRY_MS = 1_000  # after a rejected change
LONG_AGO_MS = -(2**62)


class IsrHost(Protocol):
    """The part of the broker that ISR changes use."""

    clock: Clock

    def is_live(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the registration of a broker with this epoch (-1: any) is the present one."""


class IsrPartition(Protocol):
    """The part of a partition that its ISR changes use.

    Attributes:
        isr: as the controller has committed it.
    """

    topic: str
    topic_id: bytes
    index: int
    log: Log | None
    high_watermark: int
    isr: tuple[int, ...]

    def use_isr(self, isr: tuple[int, ...], partition_epoch: int, eligible: tuple[int, ...]) -> None:
        """Use the ISR and the eligible replicas of a state."""


class IsrLeader(Protocol):
    """The part of a leadership that its ISR changes use.

    Attributes:
        followers: the progress of the other replicas, by broker id.
        epoch_start: the log end at which the leader epoch began.
    """

    followers: Mapping[int, ReplicaProgress]
    epoch_start: int

    def change_isr(self, isr: tuple[int, ...], expected: Collection[int] = ()) -> None:
        """Use another ISR, with members whose addition is requested."""


class IsrCounts:
    """Changes of in-sync replicas since the start.

    Arguments:
        registry: of the broker's metrics.

    Attributes:
        expands, shrinks: committed changes (Kafka: IsrExpandsPerSec, IsrShrinksPerSec).
        failed: results with an error, or of a state that is out of date (FailedIsrUpdatesPerSec).
    """

    __slots__ = ("expands", "failed", "shrinks")

    def __init__(self, registry: Registry) -> None:
        self.expands = registry.counter("kafkalite_isr_expands_total", "Replicas that have joined the ISR.")
        self.shrinks = registry.counter("kafkalite_isr_shrinks_total", "Removals of lagging replicas from the ISR.")
        self.failed = registry.counter("kafkalite_failed_isr_updates_total", "ISR changes that were not applied.")


class IsrParts(Protocol):
    """The parts of the broker that all ISR changes share.

    Attributes:
        sender: sends the changes.
        lag_checks: checks the followers.
        counts: of the changes.
    """

    sender: AlterPartitionSender
    lag_checks: IsrCheckTimer
    counts: IsrCounts

    def broker_epoch(self) -> int:
        """Of the present registration of this broker."""


class IsrChanges:
    """The ISR of a partition with several replicas, during one leadership.

    Arguments:
        partition: the partition.
        leader: its leadership, which uses the ISR.
        host: the broker.
        parts: of the broker.
        state: with which the leadership begins.

    Attributes:
        topic, topic_id, index: of the partition.
        rejected: followers that the controller has not let join, until they are proposed again.
    """

    __slots__ = (
        "_host",
        "_isr",
        "_leader",
        "_partition",
        "_parts",
        "_retry_ms",
        "index",
        "rejected",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        partition: IsrPartition,
        leader: IsrLeader,
        host: IsrHost,
        parts: IsrParts,
        state: PartitionImage,
    ) -> None:
        self.topic, self.topic_id, self.index = partition.topic, partition.topic_id, partition.index
        self._partition = partition
        self._leader = leader
        self._host = host
        self._parts = parts
        self._isr = PartitionIsr(state.leader, parts.broker_epoch(), committed_isr(state))
        self._retry_ms = LONG_AGO_MS
        self.rejected: set[int] = set()
        parts.lag_checks.add(self)

    @property
    def eligible(self) -> tuple[int, ...]:
        """The eligible replicas of the committed state."""
        return self._isr.committed.eligible

    def receive_state(self, state: PartitionImage) -> tuple[int, ...]:
        """Use a state that the controller has sent. Returns the ISR with the members whose addition is requested.

        The partition has the newest ISR afterwards: that of the state, or a newer one of a response.
        """
        if self._isr.receive_state(committed_isr(state)):
            self._parts.sender.withdraw(self)
            self.rejected.clear()
        self._use_committed()
        return (*self._isr.committed.isr, *self._isr.expected)

    def _use_committed(self) -> None:
        committed = self._isr.committed
        self._partition.use_isr(committed.isr, committed.partition_epoch, committed.eligible)

    def follower_fetched(self, replica_id: int, now_ms: int) -> None:
        """Request that a follower joins the ISR after its fetch, if it can.

        Arguments:
            replica_id: a follower outside the ISR.
            now_ms: milliseconds of the monotonic clock.
        """
        if self._partition.log is None or (replica_id in self.rejected and now_ms < self._retry_ms):
            return
        leader, isr = self._leader, self._isr
        eligible = self._host.is_live(replica_id, leader.followers[replica_id].broker_epoch)
        high_watermark, epoch_start = self._partition.high_watermark, leader.epoch_start
        change = isr.expand(replica_id, leader.followers, high_watermark, epoch_start, eligible=eligible)
        if change is not None:
            self.rejected.discard(replica_id)
            self._parts.sender.submit(self, change)
            leader.change_isr(isr.committed.isr, isr.expected)

    def check_lag(self, lag_max_ms: int, now_ms: int) -> None:
        """Request the removal of followers that lag.

        Arguments:
            lag_max_ms: the allowed lag.
            now_ms: milliseconds of the monotonic clock when the check of all partitions began.
        """
        isr, log = self._isr, self._partition.log
        if log is not None and len(isr.committed.isr) > 1:
            change = isr.shrink(self._leader.followers, log.log_end_offset, now_ms, lag_max_ms)
            if change is not None:
                self._parts.sender.submit(self, change)

    def apply_state(self, change: IsrChange, state: CommittedIsr) -> None:
        """Use the state in a response without an error."""
        counts = self._parts.counts
        if self._isr.apply_response(change, state) is Result.APPLIED:
            (counts.shrinks if change.joins is None else counts.expands).add()
            self._use_committed()
            self._leader.change_isr(state.isr)
        else:
            counts.failed.add()

    def apply_error(self, change: IsrChange, error: int) -> Result:
        """Use an error of the partition; returns what follows from it."""
        self._parts.counts.failed.add()
        result = self._isr.apply_error(change, error)
        if result is Result.REVERTED:
            if change.joins is not None:
                self.rejected.add(change.joins)
                self._retry_ms = int(self._host.clock.monotonic() * 1000) + RETRY_MS
            self._leader.change_isr(self._isr.committed.isr)
        return result

    def end(self) -> None:
        """Withdraw the change: the leadership has ended, or there are no followers any more."""
        self._parts.lag_checks.remove(self)
        self._parts.sender.withdraw(self)


def committed_isr(state: PartitionImage) -> CommittedIsr:
    """The ISR of a state of the controller."""
    return CommittedIsr(state.isr, state.leader_epoch, state.partition_epoch, state.eligible)
