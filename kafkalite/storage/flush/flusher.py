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
Asked = dict[Log, dict[FlushDone, None]]


class Flusher:
    """Collects flush requests and runs the fsync batches of all log directories.

    Arguments:
        disk, clock: the disk of the logs; the time of each flush.
        syncer: runs the fsync batches.
        fail: takes a log directory offline, with the reason.
        holds: tracks the directories in which a batch writes by name.
        active: whether the active segment is synced, too, not only closed segments.
        exclusion: shared by all flushers of the same logs.
        retried: called with a log directory and the error for which its fsync batch is retried.
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
        self.waiting: dict[str, Asked] = {}
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
        self._paused: set[str] = set()  # log directories whose fsync batch is retried later
        self._finishing = False
        self._begins_soon = False

    def request_flush(self, log: Log, done_callback: FlushDone | None = None) -> None:
        """Sync the current content of `log` in the next fsync batch; `done_callback` then receives 0 or a Kafka error
        code, once per fsync batch even if it is passed several times.
        """
        if log.failed:
            if done_callback is not None:
                done_callback(KafkaErrorCode.KAFKA_STORAGE_ERROR)
            return
        asked = self.waiting.setdefault(log.root, {}).setdefault(log, {})
        if done_callback is not None:
            asked[done_callback] = None

    def begin(self) -> None:
        """Start a batch in every log directory with requests that may have one more."""
        call_each(self._start, list(self.waiting))  # one that raises, a bug, ends that directory only

    def begin_soon(self) -> None:
        """Call `begin` in the next loop iteration, when the running write has ended or was undone."""
        if not self._begins_soon:
            self._begins_soon = True
            self._clock.call_at(self._clock.monotonic(), self._begin_now)

    def _begin_now(self) -> None:
        self._begins_soon = False
        self.begin()

    def finish(self) -> None:
        """Run every further fsync batch before `begin` returns, because the broker stops."""
        self._syncer = SyncAtOnce(self._disk)
        self._finishing = True
        self._paused.clear()
        self.begin()

    def _start(self, root: str) -> None:
        if root not in self.waiting or root in self._paused or self._running[root] >= self._syncer.batches_max:
            return
        asked = self._take(root)
        failed = {log: asked.pop(log) for log in list(asked) if log.failed}  # offline or deleted since they asked
        try:
            if asked:
                self._run(FsyncBatch(root, asked))
        finally:
            complete_requests(failed, KafkaErrorCode.KAFKA_STORAGE_ERROR)

    def _take(self, root: str) -> Asked:
        """Remove and return the requests for logs of the directory that are in no fsync batch."""
        waiting = self.waiting[root]
        asked = {log: done_callback for log, done_callback in waiting.items() if not self._exclusion.is_busy(log)}
        for log in asked:
            del waiting[log]
        if not waiting:
            del self.waiting[root]
        return asked

    def _run(self, under_way: "FsyncBatch") -> None:
        self._running[under_way.root] += 1
        self._exclusion.begin(under_way.asked)
        self.batches += 1
        try:
            under_way.plan(self._active, self._holds)
            self._syncer.run(under_way.root, tuple(under_way.plans.values()), partial(self._ended, under_way))
        except Exception as error:
            if under_way.over:  # an unexpected exception of a callback
                raise
            self._ended(under_way, Outcome(error=error))

    def _ended(self, under_way: "FsyncBatch", outcome: Outcome) -> None:
        if under_way.over:  # what carries it out raised before, and ends it all the same
            return
        under_way.end()
        root, asked = under_way.root, under_way.asked
        self._running[root] -= 1
        self._exclusion.end(asked)
        try:
            outcome.result()
            self._apply(under_way)
        except BaseException as error:
            if isinstance(error, OSError) and lacks_descriptors(error):
                self._retry(under_way, error)
            else:
                self._failed(root, asked, error)
            return
        try:
            self._exclusion.look_again(root)
        finally:
            complete_requests(asked, 0)

    def _apply(self, under_way: "FsyncBatch") -> None:
        """Apply the success of all plans of an fsync batch."""
        now = self._clock.monotonic()
        for log, plan in under_way.plans.items():
            if log.flushed(plan):
                log.last_flush = now
            else:  # cut meanwhile: the plan says nothing of what came after
                self._again(under_way.root, log, under_way.asked.pop(log))

    def _again(self, root: str, log: Log, done_callback: dict[FlushDone, None]) -> None:
        self.waiting.setdefault(root, {}).setdefault(log, {}).update(done_callback)

    def _retry(self, under_way: "FsyncBatch", error: OSError) -> None:
        """Flush the whole fsync batch again after RETRY_S, because one of its files could not be opened."""
        root = under_way.root
        for log, done_callback in under_way.asked.items():
            if log in under_way.plans:
                log.not_flushed(under_way.plans[log])
            self._again(root, log, done_callback)
        if self._retried is not None:
            self._retried(root, error)
        if self._finishing:  # there is no later
            complete_requests(self.waiting.pop(root), KafkaErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self._paused.add(root)
            self._clock.call_at(self._clock.monotonic() + RETRY_S, self._resume, root)
        self._exclusion.look_again(root)

    def _resume(self, root: str) -> None:
        self._paused.discard(root)
        self._start(root)

    def _failed(self, root: str, asked: Asked, error: BaseException) -> None:
        late = self.waiting.pop(root, {})
        reason = error if isinstance(error, OSError) else OSError(errno.EIO, f"a sync ended with {error!r}")
        try:
            self._fail(root, reason)
        finally:
            all_asked = {log: {**asked.get(log, {}), **late.get(log, {})} for log in (*asked, *late)}
            call_all(
                partial(complete_requests, all_asked, KafkaErrorCode.KAFKA_STORAGE_ERROR),
                partial(self._exclusion.look_again, root),
            )
        if not isinstance(error, OSError):
            raise error


class FsyncBatch:
    """One fsync batch of one log directory: its requests and its plans."""

    __slots__ = ("_releases", "asked", "over", "plans", "root")

    def __init__(self, root: str, asked: Asked) -> None:
        self.root = root
        self.asked = asked
        self.plans: dict[Log, FlushPlan] = {}
        self.over = False
        self._releases: list[Callable[[], None]] = []

    def plan(self, active: bool, holds: DirectoriesInUse) -> None:
        """Create the flush plans of the logs. Raises OSError."""
        for log in self.asked:
            plan = self.plans[log] = log.unflushed(active=active)
            if plan.snapshots:
                self._releases.append(holds.enter(log.directory))

    def end(self) -> None:
        """Mark the fsync batch as ended, and release the directories."""
        self.over = True
        for release in self._releases:
            release()


def complete_requests(asked: Asked, error: int) -> None:
    """Call all callbacks; an exception of one is raised after the others."""
    call_each(lambda done_callback: done_callback(error), everybody(asked))


def everybody(asked: Asked) -> Iterator[FlushDone]:
    """Yield the callbacks of all requests."""
    for done_callback in asked.values():
        yield from done_callback
