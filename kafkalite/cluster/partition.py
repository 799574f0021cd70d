"""One hosted replica of a partition: its appends, its high watermark and its delayed fetches.

1. Appends happen in order of arrival. While a job works on an append (it decompresses a large batch or opens the log),
   later appends are queued.
2. An append is queued on the log without a system call. At the end of the loop iteration, `write` writes all of them to
   the file at once and finishes them. If that write fails, every append of this iteration to the partition fails.
3. Readers see only records below the high watermark.
4. A partition with an `error` (offline, deleted, led by another broker) rejects every request with that code and
   completes delayed fetches.
5. If flush.messages requires a flush, appends are finished, and their records can be read, only when the records are on
   the disk: they wait, in order, until the recovery point of the log has passed them. Later appends wait behind them.
   Appends with acks=0 do not wait.
6. After an exception, every append is finished, every delayed fetch is completed and the queue continues; then the
   exception is raised.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from kafkalite.callbacks import call_all, call_each
from kafkalite.clock import Clock, Offload, Outcome
from kafkalite.cluster.append import Append, OwnAppend
from kafkalite.cluster.image import NO_LEADER, PartitionImage
from kafkalite.cluster.purgatory import DelayedFetch
from kafkalite.cluster.validation import BatchRules, LoopBudget, append_validated, validate_now, validate_on_loop
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ACKS_ALL
from kafkalite.records import BatchError, ValidationResult
from kafkalite.storage.flush.flusher import Flusher
from kafkalite.storage.log.log import Log

WRITE_EARLY_BYTES = 256 * 1024  # beyond this, the received bytes leave the CPU cache before they are written (measured)
ACKS_NONE = 0
NOT_LEADER = KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
NEVER = 2**63 - 1


class PartitionHost(Protocol):
    """The part of the broker that a partition uses."""

    clock: Clock
    offload: Offload
    flusher: Flusher
    loop_budget: LoopBudget  # shared by all partitions

    def mark_dirty(self, partition: "Partition") -> None:
        """Call `partition.write()` at the end of the loop iteration."""

    def open_log(self, partition: "Partition", opened: Callable[[Log | int], None]) -> None:
        """Create the files of a partition that has none yet; `opened` receives the log or a Kafka error code."""


class AppendAwaitingFlush:
    """The appends of one loop iteration that wait for a flush.

    Arguments:
        needs: the recovery point from which on they can be finished.
        end: the log end offset after them, which is then the high watermark.
        size: their bytes.
        appends: the appends that are finished then.
    """

    __slots__ = ("appends", "end", "needs", "size")

    def __init__(self, needs: int, end: int, size: int, appends: list[Append]) -> None:
        self.needs = needs
        self.end = end
        self.size = size
        self.appends = appends


class Partition:
    """A replica of a partition, led by this broker until `follow` is called.

    Arguments:
        topic, topic_id, index: of the partition; the id is 16 bytes.
        config: the settings of the topic; replaced by `configure`.
        host: the broker.
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
        "_host",
        "_in_job",
        "_queue",
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
        host: PartitionHost,
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
        self._host = host
        self._in_job = False
        self._queue: deque[Append] = deque()
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

    # Appending.

    def append(self, append: Append) -> None:
        """Append one batch; `append` is finished now, at the end of the loop iteration, or later."""
        if self._in_job:
            append.keep()
            self._queue.append(append)
        else:
            self._append_now(append)

    def append_internal(self, append: OwnAppend) -> None:
        """Append a batch that the broker created; as `append`."""
        if self._in_job:
            self._queue.append(append)
        else:
            self._append_own(append)

    def _append_own(self, append: Append) -> None:
        try:
            if self.error:
                append.reject(self.error)
            elif self.log is None:
                self._open_for(append)
            else:
                self._append_validated(append, None)
        except Exception:
            append.fail()
            raise

    def _append_now(self, append: Append) -> None:
        try:
            self._validate_and_append(append)
        except Exception:
            append.fail()
            raise

    def _validate_and_append(self, append: Append) -> None:
        if self.error:
            append.reject(self.error)
        elif append.required_acks == ACKS_ALL and len(self.isr) < self._replicas_min:
            append.reject(KafkaErrorCode.NOT_ENOUGH_REPLICAS)
        elif self.log is None:
            self._open_for(append)
        else:
            validation = validate_on_loop(append, self._rules, self._host.clock.wall_ms(), self._host.loop_budget)
            if validation is None:
                self._validate_in_job(append)
            else:
                self._append_validated(append, validation)

    def _append_validated(self, append: Append, validation: ValidationResult | BatchError | None) -> None:
        assert self.log is not None
        if not append_validated(append, validation, self.log, self.leader_epoch):
            return
        if not self._unwritten:
            self._host.mark_dirty(self)
        self._unwritten.append(append)
        if self.log.pending_bytes > WRITE_EARLY_BYTES:
            self.write()

    def write(self) -> None:
        """Write all queued appends with one system call and finish them."""
        if not self._unwritten:
            return
        assert self.log is not None
        unwritten, self._unwritten = self._unwritten, []
        size = self.log.pending_bytes
        error: int = KafkaErrorCode.UNKNOWN_SERVER_ERROR  # after an exception
        try:
            error = self.log.write()
        finally:
            if error:
                call_each(lambda append: append.reject(error), unwritten)
            else:
                self._written(unwritten, self.log, size)

    def _written(self, appends: list[Append], log: Log, size: int) -> None:
        if log.log_end_offset >= self._flush_at:
            self._await_flush(appends, log, size)
        else:
            self._readable(appends, log, log.log_end_offset, size)

    def _readable(self, appends: list[Append], log: Log, end_offset: int, size: int) -> None:
        self.high_watermark = end_offset
        log_start_offset = log.log_start_offset
        for append in appends:
            append.log_start_offset = log_start_offset
        finish = appends[0].finish if len(appends) == 1 else partial(call_each, Append.finish, appends)
        call_all(finish, partial(self._readable_grew, size))

    def _readable_grew(self, size: int) -> None:
        if self.log is not None and self.log.has_unstable_records:
            self._unstable_grew(size)
        elif self.delayed_fetches:
            call_each(lambda waiter: waiter.bytes_appended(size), list(self.delayed_fetches))

    def _unstable_grew(self, size: int) -> None:
        stable, before = self.last_stable_offset, self._stable
        self._stable = stable
        call_each(
            lambda waiter: waiter.unstable_bytes_appended(size, stable_moved=stable > before),
            list(self.delayed_fetches),
        )

    # Waiting for a flush.

    def _await_flush(self, appends: list[Append], log: Log, size: int) -> None:
        """Finish these appends after the flush that flush.messages requires.

        Arguments:
            appends: the appends that were written.
            log: of this partition.
            size: their bytes.
        """
        end = log.log_end_offset
        flush = end - max(self._flush_requested, log.recovery_point) >= self.config.flush_messages
        if not flush and not self._held:  # another flush has included them
            self._plan_flush()
            self._readable(appends, log, end, size)
            return
        if flush:
            self._flush_requested = end
        unanswered = [append for append in appends if append.required_acks == ACKS_NONE]
        if unanswered:
            appends = [append for append in appends if append.required_acks != ACKS_NONE]
        self._held.append(AppendAwaitingFlush(self._flush_requested, end, size, appends))
        self._flush_at = 0
        if flush:
            self._host.flusher.request_flush(log, self._flushed)
        call_each(Append.finish, unanswered)

    def _flushed(self, error: int) -> None:
        """A flush of this log has ended, with a Kafka error code or 0."""
        if error:
            self._reject_awaiting_flush(error)
            return
        assert self.log is not None
        log, free = self.log, []
        while self._held and self._held[0].needs <= log.recovery_point:
            free.append(self._held.popleft())
        self._plan_flush()
        call_each(lambda awaiting: self._readable(awaiting.appends, log, awaiting.end, awaiting.size), free)

    def _reject_awaiting_flush(self, error: int) -> None:
        awaiting, self._held = self._held, deque()
        call_each(lambda append: append.reject(error), [append for one in awaiting for append in one.appends])

    def _plan_flush(self) -> None:
        """Compute the offset from which on appends wait for a flush, so that `write` compares one number."""
        if self._held:
            self._flush_at = 0
        elif self.log is None or self.config.flush_messages == NEVER:
            self._flush_at = NEVER
        else:
            self._flush_at = self.log.recovery_point + self.config.flush_messages

    # Appends that a job works on.

    def _open_for(self, append: Append) -> None:
        self._leave(append, partial(self._host.open_log, self, self._opened))

    def _opened(self, opened: Log | int) -> None:
        if isinstance(opened, int):
            call_all(partial(self._refuse_queued, opened), self._return)
        else:
            self.log = opened
            self._plan_flush()
            self._return()

    def _refuse_queued(self, error: int) -> None:
        """Reject the queued appends, because the log cannot be opened; the next append tries again."""
        queue, self._queue = self._queue, deque()
        call_each(lambda append: append.reject(error), queue)

    def _validate_in_job(self, append: Append) -> None:
        rules, now_ms = self._rules, self._host.clock.wall_ms()
        self._leave(append, partial(self._host.offload.run, validate_now, append, rules, now_ms, done=self._validated))

    def _validated(self, outcome: Outcome) -> None:
        append = self._queue.popleft()
        call_all(partial(self._append_in_job_order, append, outcome), self._return)

    def _append_in_job_order(self, append: Append, outcome: Outcome) -> None:
        try:
            if self.error:
                append.reject(self.error)
            validation = outcome.result()  # an unexpected exception of the job is raised after the append was rejected
            if not self.error:
                self._append_validated(append, validation)
        except Exception:
            append.fail()
            raise

    def _leave(self, append: Append, go: Callable[[], object]) -> None:
        """Start a job for `append` with `go`; an exception of `go` means that it was not started."""
        append.keep()
        self._in_job = True
        self._queue.appendleft(append)
        try:
            go()
        except Exception:
            if self._queue and self._queue[0] is append:
                self._queue.popleft()
                self._in_job = False
            raise

    def _return(self) -> None:
        """Continue with the queued appends, until the next one needs a job."""
        self._in_job = False
        call_all(partial(call_each, self._append_queued, self._queued()), self.write, self._host.flusher.begin)

    def _append_queued(self, append: Append) -> None:
        if append.own:
            self._append_own(append)
        else:
            self._append_now(append)

    def _queued(self) -> Iterator[Append]:
        while self._queue and not self._in_job:
            yield self._queue.popleft()

    # Leadership in a cluster.

    @property
    def defect(self) -> int:
        """The error of a partition that is deleted or offline; 0 for one that can be led, here or elsewhere."""
        return 0 if self.error == NOT_LEADER else self.error

    def lead(self, state: PartitionImage, ready: Callable[[], object]) -> None:
        """Accept requests, in the leader epoch of this state. All records of the log can be read: it is the only one.

        Arguments:
            state: the leader is this broker.
            ready: called when all these records can be read: now, or after the flush that some need (rule 5); never if
                the leadership ends before.
        """
        self.write()  # in the epoch before
        self._assign(state)
        self.error = 0
        log = self.log
        if log is None or log.log_end_offset <= self.high_watermark or self._held:
            ready()
        elif self.config.flush_messages == NEVER or log.recovery_point >= log.log_end_offset:
            self.high_watermark = log.log_end_offset
            ready()
        else:
            self._flush_tail(log, ready)

    def _flush_tail(self, log: Log, ready: Callable[[], object]) -> None:
        """Flush the records above the high watermark, whose appends have failed when the leadership ended."""
        end = self._flush_requested = log.log_end_offset
        self._flush_at = 0

        def flushed(append: Append) -> None:
            if not append.error:
                ready()

        self._held.append(AppendAwaitingFlush(end, end, 0, [OwnAppend(bytearray(), flushed)]))
        self._host.flusher.request_flush(log, self._flushed)

    def follow(self, state: PartitionImage) -> None:
        """Reject requests with NOT_LEADER_OR_FOLLOWER: another broker leads the partition, or none does."""
        if not self.error:
            self.close(NOT_LEADER)
        self._assign(state)

    def resign(self) -> None:
        """Reject requests with NOT_LEADER_OR_FOLLOWER, until the controller assigns a leader again."""
        if not self.error:
            self.close(NOT_LEADER)
        self.leader = NO_LEADER

    def _assign(self, state: PartitionImage) -> None:
        self.leader, self.leader_epoch, self.isr = state.leader, state.leader_epoch, state.isr
        self._replicas = len(state.replicas)
        self._use(self.config)

    # Changes from outside.

    def adopt(self, log: Log) -> None:
        """Use a log that was recovered at the start."""
        self.log = log
        self.high_watermark = log.log_end_offset
        self._plan_flush()

    def configure(self, config: TopicConfig) -> None:
        """Use new settings from the next request on."""
        self._use(config)
        if self.log is not None:
            self.log.config = config
        self._plan_flush()

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

    def close(self, error: int) -> None:
        """Reject all queued and later requests with this error code."""
        if not (self._in_job or self._unwritten or self._held or self._queue or self.delayed_fetches):
            self.error = error  # the usual case for a topic with thousands of partitions
            return
        try:
            self.write()
        finally:
            self.error = error
            refuse_held = partial(self._reject_awaiting_flush, error)
            call_all(refuse_held, *(() if self._in_job else (self._return,)), self.complete_delayed_fetches)

    def complete_delayed_fetches(self) -> None:
        """Complete all delayed fetches with the records that exist."""
        call_each(DelayedFetch.force_complete, list(self.delayed_fetches))
