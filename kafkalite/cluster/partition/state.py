"""The state of a hosted replica of a partition: its leader, its log and its settings, and what readers see of it."""

from collections import deque
from collections.abc import Callable

from kafkalite.callbacks import call_each
from kafkalite.cluster.metadata.image import NO_LEADER
from kafkalite.cluster.partition.append import Append, AppendAwaitingFlush
from kafkalite.cluster.partition.purgatory import DelayedFetch
from kafkalite.cluster.partition.validation import BatchRules
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage.log.log import Log

NOT_LEADER = KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
NEVER = 2**63 - 1


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
    """

    __slots__ = (
        "_flush_at",
        "_flush_requested",
        "_held",
        "_in_job",
        "_paused",
        "_queue",
        "_refused",
        "_replicas",
        "_replicas_min",
        "_rules",
        "_stable",
        "_unwritten",
        "config",
        "delayed_fetches",
        "error",
        "high_watermark",
        "index",
        "isr",
        "leader",
        "leader_epoch",
        "log",
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
        self._use(config)
        self.leader_epoch = leader_epoch
        self.isr = isr
        self.leader = NO_LEADER
        self.log: Log | None = None
        self.error = 0
        self.high_watermark = 0
        self.delayed_fetches: dict[DelayedFetch, None] = {}
        self._in_job = False
        self._paused: Callable[[], object] | None = None  # appends are to be paused, or are
        self._queue: deque[Append] = deque()
        self._refused: tuple[bytes, ...] = ()  # headers of first batches, rejected before there was a log
        self._unwritten: list[Append] = []
        self._held: deque[AppendAwaitingFlush] = deque()
        self._flush_requested = 0  # a flush up to this offset was requested
        self._flush_at = NEVER  # from this log end offset on, appends wait for a flush
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
        older = current_leader_epoch < self.leader_epoch
        return KafkaErrorCode.FENCED_LEADER_EPOCH if older else KafkaErrorCode.UNKNOWN_LEADER_EPOCH

    @property
    def defect(self) -> int:
        """The error of a partition that is deleted or offline; 0 for one that can be led, here or elsewhere."""
        return 0 if self.error == NOT_LEADER else self.error

    def _use(self, config: TopicConfig) -> None:
        self.config = config
        self._rules = BatchRules(config)
        self._replicas_min = min(config.min_insync_replicas, self._replicas)  # Partition.effectiveMinIsr

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
        call_each(DelayedFetch.force_complete, list(self.delayed_fetches))
