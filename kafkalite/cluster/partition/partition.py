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
6. After an unexpected exception every append is finished, by what is known of the log: NOT_APPENDED where its batch was
   never queued or was taken back, UNCONFIRMED behind its write. The queue continues, and the exception is reported to
   the host. An exception of a callback is raised after the others.
7. The ISR is this replica alone, as a partition has one replica (`state/controller/partitions/isr_elections`).
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from kafkalite.callbacks import call_all, call_each
from kafkalite.clock import Clock, Offload, Outcome, Raised
from kafkalite.cluster.metadata.image import NO_LEADER, PartitionImage
from kafkalite.cluster.partition.append import Append, AppendAwaitingFlush, OwnAppend
from kafkalite.cluster.partition.state import NEVER, NOT_LEADER, PartitionState
from kafkalite.cluster.partition.validation import LoopBudget, append_to_log, validate_now, validate_on_loop
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ACKS_ALL
from kafkalite.records import BatchError, ValidationResult
from kafkalite.records.batch_header import HEADER_SIZE
from kafkalite.storage.flush.flusher import Flusher
from kafkalite.storage.log.log import Log

WRITE_EARLY_BYTES = 256 * 1024  # beyond this, the received bytes leave the CPU cache before they are written (measured)
ACKS_NONE = 0
BASE_SEQUENCE = slice(53, 57)  # of a batch
FIRST = bytes(4)  # base sequence 0: the first batch of its producer
REFUSED_MAX = 100  # headers of first batches


class PartitionHost(Protocol):
    """The part of the broker that a partition uses."""

    clock: Clock
    offload: Offload
    flusher: Flusher
    loop_budget: LoopBudget  # shared by all partitions
    report: Raised  # logs an exception that has ended an append

    def mark_dirty(self, partition: "Partition") -> None:
        """Call `partition.write()` at the end of the loop iteration."""

    def open_log(self, partition: "Partition", opened: Callable[[Log | int], None]) -> None:
        """Create the files of a partition that has none yet; `opened` receives the log or a Kafka error code."""


