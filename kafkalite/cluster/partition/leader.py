"""The role of a partition's leader: which of its records are committed, and when appends are answered.

1. The *own end* is the end of the written records; where flush.messages requires a flush, of the flushed ones.
2. The high watermark is the lowest end among the own one, the ISR with members that the controller has not confirmed
   yet, and live replicas that are caught up and may join. It never decreases. While the ISR is below the effective
   minimum, min(min.insync.replicas, replicas), or there are eligible replicas, it does not move:
   `state/isr/high_watermark`.
3. Appends with acks=1 are answered at the own end, those with acks=all at the high watermark. These end earlier with
   REQUEST_TIMED_OUT after their `timeout_ms`, and with NOT_ENOUGH_REPLICAS_AFTER_APPEND when the ISR falls below the
   minimum. Their records stay in the log, and may be committed later. A partition has one timer, for the earliest
   deadline that it knew when it set the timer.
4. With one replica and without a flush nothing is held: `Partition.write` compares the log end with `hold_at`, and
   answers at once.
5. With followers, changes of the ISR are requested from the controller (`cluster/isr`): after a fetch of a follower
   outside the ISR, and by lag checks. Their results change the ISR here; LeaderAndIsr brings other states.
6. After an unexpected exception the appends that have left the queue are finished with UNCONFIRMED; those in the queue
   are answered later, at the latest at their deadlines.

Deviation: Kafka's high watermark has stopped when the ISR is too small, so its appends time out; here, their producers
receive NOT_ENOUGH_REPLICAS_AFTER_APPEND at once. Appends of the broker itself (groups) wait.
Sources: Partition.scala (makeLeader, updateFollowerFetchState, maybeIncrementLeaderHW, checkEnoughReplicasReachOffset),
DelayedProduce.scala of Apache Kafka 3.9.
"""

import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from kafkalite.callbacks import call_all, call_each
from kafkalite.clock import Clock, Raised
from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.partition.append import Append
from kafkalite.cluster.partition.held_appends import Deadline, HeldAppends, HeldWrite
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.state.isr.high_watermark import is_awaited, lowest_end_offset, next_high_watermark
from kafkalite.state.isr.replica_progress import UNKNOWN_OFFSET, ReplicaProgress
from kafkalite.storage.flush.flusher import Flusher
from kafkalite.storage.log.log import Log

if TYPE_CHECKING:  # imported where there are followers: a broker that is alone has none
    from kafkalite.cluster.isr.isr_changes import IsrChanges
    from kafkalite.cluster.isr.isr_requests import IsrRequests
    from kafkalite.state.replica_sessions import ReplicaPartition

ACKS_NONE = 0
NEVER = 2**63 - 1
NO_FOLLOWERS: Mapping[int, ReplicaProgress] = MappingProxyType({})


