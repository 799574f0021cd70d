"""The swap: replaces a log by its copy in another log directory, while its appends wait.

1. Appends are paused; compaction, retention and flushes of the log wait (`Log.moving`). The rest is copied and synced.
2. The checkpoints of the other log directory name the partition, then the copy gets its mark (`complete_mark`).
3. The current directory is renamed to `-delete`; its log directory is synced.
4. The copy is renamed to `<topic>-<partition>`, and the `Log` continues with its files; the log directory is synced.
5. The mark is removed, appends resume.

At every moment there is at most one directory `<topic>-<partition>`, also on the disk. An append is accepted only while
no copy has the mark, so whatever a crash leaves has every record (`interrupted_moves`).

An error before step 3 ends the swap, and the partition stays where it is. An error of a log directory in step 3 or 4
takes it offline with the partition; the next start completes the swap, or has the current directory again.

Sources: LogManager.replaceCurrentWithFutureLog, ReplicaAlterLogDirsThread. Kafka renames in the other order, and does
not start after a crash in between.
"""

import errno
import os
from collections.abc import Callable
from functools import partial

from kafkalite._speedups.storage.file import File
from kafkalite.callbacks import call_all
from kafkalite.clock import Outcome, Then, outcome_of
from kafkalite.model import TopicPartition
from kafkalite.storage import names
from kafkalite.storage.log.transaction_index import BadTransactionIndex
from kafkalite.storage.log_move import complete_mark, copy_jobs, relocation
from kafkalite.storage.log_move.copy_jobs import CopyTask, SourceChangedError, SourceError
from kafkalite.storage.log_move.log_copy import LogCopy
from kafkalite.storage.log_move.ports import MovePorts
from kafkalite.storage.transient_errors import is_transient


class SwapStoppedError(Exception):
    """The swap was stopped before step 3, or its log failed."""


