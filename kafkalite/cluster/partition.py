"""One hosted replica of a partition: what may be appended, what may be read, and who waits for either.

Laws:
1. Appends happen in arrival order. While one is outside the loop (a large batch being decompressed, the log being
   opened), later ones queue behind it.
2. An append is queued on the log without a system call; `write`, at the end of the pass, brings all of them to the
   file at once and finishes them. If that write fails, every append of the pass on this partition fails.
3. Readers see only what is below the high watermark.
4. A partition with an `error` (offline, deleted) refuses everything with that code and wakes whoever waits.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from kafkalite.clock import Clock, Offload, Outcome
from kafkalite.cluster.append import Append
from kafkalite.cluster.checks import BatchRules, admit, inspect_now, inspect_on_loop
from kafkalite.cluster.waiters import FetchWaiter
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import BatchError, Inspection
from kafkalite.storage.log import Log

WRITE_EARLY_BYTES = 256 * 1024  # beyond this, gathering more makes the received bytes go cold (measured)
ACKS_ALL = -1


class Host(Protocol):
    """What a partition needs of the broker that hosts it."""

    clock: Clock
    offload: Offload

    def mark_dirty(self, partition: "Partition") -> None:
        """Have `partition.write()` called when the pass ends."""

    def open_log(self, partition: "Partition", opened: Callable[[Log | int], None]) -> None:
        """Make the files of a partition that has none yet; `opened` gets the log or a Kafka error code."""


class Partition:
    """A replica led by this broker.

    Arguments:
        topic, topic_id, index: which partition; the id is 16 bytes.
        config: the topic's settings; replaced whole by `configure`.
        host: the broker around it.
        log: its log, or None while it has no files yet.
    """

    __slots__ = (
        "_host",
        "_outside",
        "_queue",
        "_rules",
        "_unwritten",
        "config",
        "error",
        "fetch_waiters",
        "high_watermark",
        "index",
        "isr",
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
        host: Host,
        leader_epoch: int,
        isr: tuple[int, ...],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.config = config
        self._rules = BatchRules(config)
        self.leader_epoch = leader_epoch
        self.isr = isr
        self.log: Log | None = None
        self.error = 0
        self.high_watermark = 0
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        self._host = host
        self._outside = False
        self._queue: deque[Append] = deque()
        self._unwritten: list[Append] = []

    # What a reader may ask.

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset if self.log is not None else 0

    @property
    def last_stable_offset(self) -> int:
        """Up to where a read_committed reader sees: the high watermark until transactions are served."""
        return self.high_watermark

    def check_leader_epoch(self, current_leader_epoch: int) -> int:
        """Compare a client's epoch (-1 = not given) with ours: 0, FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH
        (KIP-320).
        """
        if self.error or current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return self.error
        older = current_leader_epoch < self.leader_epoch
        return KafkaErrorCode.FENCED_LEADER_EPOCH if older else KafkaErrorCode.UNKNOWN_LEADER_EPOCH

    # Appending.

    def append(self, append: Append) -> None:
        """Take one batch; `append` is finished now, at the end of the pass, or later."""
        if self._outside:
            append.keep()
            self._queue.append(append)
        else:
            self._take(append)

    def _take(self, append: Append) -> None:
        if self.error:
            append.refuse(self.error)
        elif append.required_acks == ACKS_ALL and len(self.isr) < self._rules.replicas_min:
            append.refuse(KafkaErrorCode.NOT_ENOUGH_REPLICAS)
        elif self.log is None:
            self._open_for(append)
        else:
            inspection = inspect_on_loop(append, self._rules, self._host.clock.wall_ms())
            if inspection is None:
                self._inspect_outside(append)
            else:
                self._admit(append, inspection)

    def _admit(self, append: Append, inspection: Inspection | BatchError) -> None:
        assert self.log is not None
        if not admit(append, inspection, self.log, self.leader_epoch):
            return
        if not self._unwritten:
            self._host.mark_dirty(self)
        self._unwritten.append(append)
        if self.log.pending_bytes > WRITE_EARLY_BYTES:
            self.write()

    def write(self) -> None:
        """Bring everything queued to the file with one system call and finish those appends."""
        if not self._unwritten:
            return
        assert self.log is not None
        unwritten, self._unwritten = self._unwritten, []
        size = self.log.pending_bytes
        error = self.log.write()
        if not error:
            self.high_watermark = self.log.log_end_offset
        log_start_offset = self.log.log_start_offset
        for append in unwritten:
            if error:
                append.refuse(error)
            else:
                append.log_start_offset = log_start_offset
                append.finish()
        if self.fetch_waiters and not error:
            self._readable_grew(size)

    def _readable_grew(self, size: int) -> None:
        for waiter in list(self.fetch_waiters):
            waiter.grown(size)

    # Leaving the loop and coming back.

    def _open_for(self, append: Append) -> None:
        self._leave(append)
        self._host.open_log(self, self._opened)

    def _opened(self, opened: Log | int) -> None:
        if isinstance(opened, int):
            self._refuse_queued(opened)
        else:
            self.log = opened
        self._return()

    def _refuse_queued(self, error: int) -> None:
        """There is no log to append to; whoever comes later tries again (a full disk may have room then)."""
        queue, self._queue = self._queue, deque()
        for append in queue:
            append.refuse(error)

    def _inspect_outside(self, append: Append) -> None:
        self._leave(append)
        rules, now_ms = self._rules, self._host.clock.wall_ms()
        self._host.offload.run(inspect_now, append, rules, now_ms, done=self._inspected)

    def _inspected(self, outcome: Outcome) -> None:
        append = self._queue.popleft()
        if self.error:
            append.refuse(self.error)
        elif outcome.error is None:
            self._admit(append, outcome.value)
        else:
            append.refuse(KafkaErrorCode.UNKNOWN_SERVER_ERROR)
        self._return()
        outcome.result()  # what a job should never raise is reported, after everybody was served

    def _leave(self, append: Append) -> None:
        append.keep()
        self._outside = True
        self._queue.appendleft(append)

    def _return(self) -> None:
        """Serve what queued up meanwhile, until the next one must leave the loop."""
        self._outside = False
        while self._queue and not self._outside:
            self._take(self._queue.popleft())
        self.write()

    # Changes from outside.

    def adopt(self, log: Log) -> None:
        """Take a log that was found and recovered at start."""
        self.log = log
        self.high_watermark = log.log_end_offset

    def configure(self, config: TopicConfig) -> None:
        """Use new settings from the next request on."""
        self.config = config
        self._rules = BatchRules(config)
        if self.log is not None:
            self.log.config = config

    def delete_records_before(self, offset: int) -> int:
        """Move the log start (DeleteRecords); answer 0 or a Kafka error code. -1 means the high watermark."""
        if self.error:
            return self.error
        if self.config.cleanup_policy and "delete" not in self.config.cleanup_policy:
            return KafkaErrorCode.POLICY_VIOLATION
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            return KafkaErrorCode.OFFSET_OUT_OF_RANGE
        if self.log is not None and target > self.log.log_start_offset:
            error = self.log.delete_records_before(target)
            self.wake_all()
            return error
        return 0

    def close(self, error: int) -> None:
        """Stop serving: everything from now on, queued or waiting, ends with this error code."""
        self.write()
        self.error = error
        if not self._outside:
            self._return()
        self.wake_all()

    def wake_all(self) -> None:
        """Have every parked fetch look again."""
        for waiter in list(self.fetch_waiters):
            waiter.wake()
