"""The state of a hosted replica of a partition: its leader, its log and its settings, and what readers see of it."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.callbacks import call_each
from kafkalite.cluster.metadata.image import NO_LEADER, NO_PARTITION
from kafkalite.cluster.partition.append import Append
from kafkalite.cluster.partition.delayed_fetch import DelayedFetch
from kafkalite.cluster.partition.follower import Follower
from kafkalite.cluster.partition.leader import NEVER, Leader
from kafkalite.cluster.partition.validation import BatchRules
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage.log.log import Log

if TYPE_CHECKING:  # imported with the first fetch of a replica
    from kafkalite.state.replica_sessions import ReplicaPartition

NOT_LEADER = KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
NO_HIGH_WATERMARK = -1  # of logs whose partition has one replica: their checkpoint has no entry


class PartitionState:
    """A replica of a partition, without its appends (`Partition`).

    Arguments:
        topic, topic_id, index: of the partition; the id is 16 bytes.
        config: the settings of the topic; replaced by `configure`.
        leader_epoch, isr: of the partition's state.
        replicas: number of replicas.

    Attributes:
        log: None while the partition has no files.
        leader: the broker that leads it; only set in a cluster.
        role: of this replica; None if it has no role: every partition with an `error` that is no follower.
        error: the Kafka error code of every request of a client; 0 exactly where the role is Leader.
        isr: as the controller has committed it.
        replicas_min: the effective minimum of in-sync replicas (Partition.effectiveMinIsr). While there are eligible
            replicas the ISR is below it, whatever the config says: nothing is committed that they lack.
        hold_at: from this log end offset on, the role holds the appends of a write.
        replica_sessions: the marks of the followers' fetch sessions.
    """

    __slots__ = (
        "_in_job",
        "_job_error",
        "_paused",
        "_queue",
        "_refused",
        "_replicas",
        "_rules",
        "_stable",
        "_unwritten",
        "config",
        "delayed_fetches",
        "error",
        "high_watermark",
        "hold_at",
        "index",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "partition_epoch",
        "replica_sessions",
        "replicas_min",
        "role",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        config: TopicConfig,
        leader_epoch: int,
        isr: tuple[int, ...],
        replicas: int = 1,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self._replicas = replicas
        self.isr = isr
        self.partition_epoch = NO_PARTITION.partition_epoch
        self.role: Leader | Follower | None = None
        self._use(config)
        self.leader_epoch = leader_epoch
        self.leader = NO_LEADER
        self.log: Log | None = None
        self.error = 0
        self.high_watermark = 0
        self.delayed_fetches: dict[DelayedFetch, None] = {}
        self.replica_sessions: tuple[ReplicaPartition, ...] = ()
        self._in_job = False
        self._job_error = 0  # of the first queued append, whose leadership has ended while a job works on it
        self._paused: Callable[[], object] | None = None  # appends are to be paused, or are
        self._queue: deque[Append] = deque()
        self._refused: tuple[bytes, ...] = ()  # headers of first batches, rejected before there was a log
        self._unwritten: list[Append] = []
        self.hold_at = NEVER
        self._stable = 0  # the last stable offset at the previous append

    # Offsets and epochs for readers.

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset if self.log is not None else 0

    @property
    def last_stable_offset(self) -> int:
        """The end of read_committed reads: the high watermark, or the first record of an open transaction below it."""
        return self.high_watermark if self.log is None else self.log.last_stable_offset(self.high_watermark)

    def check_leader_epoch(self, current_leader_epoch: int) -> int:
        """Compare the leader epoch of a client (-1: none) with this one: 0, FENCED_LEADER_EPOCH or
        UNKNOWN_LEADER_EPOCH (KIP-320).
        """
        if self.error or current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return self.error
        return self._compare_epoch(current_leader_epoch)

    def check_reader(self, current_leader_epoch: int) -> int:
        """Do as `check_leader_epoch`, for a request that followers serve, too (KIP-392)."""
        if self.error != NOT_LEADER or not isinstance(self.role, Follower) or self.log is None:
            return self.check_leader_epoch(current_leader_epoch)
        return self._compare_epoch(current_leader_epoch)

    def _compare_epoch(self, current_leader_epoch: int) -> int:
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return 0
        older = current_leader_epoch < self.leader_epoch
        return KafkaErrorCode.FENCED_LEADER_EPOCH if older else KafkaErrorCode.UNKNOWN_LEADER_EPOCH

    @property
    def defect(self) -> int:
        """The error of a partition that is deleted or offline; 0 for one that can be led, here or elsewhere."""
        return 0 if self.error == NOT_LEADER else self.error

    @property
    def is_replicated(self) -> bool:
        """Whether other brokers have replicas, too."""
        return self._replicas > 1

    @property
    def is_opening(self) -> bool:
        """Whether its log is being opened."""
        return self.log is None and self._in_job

    @property
    def is_paused(self) -> bool:
        """Whether its log must not change until `resume`, or is about to be paused."""
        return self._paused is not None

    @property
    def first_epoch(self) -> int:
        """The leader epoch with which the files of a new log begin; -1 for those of a follower: its leader's batches
        bring it.
        """
        return NO_PARTITION.leader_epoch if isinstance(self.role, Follower) else self.leader_epoch

    def _use_log(self, log: Log) -> None:
        """Begin with a log. With several replicas, the first high watermark is that of its checkpoint: the records
        above may not be on the other replicas.
        """
        self.log = log
        if self._replicas == 1:
            self.high_watermark, log.high_watermark = log.log_end_offset, NO_HIGH_WATERMARK
            return
        known = max(log.high_watermark, log.log_start_offset)
        self.high_watermark = log.high_watermark = min(known, log.log_end_offset)

    def _bound_high_watermark(self) -> None:
        """Limit the high watermark to the log, which may have been truncated since the last fetch."""
        if self.log is not None:
            self.high_watermark = max(self.log.log_start_offset, min(self.high_watermark, self.log.log_end_offset))

    def _use(self, config: TopicConfig) -> None:
        self.config = config
        self._rules = BatchRules(config)
        self._use_minimum(self.role.eligible if isinstance(self.role, Leader) else ())

    def _use_minimum(self, eligible: tuple[int, ...]) -> None:
        minimum = min(self.config.min_insync_replicas, self._replicas)
        self.replicas_min = max(minimum, len(self.isr) + 1) if eligible else minimum

    def use_isr(self, isr: tuple[int, ...], partition_epoch: int, eligible: tuple[int, ...]) -> None:
        """Use the ISR and the eligible replicas of a state (KIP-966)."""
        self.isr, self.partition_epoch = isr, partition_epoch
        self._use_minimum(eligible)

    def delete_records_before(self, offset: int) -> int:
        """Move the log start offset (DeleteRecords): 0 or a Kafka error code. -1 means the high watermark."""
        if self.error:
            return self.error
        policy = self.config.cleanup_policy
        if self.config.unreadable or (policy and "delete" not in policy):
            return KafkaErrorCode.POLICY_VIOLATION
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            return KafkaErrorCode.OFFSET_OUT_OF_RANGE
        if self.log is not None and target > self.log.log_start_offset:
            error = self.log.delete_records_before(target)
            self.complete_delayed_fetches()
            return error
        return 0

    def complete_delayed_fetches(self) -> None:
        """Complete all delayed fetches with the records that exist."""
        for mark in self.replica_sessions:
            mark.changed()
        call_each(DelayedFetch.force_complete, list(self.delayed_fetches))

    def log_start_moved(self) -> None:
        """Let the followers know the log start that retention has moved, with their next responses."""
        for mark in self.replica_sessions:
            mark.visit_next()
