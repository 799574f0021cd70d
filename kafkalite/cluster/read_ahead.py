"""Old bytes on their way from the disk into memory: what the loop would wait for is read by jobs.

Laws:
1. One job per run of bytes: who asks for what is being brought in already waits for that.
2. At most `jobs_max` jobs at a time, so that they leave threads to fsync; the others queue in the order they came.
3. What a job has opened is taken over on the loop. Whoever asked looks again: what was deleted, cut or closed
   meanwhile shows then, and bytes that were dropped again are asked for again. So it is with a file that is gone under
   its name, as it is renamed by another job; one that stays away is an error of whoever has asked too often.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from kafkalite._speedups.storage.segment_reader import PageCacheMiss
from kafkalite.callbacks import call_each
from kafkalite.clock import Offload, Outcome
from kafkalite.storage.dirs_in_use import DirectoriesInUse
from kafkalite.storage.log.segment import Segment

JOBS_MAX = 2
Done = Callable[[Outcome], object]


class ReadAheadJob:
    """One job, and who waits for it."""

    __slots__ = ("cold", "waiting")

    def __init__(self, cold: PageCacheMiss) -> None:
        self.cold = cold
        self.waiting: dict[object, Done] = {}

    def covers(self, cold: PageCacheMiss) -> bool:
        """Whether what is asked for comes with this job."""
        mine = self.cold
        if mine.file is None or cold.file is None:
            return mine.file is None and cold.file is None
        return mine.position <= cold.position and cold.position + cold.size <= mine.position + mine.size


class ReadAhead:
    """The jobs that read what is not in memory.

    Arguments:
        offload: where jobs run.
        jobs_max: how many at a time.
        holds: told of the directories in which segments are opened, where an index may be built again.

    `jobs`: how many were run so far.
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
        """Jobs that run or wait to."""
        return self._running + len(self._queue)

    def read(self, cold: PageCacheMiss, done: Done) -> Callable[[], None]:
        """Bring `cold` in, then call `done` with an Outcome of the Cold to look again with, or of an OSError.

        Answers how to take the wish back; `done` is not called then.
        """
        bringing = next((b for b in self._of_segment.get(cold.segment, ()) if b.covers(cold)), None)
        if bringing is None:
            bringing = ReadAheadJob(cold)
            self._of_segment.setdefault(cold.segment, []).append(bringing)
            self._queue.append(bringing)
        ticket = object()
        bringing.waiting[ticket] = done
        self._start()
        return partial(self._take_back, bringing, ticket)

    def _take_back(self, bringing: ReadAheadJob, ticket: object) -> None:
        bringing.waiting.pop(ticket, None)
        if not bringing.waiting and bringing in self._queue:
            self._queue.remove(bringing)
            self._forget(bringing)

    def _start(self) -> None:
        while self._queue and self._running < self._jobs_max:
            bringing = self._queue.popleft()
            cold = bringing.cold
            self._running += 1
            self.jobs += 1
            if cold.file is None:
                twin = cold.segment.apart()
                release = self._holds.enter(twin.directory)
                done = partial(self._opened, bringing, twin, release)
                self._offload.run(twin.bring_in, cold.offset, cold.size, done=done)
            else:
                # A reader of old bytes goes on where it is: the kernel may fetch what comes next meanwhile.
                done = partial(self._end, bringing, cold)
                self._offload.run(cold.file.bring_in, cold.position, cold.size, cold.size, done=done)

    def _opened(self, bringing: ReadAheadJob, twin: Segment, release: Callable[[], None], outcome: Outcome) -> None:
        cold = bringing.cold
        try:
            if outcome.error is not None:
                twin.install_rebuilt(keep=False)
            elif cold.segment.take_over(twin):
                cold = cold.at_position(outcome.value)
            if isinstance(outcome.error, FileNotFoundError):
                outcome = Outcome()
        except OSError as error:
            outcome = Outcome(error=error)
        except Exception as error:
            outcome = Outcome(error=error)
            raise
        finally:
            release()
            self._end(bringing, cold, outcome)

    def _end(self, bringing: ReadAheadJob, brought: PageCacheMiss, outcome: Outcome) -> None:
        self._running -= 1
        self._forget(bringing)
        try:
            call_each(lambda done: done(Outcome(brought, outcome.error)), list(bringing.waiting.values()))
        finally:
            self._start()

    def _forget(self, bringing: ReadAheadJob) -> None:
        left = self._of_segment[bringing.cold.segment]
        left.remove(bringing)
        if not left:
            del self._of_segment[bringing.cold.segment]
