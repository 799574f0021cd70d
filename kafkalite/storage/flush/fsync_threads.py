"""Runs batches of syncs in C threads that never take the GIL, while the loop serves other requests.

1. These threads sync only on the plain `Disk`; any other disk receives its syncs from a job (`flush_job.JobSyncer`).
2. Every log directory has its own threads, so that a slow disk does not delay the others.
3. A batch with producer snapshots, which must be written first, runs as a job.
4. One descriptor reports the end of all batches to the loop.
"""

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from kafkalite._speedups.storage.file import Disk, File
from kafkalite._speedups.storage.sync_threads import SyncThreads
from kafkalite.clock import Executor, Outcome, Raised, Then, call_guarded
from kafkalite.storage.dirs.temporary import TemporaryDisk
from kafkalite.storage.log.flush_job import FlushPlan, JobSyncer, sync_path

THREADS = 6  # ten busy files on ext4 get a fifth more syncs than with four; more gain nothing
CONCURRENT_MIN = 8  # fewer files are synced without threads: starting them would take longer
BATCHES_MAX = 2  # one starts its writeback while the other commits; more gain nothing


class ReaderLoop(Protocol):
    """The methods of an event loop that `ThreadSyncer` uses."""

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        """Call `callback` whenever `fd` is readable."""

    def remove_reader(self, fd: int) -> object:
        """Stop watching `fd`."""


class ThreadSyncer:
    """Runs the flush plans of an fsync batch in the sync threads of its log directory.

    Arguments:
        paths: the log directories.
        loop: applies the outcomes; it must outlive `close`.
        jobs: runs the batches whose producer snapshots are written first; `close` closes it.
        raised: called with a callback that raised and its exception.
        batches: maximum of concurrent batches per log directory.
        threads: maximum of files of a batch that are synced concurrently.

    Raises OSError when a thread cannot be started.
    """

    def __init__(
        self,
        paths: Sequence[str],
        loop: ReaderLoop,
        jobs: JobSyncer,
        raised: Raised,
        batches: int = BATCHES_MAX,
        threads: int = THREADS,
    ) -> None:
        self._loop = loop
        self._jobs = jobs
        self._raised = raised
        self.batches_max = batches
        self._in_progress: dict[SyncThreads, tuple[str, Then]] = {}
        self._idle: dict[str, list[SyncThreads]] = {}
        self._wake: int | None = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            for path in paths:
                self._idle[os.path.abspath(path)] = [SyncThreads(self._wake, threads) for _ in range(batches)]
        except OSError:
            os.close(self._wake)
            raise
        loop.add_reader(self._wake, partial(self._ended, self._wake))

    def run(self, root: str, plans: Sequence[FlushPlan], done: Then) -> None:
        """Sync all files of the plans, then call `done(outcome)` on the loop, never before `run` has returned.

        At most `batches_max` batches per log directory may run at a time. Raises RuntimeError after `close`.
        """
        if any(plan.snapshots for plan in plans):
            self._jobs.run(root, plans, done)
            return
        paths = [os.fsencode(path) for plan in plans for path in plan.paths]
        files = [file for plan in plans for file in plan.files]
        directories = [os.fsencode(plan.directory) for plan in plans if plan.directory is not None]
        threads = self._idle[root][-1]
        threads.begin(paths, files, directories)
        self._in_progress[self._idle[root].pop()] = root, done

    def close(self) -> None:
        """Wait for every batch and apply its outcome, then end the threads. A second call does nothing."""
        if self._wake is None:
            return
        self._jobs.close()
        while self._in_progress:
            threads = next(iter(self._in_progress))
            threads.wait()
            self._apply(threads)
        for idle in self._idle.values():
            for threads in idle:
                threads.close()
        self._loop.remove_reader(self._wake)
        os.close(self._wake)
        self._wake = None

    def _ended(self, wake: int) -> None:
        os.eventfd_read(wake)
        for threads in [threads for threads in self._in_progress if not threads.busy]:
            self._apply(threads)

    def _apply(self, threads: SyncThreads) -> None:
        root, done = self._in_progress.pop(threads)
        outcome = Outcome(error=threads.result())
        self._idle[root].append(threads)
        call_guarded(self._raised, done, (outcome,))


def sync_new(disk: Disk, paths: Sequence[str], directories: Sequence[str], opened: File | None = None) -> None:
    """Job: sync new files, then the directories with their names; no-op on a temporary disk.

    On the plain disk, threads sync them concurrently: 100 files and directories take about 20 ms, and more than twice
    as long without threads.

    Arguments:
        disk: the disk of the files.
        paths: the new files.
        directories: the directories to sync after the files.
        opened: a file that was opened before the first write, so that `sync_all` reports all errors; its whole file
            system is synced by one call instead (2,000 files: 50 to 170 ms, one by one 300 to 1,000 ms).

    Raises OSError.
    """
    if isinstance(disk, TemporaryDisk) or (opened is not None and _sync_all(opened)):
        return
    if type(disk) is Disk and sys.platform == "linux" and len(paths) + len(directories) >= CONCURRENT_MIN:
        _sync_concurrently(paths, directories)
        return
    for path in paths:
        sync_path(disk, path)
    for path in directories:
        disk.sync_dir(path)


def _sync_all(opened: File) -> bool:
    """Sync the file system. Return False where that does not report errors, or reports one.

    The error may be that of another file: the caller then syncs each of its own files.
    """
    try:
        return opened.sync_all()
    except OSError:
        return False


def _sync_concurrently(paths: Sequence[str], directories: Sequence[str]) -> None:
    wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        threads = SyncThreads(wake, THREADS)
        threads.begin([os.fsencode(path) for path in paths], [], [os.fsencode(path) for path in directories])
        threads.wait()
        error = threads.result()
        threads.close()
    finally:
        os.close(wake)
    if error is not None:
        raise error


def syncer_for(
    disk: Disk, paths: Sequence[str], loop: ReaderLoop, threads: Executor, raised: Raised
) -> ThreadSyncer | JobSyncer:
    """Return sync threads for the plain disk on Linux, else jobs; both close `threads` when they are closed.

    Arguments:
        disk: has the files.
        paths: of the log directories.
        loop: gets the completions.
        threads: run the jobs.
        raised: called with an exception of a callback.

    Raises OSError.
    """
    jobs = JobSyncer(disk, threads, threads.close)
    if type(disk) is Disk and sys.platform == "linux":
        return ThreadSyncer(paths, loop, jobs, raised)
    return jobs