class LogSwap:
    """A swap.

    Arguments:
        copy: of which the rest is small.
        target: the log directory of the copy.
        ports: what it uses of the log manager.
        ended: called once, with the path of the old directory, or with an error: SwapStoppedError; SourceChangedError,
            after which it may be repeated; SourceError; an OSError of the target, which is not yet reported.

    Attributes:
        committed: from step 3 on: it cannot be stopped.
    """

    def __init__(self, copy: LogCopy, target: str, ports: MovePorts, ended: Then) -> None:
        self.committed = False
        self._copy = copy
        self._log = copy.log
        self._source = copy.log.root
        self._target = target
        self._ports = ports
        self._disk = ports.logs.disk
        self._ended = ended
        self._paused = False
        self._locked = False  # no flush of the log begins
        self._named = False  # the checkpoints of the target may name the partition
        self._marked = False  # the copy may have the mark
        self._stopped = False
        self._copied = (0, 0, 0)  # log end, truncations and version of the epochs in the copy
        self._old = ""  # the directory of the log between its renames, and after them

    @property
    def _key(self) -> TopicPartition:
        return TopicPartition(self._log.topic, self._log.partition)

    def begin(self) -> None:
        """Pause the appends, and go on when they are written."""
        self._ports.partitions.pause(self._log, self._appends_paused)

    def stop(self) -> None:
        """End the swap before step 3, at the latest when its running job ends; later this does nothing."""
        self._stopped = True

    # Steps 1 and 2.

    def _appends_paused(self) -> None:
        self._paused = True
        self._log.moving = True
        if self._ports.logs.cleaner is not None:
            self._ports.logs.cleaner.release(self._log)
        self._await_jobs()

    def _await_jobs(self) -> None:
        """Wait for the jobs that change files of the log by name, and for its flush."""
        ports, log = self._ports, self._log
        if ports.logs.holds.is_in_use(log.directory):
            ports.logs.holds.when_free(log.directory, self._await_jobs)
        elif ports.exclusion.is_busy(log):
            ports.exclusion.when_idle(log, self._await_jobs)
        elif self._is_stopped:
            self._give_up(SwapStoppedError())
        else:
            ports.exclusion.begin([log])
            self._locked = True
            self._copy_rest()

    @property
    def _is_stopped(self) -> bool:
        return self._stopped or self._log.failed or self._ports.closed

    def _copy_rest(self) -> None:
        log = self._log
        self._copied = log.log_end_offset, log.truncations, log.epochs.version
        try:
            task = self._copy.last_task()
        except (BadTransactionIndex, OSError) as error:
            self._give_up(SourceError(str(error)))
            return
        rest_copied = self._unless_stopped(partial(self._rest_copied, task))
        self._run(copy_jobs.finish, self._disk, task, then=rest_copied)

    def _rest_copied(self, task: CopyTask, outcome: Outcome) -> None:
        if outcome.error is not None:
            self._copy.failed(task)
            self._give_up(outcome.error)
            return
        self._copy.copied(task)
        self._ports.files.others[self._target][self._key] = self._log.log_end_offset, self._log.log_start_offset
        self._named = True
        self._ports.files.write_both(self._target, self._unless_stopped(self._checkpoints_written))

    def _checkpoints_written(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            self._give_up(outcome.error)
            return
        self._marked = True
        active = os.path.join(self._copy.directory, names.file_name(self._log.active.base_offset, names.LOG))
        mark_written = self._unless_stopped(self._mark_written)
        self._run(complete_mark.mark, self._disk, self._copy.directory, active, then=mark_written)

    def _mark_written(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            self._give_up(outcome.error)
        elif not self._is_unchanged:
            self._give_up(SourceChangedError(f"{self._log.directory}: was truncated"))
        else:
            self._rename_current(outcome.value)

    @property
    def _is_unchanged(self) -> bool:
        return self._copied[:2] == (self._log.log_end_offset, self._log.truncations)

    # Steps 3 to 5.

    def _rename_current(self, active: File) -> None:
        log, current = self._log, self._log.directory
        final = os.path.join(self._target, names.directory_name(*self._key))
        if self._disk.exists(final):
            self._give_up(FileExistsError(errno.EEXIST, "the partition has a directory there", final))
            return
        name = names.deleted_directory_name(*self._key, self._ports.random.bytes(16).hex())
        self._old = os.path.join(self._source, name)
        try:
            self._disk.rename(current, self._old)
        except OSError as error:
            if not is_transient(error):
                self._ports.logs.report_disk_error(self._source, error)
            self._give_up(SourceError(str(error)))
            return
        self.committed = True
        relocation.rename(log, self._old)
        self._run(self._disk.sync_dir, self._source, then=partial(self._current_renamed, current, final, active))

    def _current_renamed(self, current: str, final: str, active: File, outcome: Outcome) -> None:
        if isinstance(outcome.error, OSError):
            self._ports.logs.take_offline(self._source, outcome.error)
        else:
            outcome.result()
        if self._log.failed:  # offline, or its topic was deleted
            self._end(Outcome(error=SwapStoppedError()))
        elif not self._is_unchanged:
            self._revert(current, SourceChangedError(f"{current}: was truncated"))
        else:
            try:
                self._disk.rename(self._copy.directory, final)
            except OSError as error:
                self._revert(current, error)
                return
            relocation.relocate(self._ports, self._log, final, active, self._copied[2])
            self._run(complete_mark.sync_and_unmark, self._disk, final, then=self._copy_renamed)

    def _copy_renamed(self, outcome: Outcome) -> None:
        if isinstance(outcome.error, OSError):
            self._ports.logs.take_offline(self._target, outcome.error)
            self._end(Outcome(error=SwapStoppedError()))
            return
        outcome.result()
        try:
            if not self._log.failed:
                self._log.epochs.write_pending()  # DeleteRecords meanwhile
        except OSError as error:  # a start finds them again
            self._log.on_error(self._log, error)
        self._end(Outcome(self._old))

    # The ways back.

    def _revert(self, current: str, error: Exception) -> None:
        """Step 4 has failed: the log gets its name again, on the disk, before the mark is removed."""
        try:
            self._disk.rename(self._old, current)
        except OSError as second:
            self._ports.logs.take_offline(self._source, second)
            self._end(Outcome(error=SwapStoppedError()))
            return
        relocation.rename(self._log, current)
        self._run(self._disk.sync_dir, self._source, then=partial(self._reverted, error))

    def _reverted(self, error: Exception, outcome: Outcome) -> None:
        self.committed = False
        if isinstance(outcome.error, OSError):
            self._ports.logs.take_offline(self._source, outcome.error)
        else:
            outcome.result()
        self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        """End before step 3. Appends resume when no copy has the mark on the disk.

        The mark stays if the log has failed: nothing is appended to it, and a start may need the copy.
        """
        if not self._marked or self._log.failed or self._ports.closed:
            self._end(Outcome(error=error))
        else:
            self._run(complete_mark.unmark, self._disk, self._copy.directory, then=partial(self._unmarked, error))

    def _unmarked(self, error: BaseException, outcome: Outcome) -> None:
        if isinstance(outcome.error, OSError):  # of an offline directory no start uses a copy while another has the log
            self._ports.logs.take_offline(self._target, outcome.error)
        else:
            outcome.result()
        self._end(Outcome(error=error))

    def _end(self, outcome: Outcome) -> None:
        self._ports.files.others[self._target].pop(self._key, None)
        if self._named and outcome.error is not None and not self._ports.closed:
            self._ports.files.write_both(self._target, lambda _: None)  # a start would miss the partition there
        if outcome.error is not None and self._ports.closed and self._marked:
            return  # no append may go to this log any more
        self._log.moving = False
        if self._locked:
            self._ports.exclusion.end([self._log])
        starts = [partial(self._ports.exclusion.start_waiting, root) for root in (self._source, self._target)]
        call_all(*starts, partial(self._ports.partitions.resume, self._log), partial(self._ended, outcome))

    # Jobs.

    def _run(self, job: Callable[..., object], *args: object, then: Then) -> None:
        """Run a job; on this thread when the broker stops."""
        if self._ports.closed:
            then(outcome_of(job, args))
        else:
            self._ports.offload.run(job, *args, done=then)

    def _unless_stopped(self, then: Then) -> Then:
        """The outcome of a job of step 1 or 2 gives the swap up where it was stopped meanwhile."""

        def done(outcome: Outcome) -> None:
            if self._is_stopped:
                self._give_up(SwapStoppedError())
            else:
                then(outcome)

        return done
