"""One cleaning of one log in steps: a job, its result applied on the loop, the next job.

1. Only the loop thread renames files and changes the log; jobs read closed segments and write `.cleaned` files.
2. `abort` releases the log at once: segments that were swapped in stay, all other work files are removed.
3. A full disk costs time only: without space before the swap the cleaning is abandoned, after it `retry` continues.
4. The end is reported exactly once, also after an exception.
"""

import logging
from collections.abc import Callable
from functools import partial

from kafkalite._speedups.compaction.compactor import Worker
from kafkalite._speedups.compaction.input import CleaningAbortedError, Transactions, UncleanableSegmentError
from kafkalite._speedups.compaction.tombstone_retention import RetentionRules
from kafkalite.clock import Offload, Outcome
from kafkalite.storage.compaction.cleaning_jobs import CleaningPlan, OffsetMapResult, build_map, clean_group, rules_of
from kafkalite.storage.log import segment_swap
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.segment import Segment
from kafkalite.storage.transient_errors import is_transient, lacks_descriptors

LOGGER = logging.getLogger("kafkalite.storage.compaction.cleaning_run")


class OutOfSpaceError(Exception):
    """A job had not enough memory or disk space; its incomplete files are removed."""


class CleaningRun:
    """A cleaning.

    Arguments:
        log: whose.
        plan: see `cleaning`.
        worker: of the thread; used by this run alone until its end.
        offload: of the cleaner's threads.
        flush: flushes the closed segments of a log, and calls back with 0 or a Kafka error code.
        removed: called with the paths of `.deleted` files.
        waits: called with the reason for which the cleaning waits for `retry`.
        ended: called with the offset up to which the log is clean now, or the error: OSError,
            UncleanableSegmentError, OutOfSpaceError, or CleaningAbortedError after `abort`.
    """

    def __init__(
        self,
        log: Log,
        plan: CleaningPlan,
        worker: Worker,
        offload: Offload,
        *,
        flush: Callable[[Log, Callable[[int], object]], None],
        removed: Callable[[list[str]], None],
        waits: Callable[[OSError], None],
        ended: Callable[["CleaningRun", int | Exception], None],
    ) -> None:
        self.log = log
        self.plan = plan
        self.worker = worker
        self.aborted = False
        self._offload = offload
        self._flush = flush
        self._removed = removed
        self._waits = waits
        self._ended = ended
        self._groups: list[list[Segment]] = []
        self._ready: Segment | None = None  # as `.swap`, the old ones still in the log
        self._swapping_in: Segment | None = None  # as `.swap`, in the log
        self._stuck: Callable[[], None] | None = None  # the last step lacked space

    def start(self) -> None:
        """Begin; the worker has been reset.

        The dirty segments are flushed first: a power cut never takes the new value of a key whose old one was compacted
        away. The flusher does it, as a file is in one fsync at a time.
        """
        if self.log.synced < self.plan.upper_offset:
            self._flush(self.log, self._flushed)
        else:
            self._flushed(0)

    def _flushed(self, error: int) -> None:
        if self.aborted or error:  # with an error the log directory is offline, or the log was deleted
            self._ended(self, CleaningAbortedError())
        else:
            self._run(build_map, self.worker, self.plan, then=self._mapped)

    def abort(self, *, touch: bool = True) -> None:
        """Stop the job and free the log; without `touch` its files are left to recovery.

        Raises OSError; where that passes, the compacted segment keeps its `.swap` names until `retry`.
        """
        self.aborted = True
        self.worker.stop = True
        ready, self._ready = self._ready, None
        if touch and ready is not None:
            segment_swap.remove(ready)
            self.plan.disk.sync_dir(self.plan.directory)  # otherwise it returns after a power cut, over later changes
        if touch and self._swapping_in is not None:
            self.plan.disk.sync_dir(self.plan.directory)
            segment_swap.swap_in(self._swapping_in)
            self.log.segment_swapped_in(self._swapping_in)
        self._swapping_in = None
        self.retry()

    def retry(self) -> None:
        """Retry a step that lacked space."""
        stuck, self._stuck = self._stuck, None
        if stuck is not None:
            self._apply(lambda _: stuck(), Outcome())

    def _run(self, job: Callable[..., object], *args: object, then: Callable[[object], None]) -> None:
        self._offload.run(job, *args, done=partial(self._job_ended, then))

    def _job_ended(self, then: Callable[[object], None], outcome: Outcome) -> None:
        error = outcome.error
        if isinstance(error, CleaningAbortedError) or (self.aborted and isinstance(error, OSError)):
            self._ended(self, CleaningAbortedError())
        elif isinstance(error, MemoryError) or (isinstance(error, OSError) and self._is_free() and is_transient(error)):
            self._ended(self, OutOfSpaceError(str(error) or "no memory"))
        elif isinstance(error, (OSError, UncleanableSegmentError)):
            self._ended(self, error)
        else:
            self._apply(then, outcome)

    def _is_free(self) -> bool:
        """No swap is in progress."""
        return self._ready is None and self._swapping_in is None

    def _apply(self, then: Callable[[object], None], outcome: Outcome) -> None:
        """Run the next step. An unexpected exception of a job ends the run, and is reported."""
        try:
            then(outcome.result())
        except OSError as error:
            self._ended(self, error)
        except Exception:
            self._ended(self, UncleanableSegmentError("the cleaner failed"))
            raise

    def _mapped(self, mapped: object) -> None:
        assert isinstance(mapped, OffsetMapResult)
        if not mapped.whole:
            LOGGER.info(
                "%s: the cleaner's offset map is full at offset %d; the next run cleans the rest up to %d",
                self.plan.directory, mapped.end_offset, self.plan.upper_offset,
            )  # fmt: skip
        self._end_offset = mapped.end_offset
        self._groups = mapped.groups
        self._rules: RetentionRules = rules_of(self.plan)
        self._transactions = Transactions(mapped.aborted)
        self._next()

    def _next(self) -> None:
        if self.aborted:
            self._ended(self, CleaningAbortedError())
        elif self._groups:
            group = self._groups.pop(0)
            self._run(
                clean_group, self.worker, self.plan, group, self._rules, self._transactions,
                then=partial(self._cleaned, group),
            )  # fmt: skip
        else:
            self._ended(self, self._end_offset)

    def _cleaned(self, group: list[Segment], cleaned: object) -> None:
        assert isinstance(cleaned, Segment)
        if self.aborted:
            segment_swap.remove(cleaned)
            self._ended(self, CleaningAbortedError())
            return
        try:
            segment_swap.make_ready(cleaned)
        except OSError as error:
            segment_swap.remove(cleaned)
            self._ended(self, OutOfSpaceError(str(error)) if is_transient(error) else error)
            return
        self._ready = cleaned
        self._sync(lambda: self._swap(group, cleaned))

    def _sync(self, then: Callable[[], None]) -> None:
        """Sync the renames before the next step; without a descriptor the cleaning waits for `retry`."""

        def done(outcome: Outcome) -> None:
            if isinstance(outcome.error, OSError) and lacks_descriptors(outcome.error) and not self.aborted:
                self._stuck = partial(self._sync, then)
                self._waits(outcome.error)
            else:
                self._job_ended(lambda _: then(), outcome)

        self._offload.run(self.plan.disk.sync_dir, self.plan.directory, done=done)

    def _swap(self, group: list[Segment], cleaned: Segment) -> None:
        if self._ready is None:
            self._ended(self, CleaningAbortedError())
            return
        self._ready, self._swapping_in = None, cleaned
        self.log.replace(group, cleaned)
        paths = segment_swap.retire(group)
        self._sync(lambda: self._swap_in(cleaned, paths))

    def _swap_in(self, cleaned: Segment, paths: list[str]) -> None:
        self._removed(paths)
        if self._swapping_in is not None:
            try:
                segment_swap.swap_in(cleaned)
            except OSError as error:
                if not is_transient(error):
                    raise
                self._stuck = partial(self._swap_in, cleaned, [])
                self._waits(error)
                return
            self._swapping_in = None
            self.log.segment_swapped_in(cleaned)
        if self.aborted:
            self._ended(self, CleaningAbortedError())
        else:
            self._sync(self._next)
