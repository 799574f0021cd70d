"""Truncates logs, as a follower does after a divergence: the checkpoints are lowered first.

With a recovery point above the flushed offset, a start after a crash would not check the batches that were appended
after the truncation, or would reject them as damaged. So the steps are:
1. The recovery points are lowered in memory, and no flush raises them above the truncation (`Log.begin_truncation`).
2. The checkpoints are written and synced. If there is no space for them, nothing is truncated.
3. The logs are truncated.

Source: LogManager.truncateTo, which writes the checkpoints after the truncation.
"""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from kafkalite.clock import Outcome, Then
from kafkalite.storage.checkpoint_writer import CheckpointWriter
from kafkalite.storage.log.log import Log


class TruncatedLogs(Protocol):
    """The part of the log manager that truncation uses."""

    def find(self, topic: str, partition: int) -> Log | None: ...


class Truncation:
    """Truncates some logs together.

    Arguments:
        end_offsets: the new log end offset of each log.
        files: writes the checkpoints.
        logs: the log manager.
        done: called with the first error after all truncations have ended.
    """

    def __init__(
        self,
        end_offsets: Mapping[Log, int],
        files: CheckpointWriter,
        logs: TruncatedLogs,
        done: Then,
    ) -> None:
        self._end_offsets = {log: offset for log, offset in end_offsets.items() if offset < log.log_end_offset}
        self._files = files
        self._logs = logs
        self._done = done
        self._lowering = {log.root for log in self._end_offsets}
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin; `done` may be called before this returns."""
        for log in list(self._end_offsets):
            try:
                self._end_offsets[log] = log.begin_truncation(self._end_offsets[log])
                self._files.note(log)
            except OSError as error:
                del self._end_offsets[log]
                self._failed(log, error)
        for root in list(self._lowering):
            self._files.write_both(root, partial(self._lowered, root))
        if not self._lowering:
            self._done(Outcome())

    def _lowered(self, root: str, outcome: Outcome) -> None:
        """The checkpoints of a log directory are on the disk, or there was no space for them."""
        self._lowering.discard(root)
        self._error = self._error or outcome.error
        try:
            for log, offset in self._end_offsets.items():
                if log.root == root:
                    self._cut(log, offset, possible=outcome.error is None)
        finally:
            if not self._lowering:
                self._done(Outcome(error=self._error))

    def _cut(self, log: Log, offset: int, *, possible: bool) -> None:
        try:
            if possible and not log.failed and self._logs.find(log.topic, log.partition) is log:
                log.truncate_to(offset)
        except OSError as error:
            self._failed(log, error)
        finally:
            log.end_truncation()

    def _failed(self, log: Log, error: OSError) -> None:
        self._error = self._error or error
        log.on_error(log, error)
