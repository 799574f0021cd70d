"""Reads bytes that are not in the page cache, in jobs, so that the event loop does not wait for the disk.

1. There is one job per range of bytes: a request for bytes that a job already reads waits for that job.
2. At most `jobs_max` jobs run at a time, so that threads remain for fsync. The others wait in order of arrival.
3. The loop takes over what a job has opened. Every reader then reads again, and so notices if the segment was deleted,
   truncated or closed meanwhile; for bytes that the kernel has dropped again it makes another request. The same holds
   for a file that is missing because another job renames it. If it stays missing, the reader fails after its last
   attempt.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from kafkalite._speedups.storage.page_cache import PageCacheMiss
from kafkalite.callbacks import call_each
from kafkalite.clock import Offload, Outcome, Then
from kafkalite.storage.dirs_in_use import DirectoriesInUse
from kafkalite.storage.log.segment import Segment

JOBS_MAX = 2
Done = Then


class ReadAheadJob:
    """One job and the callbacks that wait for it."""

    __slots__ = ("miss", "waiting")

    def __init__(self, miss: PageCacheMiss) -> None:
        self.miss = miss
        self.waiting: dict[object, Done] = {}

    def covers(self, miss: PageCacheMiss) -> bool:
        """Whether this job reads all bytes of another miss in the same segment."""
        own = self.miss
        if own.file is None or miss.file is None:
            return own.file is None and miss.file is None
        return own.position <= miss.position and miss.position + miss.size <= own.position + own.size


class ReadAhead:
    """The jobs that read ahead for all requests of a broker.

    Arguments:
        offload: runs the jobs.
        jobs_max: bound on concurrent jobs.
        holds: the directories in use; a job that loads a segment may write its indexes there.

    Attributes:
        jobs: number of jobs started so far.
    """

    def __init__(self, offload: Offload, jobs_max: int = JOBS_MAX, holds: DirectoriesInUse | None = None) -> None:
        self.jobs = 0
        self._holds = holds or DirectoriesInUse()
        self._offload = offload
        self._jobs_max = jobs_max
        self._running = 0
        self._queue: deque[ReadAheadJob] = deque()
        self._of_segment: dict[Segment, list[ReadAheadJob]] = {}

    def __len__(self) -> int:
        """Number of running and queued jobs."""
        return self._running + len(self._queue)

    def read(self, miss: PageCacheMiss, done: Done) -> Callable[[], None]:
        """Read the bytes of a miss ahead.

        Arguments:
            miss: returned by a read of a log.
            done: called with an Outcome: the miss to pass to the next attempt as `read_ahead`, or an OSError.

        Returns a function that cancels the request; `done` is then not called.
        """
        job = next((job for job in self._of_segment.get(miss.segment, ()) if job.covers(miss)), None)
        if job is None:
            job = ReadAheadJob(miss)
            self._of_segment.setdefault(miss.segment, []).append(job)
            self._queue.append(job)
        ticket = object()
        job.waiting[ticket] = done
        self._start()
        return partial(self._cancel, job, ticket)

    def _cancel(self, job: ReadAheadJob, ticket: object) -> None:
        job.waiting.pop(ticket, None)
        if not job.waiting and job in self._queue:
            self._queue.remove(job)
            self._remove(job)

    def _start(self) -> None:
        while self._queue and self._running < self._jobs_max:
            job = self._queue.popleft()
            miss = job.miss
            self._running += 1
            self.jobs += 1
            if miss.file is None:
                twin = miss.segment.apart()
                release = self._holds.enter(twin.directory)
                done = partial(self._loaded, job, twin, release)
                self._offload.run(twin.read_ahead, miss.offset, miss.size, done=done)
            else:
                # A consumer of old records continues from here, so the kernel may already read the bytes that follow.
                done = partial(self._end, job, miss)
                self._offload.run(miss.file.read_ahead, miss.position, miss.size, miss.size, done=done)

    def _loaded(self, job: ReadAheadJob, twin: Segment, release: Callable[[], None], outcome: Outcome) -> None:
        miss = job.miss
        try:
            if outcome.error is not None:
                twin.install_rebuilt(keep=False)
            elif miss.segment.take_over(twin):
                miss = miss.at_position(outcome.value)
            if isinstance(outcome.error, FileNotFoundError):
                outcome = Outcome()
        except OSError as error:
            outcome = Outcome(error=error)
        except Exception as error:
            outcome = Outcome(error=error)
            raise
        finally:
            release()
            self._end(job, miss, outcome)

    def _end(self, job: ReadAheadJob, miss: PageCacheMiss, outcome: Outcome) -> None:
        self._running -= 1
        self._remove(job)
        try:
            call_each(lambda done: done(Outcome(miss, outcome.error)), list(job.waiting.values()))
        finally:
            self._start()

    def _remove(self, job: ReadAheadJob) -> None:
        jobs = self._of_segment[job.miss.segment]
        jobs.remove(job)
        if not jobs:
            del self._of_segment[job.miss.segment]
