"""One move of a log to another log directory: copies it piece by piece, then swaps it with its copy (`log_swap`).

1. Nothing waits for the copy: appends, reads, compaction and retention go on, and the copy follows (`log_copy`).
2. An error that concerns the copy alone ends the move: no space, an unreadable file of the log. It is logged, the copy
   is removed, and the partition stays where it is.
"""

import logging
import os
from collections.abc import Callable
from functools import partial

from kafkalite.clock import Outcome, Then
from kafkalite.model import TopicPartition
from kafkalite.storage import names
from kafkalite.storage.log.log import Log
from kafkalite.storage.log_move import copy_jobs
from kafkalite.storage.log_move.copy_jobs import CopyTask, SourceChangedError, SourceError
from kafkalite.storage.log_move.log_copy import LogCopy
from kafkalite.storage.log_move.log_swap import LogSwap, SwapStoppedError
from kafkalite.storage.log_move.ports import MovePorts
from kafkalite.storage.transient_errors import is_transient

PIECE_BYTES = 4 << 20  # that one job copies
REST_BYTES = 1 << 20  # that appends wait for
ATTEMPTS_MAX = 1_000  # jobs that found a file removed or rewritten
LOGGER = logging.getLogger("kafkalite.storage.log_move.log_move")


class LogMove:
    """A move.

    Arguments:
        log: which is moved.
        target: the other log directory.
        directory: the future directory in it.
        ports: what it uses of the log manager and of the broker.
        ended: called once, with the outcome: the path of the old directory, None where the move failed or was ended.
    """

    def __init__(
        self, log: Log, target: str, directory: str, ports: MovePorts, ended: Callable[["LogMove", str | None], object]
    ) -> None:
        self.log = log
        self.source = log.root
        self.target = target
        self.copy = LogCopy(log, directory)
        self._ports = ports
        self._when_ended = ended
        self._ended = False
        self._in_job = False
        self._attempts = 0
        self._unwanted = False  # the copy is to be removed
        self._discarded: list[str] = []  # renamed, to be removed after the running job
        self._swap: LogSwap | None = None

    @property
    def key(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.log.topic, self.log.partition)

    @property
    def committed(self) -> bool:
        """Whether the move can no longer be cancelled."""
        return self._swap is not None and self._swap.committed

    def create(self, metadata: bytes, created: Callable[[OSError | None], object]) -> None:
        """Create the future directory.

        Arguments:
            metadata: the content of `partition.metadata`.
            created: called with None or the error, which has ended the move.
        """

        def done(outcome: Outcome) -> None:
            if isinstance(outcome.error, OSError):
                self._fail(outcome.error)
                created(outcome.error)
            else:
                outcome.result()
                created(None)

        self._run(copy_jobs.create, self._ports.logs.disk, self.copy.directory, metadata, then=done)

    def copy_next(self) -> None:
        """Copy the next piece, or begin the swap when there is little to copy."""
        if self._ended or self._in_job or self._swap is not None:
            return
        if self._ports.closed or self.log.failed:
            self._end(None)
        elif self.copy.remaining > REST_BYTES:
            task = self.copy.next_task(PIECE_BYTES)
            self._run(copy_jobs.copy, self._ports.logs.disk, task, then=partial(self._copied, task))
        else:
            self._swap = LogSwap(self.copy, self.target, self._ports, self._swapped)
            self._swap.begin()

    def _copied(self, task: CopyTask, outcome: Outcome) -> None:
        if outcome.error is None:
            self.copy.copied(task)
            self.copy_next()
        else:
            self.copy.failed(task)
            self._fail(outcome.error)

    def _swapped(self, outcome: Outcome) -> None:
        self._swap = None
        if self._ended:
            self._discarded += [outcome.value] if outcome.error is None else []
            self._discard_if_unwanted()
        elif isinstance(outcome.error, SwapStoppedError):
            self._end(None)
        elif outcome.error is not None:
            self._fail(outcome.error)
        else:
            LOGGER.info("%s: moved from %s to %s", self.key, self.source, self.target)
            self._end(outcome.value)

    def _fail(self, error: BaseException) -> None:
        """Repeat what a change of the log prevented; end the move after any other error."""
        self._attempts += 1
        if isinstance(error, SourceChangedError) and self._attempts < ATTEMPTS_MAX:
            self.copy_next()
            return
        known = isinstance(error, (OSError, SourceError, SourceChangedError))
        if known:
            text = "%s stays in %s, it cannot be moved to %s: %s"
            LOGGER.error(text, self.key, self.source, self.target, error)
        if isinstance(error, OSError) and not isinstance(error, FileExistsError):
            self._ports.logs.report_disk_error(self.target, error)
        self.cancel()
        if not known:
            raise error

    # The end.

    def cancel(self) -> None:
        """End the move, and remove the copy; a swap that is committed goes on."""
        if not self.committed:
            self.forget()

    def abandon(self) -> None:
        """End the move because a log directory failed: the next start removes the copy, and begins again."""
        if not self.committed:
            self._end(None)

    def forget(self) -> None:
        """End the move because the log was deleted: its copy is renamed first, so that no start uses it."""
        self._end(None)
        self._unwanted = True
        self._discard_if_unwanted()

    def _end(self, old_directory: str | None) -> None:
        if self._ended:
            return
        self._ended = True
        if self._swap is not None:
            self._swap.stop()
        self._when_ended(self, old_directory)

    def _discard_if_unwanted(self) -> None:
        """Rename an unwanted copy now, and remove its files when no job works on it."""
        if not self._unwanted:
            return
        disk = self._ports.logs.disk
        name = names.deleted_directory_name(*self.key, self._ports.random.bytes(16).hex())
        deleted = os.path.join(self.target, name)
        try:
            if self._ports.logs.is_online(self.target) and disk.exists(self.copy.directory):
                disk.rename(self.copy.directory, deleted)
                self._discarded.append(deleted)
        except OSError as error:  # the next start removes it
            if not is_transient(error):
                self._ports.logs.report_disk_error(self.target, error)
        if not self._in_job and self._swap is None and self._discarded:
            self._ports.deletions.directories(self._discarded)
            self._discarded = []

    def _run(self, job: Callable[..., object], *args: object, then: Then) -> None:
        self._in_job = True

        def done(outcome: Outcome) -> None:
            self._in_job = False
            if not self._ended:
                then(outcome)
            elif not self._ports.closed:
                self._discard_if_unwanted()  # what the job has created since, too

        self._ports.copies.run(job, *args, done=done)
