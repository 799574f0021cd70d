"""Group commit: collects logs that request a flush and syncs them together, in batches.

1. A log directory has as many concurrent batches as the syncer allows. A log is in one batch at a time, across all
   flushers (`flushes_in_progress`). Requests during a batch are collected for the next one, so one sync covers all
   appends of many partitions.
2. A batch starts when `begin` is called, at the end of a loop iteration: its partitions are synced together.
3. A flush is reported only after the job of its batch has succeeded.
4. A failed batch is never repeated: its log directory goes offline, and all its requests fail with KAFKA_STORAGE_ERROR.
   The same holds for an unexpected exception in a batch, which is raised as well: no request waits for ever, and no
   offset counts as flushed that perhaps is not.
5. A batch that could not open a file (EMFILE, ENFILE) has lost nothing: it is retried after RETRY_S, and its requests
   wait. Errors of fsync in the same batch are handled first.

Sources: UnifiedLog.flush; group commit is an addition (Kafka syncs once per append).
"""

import errno
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from kafkalite._speedups.storage.file import Disk
from kafkalite.callbacks import call_all, call_each
from kafkalite.clock import Clock, Outcome
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage.dirs_in_use import DirectoriesInUse
from kafkalite.storage.flush.flushes_in_progress import FlushesInProgress
from kafkalite.storage.log.flush_job import FlushPlan, SyncAtOnce, Syncer
from kafkalite.storage.log.log import Log
from kafkalite.storage.transient_errors import lacks_descriptors

RETRY_S = 0.1

FlushDone = Callable[[int], object]
FlushRequests = dict[Log, dict[FlushDone, None]]