class LeaderHost(Protocol):
    """The part of the broker that a leader uses.

    Attributes:
        isr_requests: requests ISR changes; None on a broker that is alone.
    """

    clock: Clock
    flusher: Flusher
    isr_requests: "IsrRequests | None"
    report: Raised  # logs an exception that has ended an append

    @property
    def replica_lag_max_ms(self) -> int:
        """How long a follower may lag (`replica.lag.time.max.ms`)."""

    def is_live(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the registration of a broker with this epoch (-1: any) is the present one."""


class LedPartition(Protocol):
    """The part of a partition that its leader uses.

    Attributes:
        hold_at: from this log end on, `hold` is called with the appends of a write.
        isr: as committed by the controller.
        replicas_min: the effective minimum of in-sync replicas.
    """

    topic: str
    topic_id: bytes
    index: int
    config: TopicConfig
    log: Log | None
    high_watermark: int
    hold_at: int
    isr: tuple[int, ...]
    replicas_min: int
    replica_sessions: "tuple[ReplicaPartition, ...]"

    def use_isr(self, isr: tuple[int, ...], partition_epoch: int, eligible: tuple[int, ...]) -> None:
        """Use the ISR and the eligible replicas of a state."""

    def answer(self, appends: list[Append], log: Log, end_offset: int, size: int) -> None:
        """Answer appends whose records, and all before `end_offset`, can be read now."""

    def readable_grew(self, size: int) -> None:
        """Complete the delayed fetches that `size` more readable bytes satisfy; exceptions are reported."""

    def wake_fetches(self) -> None:
        """Complete all delayed fetches with the records that exist; exceptions are reported."""


class ProgressWait(Protocol):
    """What waits for the followers, beside appends."""

    def check(self) -> None:
        """The progress of a follower, the replicas or the live brokers may be others."""

    def fail(self, error: int) -> None:
        """The leadership has ended, with a Kafka error code."""


class Leader:
    """The leadership of a partition, over one or more leader epochs.

    Arguments:
        partition: the partition.
        host: the broker.

    Attributes:
        followers: the progress of the other replicas, by broker id.
        epoch_start: the log end at which the leader epoch began.
        isr: the members of the ISR, also those whose addition the controller has not confirmed yet.
        progress_waits: what is checked after each fetch of a follower.
    """

    __slots__ = (
        "_deadline",
        "_ended",
        "_held",
        "_host",
        "_isr_changes",
        "_own_end",
        "_partition",
        "_ready",
        "epoch_start",
        "followers",
        "isr",
        "progress_waits",
    )

    def __init__(self, partition: LedPartition, host: LeaderHost) -> None:
        self._partition = partition
        self._host = host
        self.followers = NO_FOLLOWERS
        self.epoch_start = 0
        self.isr: Collection[int] = partition.isr
        self._ended = False
        self._own_end = 0
        self._held: HeldAppends | None = None  # until the first append waits
        self._ready: tuple[Callable[[], object], ...] = ()
        self._deadline: Deadline | None = None
        self.progress_waits: dict[ProgressWait, None] = {}
        self._isr_changes: IsrChanges | None = None  # until there are followers

    # Leader epochs, and the ISR.

    def begin_epoch(self, state: PartitionImage, ready: Callable[[], object]) -> None:
        """Begin a leader epoch at the log end.

        Arguments:
            state: its leader is this broker.
            ready: called when all records of the log can be read: now or later; never if the leadership ends before.
        """
        log, now_ms = self._partition.log, self._now_ms()
        self.epoch_start = 0 if log is None else log.log_end_offset
        self.isr = state.isr
        if self._use_replicas(state):
            for replica_id, progress in self.followers.items():
                progress.begin_epoch(self.epoch_start, now_ms, in_sync=replica_id in state.isr)
            self._begin_isr(state)
        self._ready = (*self._ready, ready)
        if log is not None:
            self._begin_log(log)
        self._check_minimum()
        self.advance()
        self._check_progress()

    def receive_state(self, state: PartitionImage) -> None:
        """Use a newer state of the present leader epoch: Partition.makeLeader without a new epoch."""
        self.isr = state.isr
        if self._use_replicas(state):
            self._begin_isr(state)
        self.change_isr(self._partition.isr, [each for each in self.isr if each not in self._partition.isr])
        self._check_progress()

    def _use_replicas(self, state: PartitionImage) -> bool:
        """Use the replicas of a state; returns whether there are or were followers."""
        if len(state.replicas) == 1 and not self.followers:
            return False
        others = [replica_id for replica_id in state.replicas if replica_id != state.leader]
        self.followers = {each: self.followers.get(each) or ReplicaProgress() for each in others}
        return True

    def _begin_isr(self, state: PartitionImage) -> None:
        """Use the ISR of a state, and request its changes while there are followers."""
        changes, requests = self._isr_changes, self._host.isr_requests
        if changes is not None and self.followers:
            self.isr = changes.receive_state(state)
        elif changes is not None:
            self._isr_changes = None
            changes.end()
        elif requests is not None:
            self._isr_changes = requests.begin(self._partition, self, self._host, state)

    def _begin_log(self, log: Log) -> None:
        """Determine the own end. Records whose appends have failed with an earlier leadership may need a flush."""
        end, flushed = log.log_end_offset, max(log.recovery_point, self._partition.high_watermark)
        if self._partition.config.flush_messages == NEVER or flushed >= end:
            self._own_end = end
            return
        self._own_end = max(self._own_end, flushed)
        if not self._queue().unflushed:
            self._add(HeldWrite(end, end, 0, [], self._host.clock.monotonic()), log, flush=True)

    def adopt(self, log: Log) -> None:
        """Begin with a log that was opened or recovered."""
        self._own_end = log.log_end_offset
        self.plan()

    @property
    def eligible(self) -> tuple[int, ...]:
        """The eligible replicas: nothing is committed while there are any."""
        return () if self._isr_changes is None else self._isr_changes.eligible

    @property
    def is_behind(self) -> bool:
        """Whether records of earlier leaders may be committed that are not below the high watermark yet (KIP-207)."""
        return bool(self.followers) and self._partition.high_watermark < self.epoch_start

    @property
    def is_unconfirmed(self) -> bool:
        """Whether no other member of the ISR has fetched in this leader epoch: another broker may lead already."""
        ends = [self.followers[each].end_offset for each in self._partition.isr if each in self.followers]
        return bool(ends) and max(ends) == UNKNOWN_OFFSET

    def change_isr(self, isr: tuple[int, ...], expected: Collection[int] = ()) -> None:
        """Use another ISR.

        Arguments:
            isr: as the controller has committed it.
            expected: members whose addition is requested: the high watermark waits for them, too.
        """
        self._partition.isr = isr
        self.isr = (*isr, *expected) if expected else isr
        for mark in self._partition.replica_sessions:
            mark.visit_next()
        self._check_minimum()
        self.advance()

    def check_minimum(self) -> None:
        """Apply a changed minimum of in-sync replicas."""
        self._check_minimum()
        self.advance()

    def _check_minimum(self) -> None:
        if self._held is not None and len(self.isr) < self._partition.replicas_min:
            refused: list[Append] = []
            try:
                self._held.take_required(refused)
            finally:
                reject_each(KafkaErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, refused)

    def follower_fetched(
        self, replica_id: int, broker_epoch: int, offset: int, log_start_offset: int, now_ms: int
    ) -> int:
        """Record a fetch of a follower; appends and fetches that waited for it are completed.

        Arguments:
            replica_id: broker id of the follower.
            broker_epoch: of its registration, -1 = not sent.
            offset: the end of its log.
            log_start_offset: the start of its log.
            now_ms: milliseconds of the monotonic clock.

        Returns 0; UNKNOWN_LEADER_EPOCH if the broker is not assigned (the assignment may be on its way);
        NOT_LEADER_OR_FOLLOWER for a fetch of an earlier registration.
        """
        progress = self.followers.get(replica_id)
        if progress is None:
            return KafkaErrorCode.UNKNOWN_LEADER_EPOCH
        log = self._partition.log
        end = 0 if log is None else log.log_end_offset
        if not progress.record_fetch(broker_epoch, offset, log_start_offset, end, now_ms):
            return KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
        if replica_id not in self._partition.isr and self._isr_changes is not None:
            self._isr_changes.follower_fetched(replica_id, now_ms)
        if self._partition.high_watermark < self._own_end or self._held:
            self.advance()
        if self.progress_waits:
            self._check_progress()
        return 0

    def low_watermark(self) -> int:
        """The lowest log start of this and the live replicas; -1 if a live one has not fetched yet."""
        log = self._partition.log
        lowest = 0 if log is None else log.log_start_offset
        for replica_id, progress in self.followers.items():
            if progress.log_start_offset < lowest and self._host.is_live(replica_id, progress.broker_epoch):
                lowest = progress.log_start_offset
        return lowest

    def _check_progress(self) -> None:
        call_each(lambda wait: wait.check(), list(self.progress_waits))

    # Appends.

    def hold(self, appends: list[Append], log: Log, size: int) -> None:
        """Answer the appends of one write when a flush and the followers allow it.

        Arguments:
            appends: the appends that were written.
            log: of this partition.
            size: their bytes.
        """
        held = self._queue()
        if held.can_leave(log.recovery_point):  # an exception has lost the end of a flush
            self.advance()
        end = log.log_end_offset
        flush = end - max(held.flush_requested, log.recovery_point) >= self._partition.config.flush_messages
        if not (flush or held or self.followers):  # another flush has included them
            self.plan()
            self._own_end = end
            self._partition.answer(appends, log, end, size)
            return
        waiting = [append for append in appends if append.required_acks != ACKS_NONE]
        flush_offset = end if flush else held.flush_requested if held.unflushed else 0
        write = HeldWrite(end, flush_offset, size, waiting, self._host.clock.monotonic())
        self._lower_deadline(write.deadline)
        self._add(write, log, flush=flush)
        unacknowledged = [append for append in appends if append.required_acks == ACKS_NONE]
        steps = partial(call_each, Append.finish, unacknowledged), self.advance
        call_all(*steps, lambda: call_each(Append.release_batch, write.appends))

    def _add(self, write: HeldWrite, log: Log, *, flush: bool) -> None:
        """Hold a write. If its flush cannot be requested, nothing is held, and the next append requests one for all."""
        held = self._queue()
        requested = held.flush_requested
        held.add(write)
        self._partition.hold_at = 0
        try:
            if flush:
                held.flush_requested = write.end_offset
                self._host.flusher.request_flush(log, self._flushed)
        except Exception:
            held.flush_requested = requested
            held.remove(write)
            self.plan()
            raise

    def _flushed(self, error: int) -> None:
        """A flush of the log has ended, with a Kafka error code or 0."""
        if error:
            reject_each(error, self._take_all())
        else:
            self.advance()

    def advance(self) -> None:
        """Answer what the flushed offset and the followers allow now, and move the high watermark."""
        held, log = self._held, self._partition.log
        if self._ended:
            return
        if log is None:
            self._answer([], None)
            return
        answered: list[Append] = []
        try:
            if held is not None:
                self._own_end = max(self._own_end, held.take_flushed(log.recovery_point, answered))
            size = self._move_high_watermark(answered)
            self.plan()
            for append in answered:
                append.log_start_offset = log.log_start_offset
            self._answer(answered, size)
        except Exception as failure:
            self.finish_written(answered, failure)

    def _move_high_watermark(self, answered: list[Append]) -> int | None:
        """Returns the bytes that can be read in addition, 0 if they are not known; None if the high watermark has not
        moved.
        """
        partition = self._partition
        moved = False
        lowest_end = self._lowest_end() if self.followers else self._own_end
        before, in_sync = partition.high_watermark, len(partition.isr)
        high_watermark = next_high_watermark(before, lowest_end, in_sync, partition.replicas_min)
        if high_watermark != before:
            partition.high_watermark = high_watermark
            moved = True
            if self.followers and partition.log is not None:
                partition.log.high_watermark = high_watermark  # for its checkpoint
            for mark in partition.replica_sessions:
                mark.high_watermark_moved()
        size = 0 if self._held is None else self._held.take_committed(partition.high_watermark, answered)
        return size if moved else None

    def _lowest_end(self) -> int:
        return lowest_end_offset(self._own_end, self.followers, self.isr, self._is_awaited)

    def _is_awaited(self, replica_id: int, progress: ReplicaProgress) -> bool:
        log, changes = self._partition.log, self._isr_changes
        return is_awaited(
            progress,
            0 if log is None else log.log_end_offset,
            self._now_ms(),
            self._host.replica_lag_max_ms,
            live=self._host.is_live(replica_id, progress.broker_epoch),
            rejected=changes is not None and replica_id in changes.rejected,
        )

    def _answer(self, appends: list[Append], size: int | None) -> None:
        """Finish appends, then what waits for the high watermark.

        Arguments:
            appends: to finish.
            size: see `_move_high_watermark`.
        """
        partition = self._partition
        steps: list[Callable[[], object]] = []
        if appends:
            steps.append(partial(call_each, Append.finish, appends))
        if size is not None:
            steps.append(partial(partition.readable_grew, size) if size else partition.wake_fetches)
        if self._ready and partition.high_watermark >= self.epoch_start:
            ready, self._ready = self._ready, ()
            steps += ready
        call_all(*steps)

    def finish_written(self, appends: list[Append], error: Exception) -> None:
        """Finish appends after an unexpected exception: the log has them, and they may not be committed."""
        held = self._held
        unfinished = [append for append in appends if not append.finished and (held is None or append not in held)]
        finish_unconfirmed(unfinished, error, self._report)

    def _report(self, error: Exception) -> None:
        self._host.report(f"append to {self._partition.topic}-{self._partition.index}", error)

    def plan(self) -> None:
        """Compute the log end from which on appends are held, so that `write` compares one number."""
        partition = self._partition
        if self._held or self.followers:
            partition.hold_at = 0
        elif partition.log is None or partition.config.flush_messages == NEVER:
            partition.hold_at = NEVER
        else:
            partition.hold_at = partition.log.recovery_point + partition.config.flush_messages

    # Deadlines.

    def _lower_deadline(self, deadline: float) -> None:
        if self._deadline is None:
            if deadline == math.inf:
                return
            self._deadline = Deadline(self._host.clock, self._expire)
        self._deadline.lower(deadline)

    def _expire(self, now: float) -> None:
        """Answer the appends whose deadline has passed; their records stay in the log."""
        expired: list[Append] = []
        try:
            self._queue().take_expired(now, expired)
            self._lower_deadline(self._queue().next_deadline())
        finally:
            reject_each(KafkaErrorCode.REQUEST_TIMED_OUT, expired)

    # The end of the leadership.

    def end(self, error: int) -> None:
        """Reject all held appends: the partition has another role, or none."""
        self._ended = True
        self._ready = ()
        self.followers = NO_FOLLOWERS
        if self._deadline is not None:
            self._deadline.cancel()
        changes, self._isr_changes = self._isr_changes, None
        if changes is not None:
            changes.end()
        waits, self.progress_waits = self.progress_waits, {}
        call_all(
            partial(reject_each, error, self._take_all()), partial(call_each, lambda wait: wait.fail(error), waits)
        )

    def _take_all(self) -> list[Append]:
        return [] if self._held is None else self._held.take_all()

    @property
    def is_idle(self) -> bool:
        """Whether no append is held."""
        return not self._held

    def _queue(self) -> HeldAppends:
        if self._held is None:
            self._held = HeldAppends()
        return self._held

    def _now_ms(self) -> int:
        return int(self._host.clock.monotonic() * 1000)


def finish_unconfirmed(appends: list[Append], error: Exception, report: Callable[[Exception], object]) -> None:
    """Finish appends with UNCONFIRMED after an unexpected exception.

    Arguments:
        appends: written and unfinished; without any, a callback has raised the exception, and it is raised again.
        error: the exception.
        report: logs it.
    """
    if not appends:
        raise error
    report(error)
    call_each(Append.fail_unconfirmed, appends)


def reject_each(error: int, appends: list[Append]) -> None:
    """Reject appends with a Kafka error code."""
    call_each(lambda append: append.reject(error), appends)