class Partition(PartitionState):
    """A replica of a partition, led by this broker until `follow` is called.

    Arguments:
        topic, topic_id, index, config, leader_epoch, isr, replicas: see `PartitionState`.
        host: the broker.
    """

    __slots__ = ("_host",)

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
        super().__init__(topic, topic_id, index, config, leader_epoch, isr, replicas)
        self._host = host

    # Appending.

    def append(self, append: Append) -> None:
        """Append one batch; `append` is finished now, at the end of the loop iteration, or later."""
        try:
            if self._queue or self._in_job:
                append.keep()
                self._enqueue(append)
            else:
                self._validate_and_append(append)
        except Exception as error:
            self._failed(append, error)

    def append_internal(self, append: OwnAppend) -> None:
        """Append a batch that the broker created; as `append`."""
        try:
            if self._queue or self._in_job:
                self._enqueue(append)
            else:
                self._append_own(append)
        except Exception as error:
            self._failed(append, error)

    def _append_own(self, append: Append) -> None:
        if self.error:
            append.reject(self.error)
        elif self.log is None:
            self._open_for(append)
        else:
            self._append_validated(append, None)

    def _failed(self, append: Append, error: Exception) -> None:
        """Finish an append after an unexpected exception; the log does not have it."""
        if append.finished:  # its callback has raised
            raise error
        try:
            self._host.report(f"append to {self.topic}-{self.index}", error)
            if self.log is not None:
                self.log.expect_first(append.batch)
        finally:
            append.fail()

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
        log = self.log
        assert log is not None
        try:
            if append_to_log(append, validation, log, self.leader_epoch):
                if not self._unwritten:
                    self._host.mark_dirty(self)
                self._unwritten.append(append)
                if log.pending_bytes > WRITE_EARLY_BYTES:
                    self.write()
        except Exception:
            if not append.finished:
                self._take_back(append, log)
            raise

    def _take_back(self, append: Append, log: Log) -> None:
        """Undo the append of a batch after an exception. If the log has queued it, all queued batches are undone."""
        queued = {each.base_offset for each in self._unwritten if each.base_offset >= log.log_end_offset}
        if append in self._unwritten or log.queued != len(queued):
            unwritten, self._unwritten = self._unwritten, []
            abandon(log, [each for each in unwritten if each is not append])

    def write(self) -> None:
        """Write all queued appends with one system call and finish them."""
        if not self._unwritten:
            return
        unwritten, self._unwritten = self._unwritten, []
        log = self.log
        assert log is not None
        size = log.pending_bytes
        try:
            error = log.write()
        except Exception as failure:
            self._host.report(f"append to {self.topic}-{self.index}", failure)
            abandon(log, unwritten)
            return
        try:
            if error:
                call_each(lambda append: append.reject(error), unwritten)
            else:
                self._written(unwritten, log, size)
        except Exception as failure:
            self._broken_behind_write(unwritten, failure)

    def abandon_unwritten(self) -> None:
        """Fail the appends that `write` has not finished because it was not reached: their memory is used again."""
        unwritten, self._unwritten = self._unwritten, []
        if self.log is not None:
            abandon(self.log, unwritten)

    def _written(self, appends: list[Append], log: Log, size: int) -> None:
        if log.log_end_offset >= self._flush_at:
            self._await_flush(appends, log, size)
        else:
            self._readable(appends, log, log.log_end_offset, size)

    def _broken_behind_write(self, appends: list[Append], error: Exception) -> None:
        """Finish appends after an unexpected exception: the log has them, and they may not be on the disk."""
        held = {append for awaiting in self._held for append in awaiting.appends}
        unfinished = [append for append in appends if not append.finished and append not in held]
        if not unfinished:  # a callback has raised
            raise error
        self._host.report(f"append to {self.topic}-{self.index}", error)
        call_each(Append.fail_unconfirmed, unfinished)

    def _readable(self, appends: list[Append], log: Log, end_offset: int, size: int) -> None:
        self.high_watermark = end_offset
        log_start_offset = log.log_start_offset
        for append in appends:
            append.log_start_offset = log_start_offset
        finish = appends[0].finish if len(appends) == 1 else partial(call_each, Append.finish, appends)
        call_all(finish, partial(self._readable_grew, size))

    def _readable_grew(self, size: int) -> None:
        try:
            if self.log is not None and self.log.has_unstable_records:
                self._unstable_grew(size)
            elif self.delayed_fetches:
                call_each(lambda waiter: waiter.bytes_appended(size), list(self.delayed_fetches))
        except Exception as error:  # the appends have succeeded
            self._host.report(f"append to {self.topic}-{self.index}", error)

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
        if self._held and self._held[0].needs <= log.recovery_point:  # an exception has lost the end of a flush
            self._flushed(0)
        flush = end - max(self._flush_requested, log.recovery_point) >= self.config.flush_messages
        if not flush and not self._held:  # another flush has included them
            self._plan_flush()
            self._readable(appends, log, end, size)
            return
        requested = self._flush_requested
        if flush:
            self._flush_requested = end
        unanswered = [append for append in appends if append.required_acks == ACKS_NONE]
        if unanswered:
            appends = [append for append in appends if append.required_acks != ACKS_NONE]
        held = AppendAwaitingFlush(self._flush_requested, end, size, appends)
        self._held.append(held)
        self._flush_at = 0
        try:
            if flush:
                self._host.flusher.request_flush(log, self._flushed)
        except Exception:  # no flush is coming: the next append requests one for all
            self._flush_requested = requested
            if held in self._held:
                self._held.remove(held)
            self._plan_flush()
            raise
        call_each(Append.finish, unanswered)

    def _flushed(self, error: int) -> None:
        """A flush of this log has ended, with a Kafka error code or 0."""
        if error:
            self._reject_awaiting_flush(error)
            return
        assert self.log is not None
        log, free = self.log, list[AppendAwaitingFlush]()
        while self._held and self._held[0].needs <= log.recovery_point:
            free.append(self._held.popleft())
        try:
            self._plan_flush()
            call_each(lambda awaiting: self._readable(awaiting.appends, log, awaiting.end, awaiting.size), free)
        except Exception as failure:
            self._broken_behind_write([append for awaiting in free for append in awaiting.appends], failure)

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

    def _enqueue(self, append: Append) -> None:
        """Append it behind those in the queue."""
        self._queue.append(append)
        if not self._in_job:  # an exception has stopped the queue
            self._return()

    def _open_for(self, append: Append) -> None:
        self._leave(append, partial(self._host.open_log, self, self._opened))

    def _opened(self, opened: Log | int) -> None:
        try:
            if isinstance(opened, int):
                self._refuse_queued(opened)
            else:
                self.log = opened
                call_each(opened.expect_first, self._refused)
                self._refused = ()
                self._plan_flush()
        finally:
            self._in_job = False
            self._return()

    def _refuse_queued(self, error: int) -> None:
        """Reject the queued appends, because the log cannot be opened; the next append tries again."""
        queue, self._queue = self._queue, deque()
        headers = [bytes(append.batch[:HEADER_SIZE]) for append in queue if append.batch[BASE_SEQUENCE] == FIRST]
        self._refused = tuple(dict.fromkeys((*self._refused, *headers)))[-REFUSED_MAX:]
        call_each(lambda append: append.reject(error), queue)

    def _validate_in_job(self, append: Append) -> None:
        rules, now_ms = self._rules, self._host.clock.wall_ms()
        self._leave(append, partial(self._host.offload.run, validate_now, append, rules, now_ms, done=self._validated))

    def _validated(self, outcome: Outcome) -> None:
        try:
            self._append_in_job_order(self._queue.popleft(), outcome)
        finally:
            self._in_job = False
            self._return()

    def _append_in_job_order(self, append: Append, outcome: Outcome) -> None:
        try:
            if self.error:
                append.reject(self.error)
            validation = outcome.result()  # an unexpected exception of the job is raised after the append was rejected
            if not self.error:
                self._append_validated(append, validation)
        except Exception as error:
            self._failed(append, error)

    def _leave(self, append: Append, go: Callable[[], object]) -> None:
        """Start a job for `append` with `go`; an exception of `go` means that it was not started."""
        append.keep()
        self._queue.appendleft(append)
        self._in_job = True
        try:
            go()
        except Exception:
            if self._queue and self._queue[0] is append:
                self._queue.popleft()
                self._in_job = False
            raise

    def _return(self) -> None:
        """Continue with the queued appends, until the next one needs a job."""
        if self._paused is not None:
            self._begin_pause(self._paused)
            return
        call_all(partial(call_each, self._append_queued, self._queued()), self.write, self._host.flusher.begin)

    def _append_queued(self, append: Append) -> None:
        try:
            if append.own:
                self._append_own(append)
            else:
                self._validate_and_append(append)
        except Exception as error:
            self._failed(append, error)

    def _queued(self) -> Iterator[Append]:
        while self._queue and not self._in_job:
            yield self._queue.popleft()

    # Moves of the log to another log directory.

    def open(self, opened: Callable[[int], object]) -> None:
        """Open the log, also without an append; `opened` receives 0 or a Kafka error code."""
        if self.error or self.log is not None:
            opened(self.error)
        elif self._in_job:
            opened(KafkaErrorCode.REPLICA_NOT_AVAILABLE)
        else:
            self._in_job = True
            try:
                self._host.open_log(self, partial(self._opened_first, opened))
            except Exception:
                self._in_job = False
                raise

    def _opened_first(self, then: Callable[[int], object], opened: Log | int) -> None:
        call_all(partial(self._opened, opened), partial(then, opened if isinstance(opened, int) else 0))

    def pause(self, paused: Callable[[], object]) -> None:
        """Queue all appends until `resume`; `paused` is called when no append is in progress or unwritten."""
        self._paused = paused
        if not self._in_job:
            self._begin_pause(paused)

    def _begin_pause(self, paused: Callable[[], object]) -> None:
        self._in_job = True
        call_all(self.write, paused)

    def resume(self) -> None:
        """Continue with the queued appends after `pause`."""
        self._paused = None
        self._in_job = False
        self._return()

    # Leadership in a cluster.

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
        if log.moving:  # it was not hosted when the swap began
            self._in_job = True

    def configure(self, config: TopicConfig) -> None:
        """Use new settings from the next request on."""
        self._use(config)
        if self.log is not None:
            self.log.config = config
        self._plan_flush()

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


def abandon(log: Log, appends: list[Append]) -> None:
    """Undo what the log has queued after an exception, and fail these appends, whichever of them it has queued."""
    try:
        log.abandon()
    finally:
        call_each(Append.fail, appends)
