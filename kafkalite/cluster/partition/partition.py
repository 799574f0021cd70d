"""One hosted replica of a partition: its appends, its high watermark and its delayed fetches.

1. Appends happen in order of arrival. While a job works on an append (it decompresses a large batch or opens the log),
   later appends are queued.
2. An append is queued on the log without a system call. At the end of the loop iteration, `write` writes all of them to
   the file at once and finishes them. If that write fails, every append of this iteration to the partition fails.
3. Readers see only records below the high watermark.
4. A partition has a `role`: leader, follower or none. Only a leader accepts requests of clients; otherwise there is an
   `error` (offline, deleted, led by another broker) with which all are rejected, and delayed fetches are completed.
   The role may change at any time. Appends that are held, queued or in a job are finished with the error then, also if
   the partition is led again before a job ends; the log may have the batches of those held.
5. Appends that a flush or other replicas must confirm are held by `leader.Leader`. Appends with acks=0 do not wait.
6. A transactional batch whose producer has no open transaction here waits for the coordinator (`verification`). Batches
   of other producers are appended meanwhile.
7. After an unexpected exception every append is finished, by what is known of the log: NOT_APPENDED where its batch was
   never queued or was taken back, UNCONFIRMED behind its write. The queue continues, and the exception is reported to
   the host. An exception of a callback is raised after the others.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kafkalite.callbacks import call_all, call_each
from kafkalite.clock import Offload, Outcome
from kafkalite.cluster.metadata.image import NO_LEADER, PartitionImage
from kafkalite.cluster.partition.append import Append, OwnAppend, WaitingBatch
from kafkalite.cluster.partition.delayed_fetch import DelayedFetch
from kafkalite.cluster.partition.follower import Follower
from kafkalite.cluster.partition.leader import Leader, LeaderHost, finish_unconfirmed
from kafkalite.cluster.partition.state import NO_HIGH_WATERMARK, NOT_LEADER, PartitionState
from kafkalite.cluster.partition.validation import LoopBudget, append_to_log, validate_now, validate_on_loop
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ACKS_ALL
from kafkalite.records import BatchError, ValidationResult
from kafkalite.records.batch_header import HEADER_SIZE
from kafkalite.storage.log.log import Log

if TYPE_CHECKING:  # imported with the first transactional batch
    from kafkalite._speedups.storage.producer_state import Verification
    from kafkalite.cluster.partition.verification import TransactionChecks, WaitingBatches

WRITE_EARLY_BYTES = 256 * 1024  # beyond this, the received bytes leave the CPU cache before they are written (measured)
BASE_SEQUENCE = slice(53, 57)  # of a batch
FIRST = bytes(4)  # base sequence 0: the first batch of its producer
REFUSED_MAX = 100  # headers of first batches


class PartitionHost(LeaderHost, Protocol):
    """The part of the broker that a partition uses."""

    offload: Offload
    loop_budget: LoopBudget  # shared by all partitions

    @property
    def transaction_checks(self) -> "TransactionChecks":
        """Asks the coordinators of transactions."""

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

    __slots__ = ("_host", "_waiting")

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
        self._waiting: WaitingBatches | None = None  # until the first batch waits for the transaction coordinator
        self.role = Leader(self, host)

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
        elif len(self.isr) < self.replicas_min:
            append.reject(KafkaErrorCode.NOT_ENOUGH_REPLICAS)
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
        elif append.required_acks == ACKS_ALL and len(self.isr) < self.replicas_min:
            append.reject(KafkaErrorCode.NOT_ENOUGH_REPLICAS)
        elif self.log is None:
            self._open_for(append)
        else:
            validation = validate_on_loop(append, self._rules, self._host.clock.wall_ms(), self._host.loop_budget)
            if validation is None:
                self._validate_in_job(append)
            else:
                self._append_validated(append, validation)

    def _append_validated(
        self,
        append: Append,
        validation: ValidationResult | BatchError | None,
        verification: "Verification | None" = None,
    ) -> None:
        log = self.log
        assert log is not None
        try:
            appended = append_to_log(append, validation, log, self, verification)
            if appended:
                if not self._unwritten:
                    self._host.mark_dirty(self)
                self._unwritten.append(append)
                if log.pending_bytes > WRITE_EARLY_BYTES:
                    self.write()
            elif appended is None and isinstance(validation, ValidationResult):
                self._verify(append, validation)
        except Exception:
            if not append.finished:
                self._take_back(append, log)
            raise

    def _verify(self, append: Append, validation: ValidationResult) -> None:
        """Let a transactional batch wait for the coordinator, because its producer has no open transaction here."""
        if self._waiting is None:
            from kafkalite.cluster.partition.verification import WaitingBatches

            self._waiting = WaitingBatches(self, self._host.transaction_checks)
        self._waiting.add(append, validation)

    @property
    def is_in_job(self) -> bool:
        """Whether a job works on an append or on the log, or the appends are paused."""
        return self._in_job

    @property
    def queues_appends(self) -> bool:
        """Whether an append would wait in the queue now."""
        return self._in_job or bool(self._queue)

    def append_waiting(self, append: Append) -> None:
        """Continue an append that has waited for the coordinator: behind those in the queue while a job is running."""
        if self._in_job:
            self._queue.append(append)
        else:
            self._append_queued(append)

    def _append_checked(self, append: Append, waiting: WaitingBatch) -> None:
        if self.error:
            append.reject(self.error)
        elif append.required_acks == ACKS_ALL and len(self.isr) < self.replicas_min:
            append.reject(KafkaErrorCode.NOT_ENOUGH_REPLICAS)
        else:
            self._append_validated(append, waiting.validation, waiting.verification)

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
            elif log.log_end_offset >= self.hold_at:
                self._hold(unwritten, log, size)
            else:
                self.answer(unwritten, log, log.log_end_offset, size)
        except Exception as failure:
            self._broken_behind_write(unwritten, failure)

    def abandon_unwritten(self) -> None:
        """Fail the appends that `write` has not finished because it was not reached: their memory is used again."""
        unwritten, self._unwritten = self._unwritten, []
        if self.log is not None:
            abandon(self.log, unwritten)

    def _hold(self, appends: list[Append], log: Log, size: int) -> None:
        leader = self.role
        assert isinstance(leader, Leader), "without it, `error` has rejected these appends"
        for mark in self.replica_sessions:
            mark.log_end_moved()
        leader.hold(appends, log, size)

    def _broken_behind_write(self, appends: list[Append], error: Exception) -> None:
        """Finish appends after an unexpected exception: the log has them, and they may not be committed."""
        if isinstance(self.role, Leader):
            self.role.finish_written(appends, error)
        else:
            finish_unconfirmed([append for append in appends if not append.finished], error, self._report)

    def _report(self, error: Exception) -> None:
        self._host.report(f"append to {self.topic}-{self.index}", error)

    def answer(self, appends: list[Append], log: Log, end_offset: int, size: int) -> None:
        """Finish appends whose records, and all before `end_offset`, can be read now.

        Arguments:
            appends: in the order of their offsets, at least one.
            log: of this partition.
            end_offset: the high watermark.
            size: the bytes of these records.
        """
        self.high_watermark = end_offset
        log_start_offset = log.log_start_offset
        for append in appends:
            append.log_start_offset = log_start_offset
        finish = appends[0].finish if len(appends) == 1 else partial(call_each, Append.finish, appends)
        call_all(finish, partial(self.readable_grew, size))

    def readable_grew(self, size: int) -> None:
        """Complete the delayed fetches that `size` more readable bytes satisfy; exceptions are reported."""
        try:
            if self.log is not None and self.log.has_unstable_records:
                self._unstable_grew(self.log, size)
            elif self.delayed_fetches:
                call_each(lambda waiter: waiter.bytes_appended(size), list(self.delayed_fetches))
        except Exception as error:  # the appends have succeeded
            self._host.report(f"append to {self.topic}-{self.index}", error)

    def _unstable_grew(self, log: Log, size: int) -> None:
        stable, before = log.last_stable_offset(self.high_watermark), self._stable
        self._stable = stable
        if self.delayed_fetches:
            call_each(
                lambda waiter: waiter.unstable_bytes_appended(size, stable_moved=stable > before),
                list(self.delayed_fetches),
            )

    def wake_fetches(self) -> None:
        """Complete all delayed fetches with the records that exist; exceptions are reported."""
        try:
            self.complete_delayed_fetches()
        except Exception as error:
            self._report(error)

    def follower_grew(self) -> None:
        """Complete the delayed fetches that a follower's higher high watermark satisfies; exceptions are reported."""
        try:
            if self.delayed_fetches:
                call_each(DelayedFetch.bytes_committed, list(self.delayed_fetches))
        except Exception as error:
            self._report(error)

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
                self._use_log(opened)
                call_each(opened.expect_first, self._refused)
                self._refused = ()
                if isinstance(self.role, Leader):
                    self.role.adopt(opened)
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
            error, self._job_error = self._job_error or self.error, 0
            self._append_in_job_order(self._queue.popleft(), outcome, error)
        finally:
            self._in_job = False
            self._return()

    def _append_in_job_order(self, append: Append, outcome: Outcome, error_code: int) -> None:
        try:
            if error_code:
                append.reject(error_code)
            validation = outcome.result()  # an unexpected exception of the job is raised after the append was rejected
            if not error_code:
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
        error, self._job_error = self._job_error, 0
        if error and self._queue:
            call_all(partial(self._queue.popleft().reject, error), self._return)
            return
        if self._paused is not None:
            self._begin_pause(self._paused)
            return
        steps: list[Callable[[], object]] = [partial(call_each, self._append_queued, self._queued())]
        steps += [self.write, self._write_checks, self._host.flusher.begin]
        if self._waiting is not None:
            steps.insert(0, self._waiting.job_ended)
        call_all(*steps)

    def _write_checks(self) -> None:
        if self._waiting is not None:
            self._waiting.write_pending()

    def _append_queued(self, append: Append) -> None:
        try:
            if append.own:
                self._append_own(append)
            elif isinstance(append.transaction, WaitingBatch):
                self._append_checked(append, append.transaction)
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
        if self.defect or self.log is not None:
            opened(self.defect)
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

    # Roles.

    def lead(self, state: PartitionImage, ready: Callable[[], object]) -> None:
        """Accept requests, in the leader epoch of this state.

        Arguments:
            state: the leader is this broker.
            ready: called when all records of the log can be read: now, or when the flush and the followers have them
                that `Leader` waits for; never if the leadership ends before.
        """
        self.write()  # in the epoch before
        self._assign(state)
        self.error = 0
        if not isinstance(self.role, Leader):
            self._bound_high_watermark()
            self.role = Leader(self, self._host)
        for mark in self.replica_sessions:
            mark.epoch_begins()
        self.role.begin_epoch(state, ready)
        self.wake_fetches()  # the leader epoch that they know has ended

    def leads_with(self, state: PartitionImage) -> bool:
        """Whether this broker leads the partition in the leader epoch of a state, which is newer than the known one."""
        is_same = (state.leader, state.leader_epoch) == (self.leader, self.leader_epoch)
        return is_same and isinstance(self.role, Leader) and state.partition_epoch > self.partition_epoch

    def receive_state(self, state: PartitionImage) -> None:
        """Use a state for which `leads_with` is true: another ISR, perhaps other replicas."""
        self._assign(state)
        if isinstance(self.role, Leader):
            self.role.receive_state(state)

    def follow(self, state: PartitionImage) -> None:
        """Reject requests with NOT_LEADER_OR_FOLLOWER: another broker leads the partition, or none does."""
        self._end_leadership()
        self._assign(state)
        if self.error == NOT_LEADER:
            self.role = Follower(self, state.leader)

    def resign(self) -> None:
        """Reject requests with NOT_LEADER_OR_FOLLOWER, until the controller assigns a leader again."""
        self._end_leadership()
        self.leader = NO_LEADER
        self.role = None

    def _end_leadership(self) -> None:
        if not self.error:
            self.close(NOT_LEADER)
        elif self.delayed_fetches:  # of a follower
            self.wake_fetches()

    @property
    def is_behind(self) -> bool:
        """Whether the high watermark may still be below that of the leader before (KIP-207)."""
        return isinstance(self.role, Leader) and self.role.is_behind

    @property
    def is_unconfirmed(self) -> bool:
        """Whether this broker leads, and no follower has confirmed it in this leader epoch."""
        return isinstance(self.role, Leader) and self.role.is_unconfirmed

    def _assign(self, state: PartitionImage) -> None:
        self.leader, self.leader_epoch = state.leader, state.leader_epoch
        self._replicas = len(state.replicas)
        self.use_isr(state.isr, state.partition_epoch, state.eligible)
        if self.log is not None:
            self.log.high_watermark = self.high_watermark if self._replicas > 1 else NO_HIGH_WATERMARK

    # Changes from outside.

    def adopt(self, log: Log) -> None:
        """Use a log that was recovered at the start."""
        self._use_log(log)
        if isinstance(self.role, Leader):
            self.role.adopt(log)
        if log.moving:  # it was not hosted when the swap began
            self._in_job = True

    def configure(self, config: TopicConfig) -> None:
        """Use new settings from the next request on."""
        self._use(config)
        if self.log is not None:
            self.log.config = config
        if isinstance(self.role, Leader):
            self.role.plan()
            self.role.check_minimum()

    def close(self, error: int) -> None:
        """Reject all queued and later requests with this error code; the partition has no role."""
        try:
            self.write()
        finally:
            role, self.role, self.error = self.role, None, error
            if isinstance(role, Leader):
                self._end_role(role, error)
            elif self.delayed_fetches or self.replica_sessions:
                self.complete_delayed_fetches()

    def _end_role(self, leader: Leader, error: int) -> None:
        """Reject the appends of a leader; a job still works on the first queued one, which is rejected at its end."""
        steps: list[Callable[[], object]] = [partial(leader.end, error)]
        if self._waiting is not None:
            steps.append(partial(self._waiting.reject, error))
        if self._unwritten:  # a callback has appended
            steps.append(self.abandon_unwritten)
        if self._queue:
            steps.append(partial(self._reject_queue, error))
        if self.delayed_fetches or self.replica_sessions:
            steps.append(self.complete_delayed_fetches)
        call_all(*steps)

    def _reject_queue(self, error: int) -> None:
        first = [self._queue.popleft()] if self._in_job else []
        queue, self._queue = self._queue, deque(first)
        if first:
            self._job_error = error
        call_each(lambda append: append.reject(error), queue)


def abandon(log: Log, appends: list[Append]) -> None:
    """Undo what the log has queued after an exception, and fail these appends, whichever of them it has queued."""
    try:
        log.abandon()
    finally:
        call_each(Append.fail, appends)