class Flusher:
    """Collects flush requests and runs the fsync batches of all log directories.

    Arguments:
        disk: syncs the files after `finish`.
        clock: times the last flush of each log and the retries.
        syncer: runs the fsync batches.
        fail: takes a log directory offline, with the reason.
        holds: tracks the partition directories in which a batch writes files by name.
        active: sync the active segment too, not only closed segments.
        exclusion: shared by all flushers of the same logs.
        retried: called with a log directory and the error for which its batch is retried.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        syncer: Syncer,
        fail: Callable[[str, OSError], None],
        *,
        holds: DirectoriesInUse | None = None,
        active: bool = True,
        exclusion: FlushesInProgress | None = None,
        retried: Callable[[str, OSError], object] | None = None,
    ) -> None:
        self.waiting: dict[str, FlushRequests] = {}
        self.batches = 0
        self._disk = disk
        self._clock = clock
        self._syncer: Syncer = syncer
        self._fail = fail
        self._holds = holds or DirectoriesInUse()
        self._active = active
        self._running: Counter[str] = Counter()
        self._exclusion = exclusion or FlushesInProgress()
        self._exclusion.register(self._start)
        self._retried = retried
        self._paused: set[str] = set()  # log directories whose batch is retried later
        self._finishing = False
        self._begins_soon = False

    def request_flush(self, log: Log, done_callback: FlushDone | None = None) -> None:
        """Request a flush of the log up to its current end in the next fsync batch.

        Arguments:
            log: the log to flush.
            done_callback: called with 0 or a Kafka error code when the batch ends; once per batch, also after several
                requests for it.
        """
        if log.failed:
            if done_callback is not None:
                done_callback(KafkaErrorCode.KAFKA_STORAGE_ERROR)
            return
        requests = self.waiting.setdefault(log.root, {}).setdefault(log, {})
        if done_callback is not None:
            requests[done_callback] = None

    def relocate(self, log: Log, old_root: str) -> None:
        """Keep the requests of a log that was moved from another log directory; it is in no batch."""
        requests = self.waiting.get(old_root, {}).pop(log, None)
        if requests is not None:
            self._again(log.root, log, requests)
        if not self.waiting.get(old_root, True):
            del self.waiting[old_root]

    def begin(self) -> None:
        """Start a batch in every log directory that has requests and fewer than `batches_max` running batches."""
        call_each(self._start, list(self.waiting))  # an unexpected exception affects its directory only

    def begin_soon(self) -> None:
        """Call `begin` in the next loop iteration: an append in progress is complete, or undone, by then."""
        if not self._begins_soon:
            self._begins_soon = True
            self._clock.call_at(self._clock.monotonic(), self._begin_now)

    def _begin_now(self) -> None:
        self._begins_soon = False
        self.begin()

    def finish(self) -> None:
        """Sync on the loop thread from now on, for the shutdown: a batch has ended when `begin` returns."""
        self._syncer = SyncAtOnce(self._disk)
        self._finishing = True
        self._paused.clear()
        self.begin()

    def _start(self, root: str) -> None:
        if root not in self.waiting or root in self._paused or self._running[root] >= self._syncer.batches_max:
            return
        batch = FsyncBatch(root, self._take_requests(root))
        failed: FlushRequests = {}
        try:
            failed.update(batch.take_failed())
            if batch.requests:
                self._run(batch)
        except Exception as error:
            if batch.ended:  # a callback raised
                raise
            self._ended(batch, Outcome(error=error))
        finally:
            complete_requests(failed, KafkaErrorCode.KAFKA_STORAGE_ERROR)

    def _take_requests(self, root: str) -> FlushRequests:
        """Remove and return the requests of a log directory whose logs are in no running batch."""
        waiting = self.waiting[root]
        requests = {log: done_callback for log, done_callback in waiting.items() if not self._exclusion.is_busy(log)}
        for log in requests:
            del waiting[log]
        if not waiting:
            del self.waiting[root]
        return requests

    def _run(self, batch: "FsyncBatch") -> None:
        batch.begun = True
        self._running[batch.root] += 1
        self._exclusion.begin(batch.requests)
        self.batches += 1
        batch.plan(self._active, self._holds)
        self._syncer.run(batch.root, tuple(batch.plans.values()), partial(self._ended, batch))

    def _ended(self, batch: "FsyncBatch", outcome: Outcome) -> None:
        if batch.ended:  # the syncer raised before, and reports the end as well
            return
        batch.ended = True
        root, requests = batch.root, batch.requests
        self._running[root] -= batch.begun
        try:
            self._exclusion.end(requests)
            batch.release()
            outcome.result()
            self._apply(batch)
        except BaseException as error:
            if isinstance(error, OSError) and lacks_descriptors(error):
                self._retry(batch, error)
            else:
                self._failed(root, requests, error)
            return
        try:
            self._exclusion.start_waiting(root)
        finally:
            complete_requests(requests, 0)

    def _apply(self, batch: "FsyncBatch") -> None:
        """Record the flush of every log: all plans of the batch succeeded."""
        now = self._clock.monotonic()
        for log, plan in batch.plans.items():
            if log.apply_flush(plan):
                log.last_flush = now
            else:  # truncated meanwhile: the plan does not cover later appends
                self._again(batch.root, log, batch.requests.pop(log))

    def _again(self, root: str, log: Log, done_callback: dict[FlushDone, None]) -> None:
        self.waiting.setdefault(root, {}).setdefault(log, {}).update(done_callback)

    def _retry(self, batch: "FsyncBatch", error: OSError) -> None:
        """Request all flushes of the batch again after RETRY_S: a file of it could not be opened."""
        root = batch.root
        for log, done_callback in batch.requests.items():
            if log in batch.plans:
                log.not_flushed(batch.plans[log])
            self._again(root, log, done_callback)
        if self._retried is not None:
            self._retried(root, error)
        if self._finishing:  # there is no later loop iteration
            complete_requests(self.waiting.pop(root), KafkaErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self._paused.add(root)
            self._clock.call_at(self._clock.monotonic() + RETRY_S, self._resume, root)
        self._exclusion.start_waiting(root)

    def _resume(self, root: str) -> None:
        self._paused.discard(root)
        self._start(root)

    def _failed(self, root: str, requests: FlushRequests, error: BaseException) -> None:
        late = self.waiting.pop(root, {})
        reason = error if isinstance(error, OSError) else OSError(errno.EIO, f"a sync ended with {error!r}")
        try:
            self._fail(root, reason)
        finally:
            all_requests = {log: {**requests.get(log, {}), **late.get(log, {})} for log in (*requests, *late)}
            call_all(
                partial(complete_requests, all_requests, KafkaErrorCode.KAFKA_STORAGE_ERROR),
                partial(self._exclusion.start_waiting, root),
            )
        if not isinstance(error, OSError):
            raise error


class FsyncBatch:
    """One fsync batch of one log directory: its requests, and the files to sync.

    `begun`: it counts as running. `ended`: it does not run any more.
    """

    __slots__ = ("_releases", "begun", "ended", "plans", "requests", "root")

    def __init__(self, root: str, requests: FlushRequests) -> None:
        self.root = root
        self.requests = requests
        self.plans: dict[Log, FlushPlan] = {}
        self.begun = False
        self.ended = False
        self._releases: list[Callable[[], None]] = []

    def plan(self, active: bool, holds: DirectoriesInUse) -> None:
        """Collect the files to sync. Raises OSError."""
        for log in self.requests:
            plan = self.plans[log] = log.plan_flush(active=active)
            if plan.snapshots:
                self._releases.append(holds.enter(log.directory))

    def take_failed(self) -> FlushRequests:
        """Remove and return the requests of logs that are offline or deleted meanwhile."""
        return {log: self.requests.pop(log) for log in list(self.requests) if log.failed}

    def release(self) -> None:
        """Release its partition directories."""
        call_each(operator.call, self._releases)


def complete_requests(requests: FlushRequests, error: int) -> None:
    """Call all callbacks; an exception of one is raised after the others."""
    call_each(lambda done_callback: done_callback(error), callbacks_of(requests))


def callbacks_of(requests: FlushRequests) -> Iterator[FlushDone]:
    """Yield the callbacks of all logs."""
    for done_callback in requests.values():
        yield from done_callback
