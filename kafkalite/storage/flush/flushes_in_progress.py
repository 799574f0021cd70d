"""Tracks which logs are being synced, across all flushers, because Linux reports a failed writeback to one fsync only.

If two fsyncs of an open file overlap, one may return EIO and the other 0, although the same pages are lost. So:
1. A log is in one flush at a time, across all flushers.
2. The outcome of a flush is applied before any flusher syncs its logs again.
3. Then every flusher that waits for the log directory continues; the flusher for acknowledgements is first.
4. A log that is replaced by its copy in another log directory, truncated or restarted counts as being flushed
   meanwhile.

Source: Linux, lib/errseq.c and Documentation/filesystems/vfs.rst (an error is reported once per open file description).
"""

from collections.abc import Callable, Iterable

from kafkalite.callbacks import call_all, call_each
from kafkalite.storage.log.log import Log


class FlushesInProgress:
    """The logs that are being synced. Used by the loop thread only."""

    def __init__(self) -> None:
        self._busy: set[Log] = set()
        self._starts: list[Callable[[str], object]] = []
        self._waiting: dict[Log, list[Callable[[], object]]] = {}

    def register(self, start: Callable[[str], object]) -> None:
        """Call `start` with the log directory whenever a flush there has ended, in the order of registration."""
        self._starts.append(start)

    def is_busy(self, log: Log) -> bool:
        """Whether the log is being flushed."""
        return log in self._busy

    def begin(self, logs: Iterable[Log]) -> None:
        """Mark these logs as busy; none of them may be busy."""
        self._busy.update(logs)

    def end(self, logs: Iterable[Log]) -> None:
        """Mark these logs as idle. The caller then applies the outcome of the flush and calls `start_waiting`."""
        self._busy.difference_update(logs)

    def when_idle(self, log: Log, then: Callable[[], object]) -> None:
        """Call `then` when the log is not being flushed, and the outcome of its flush is applied; perhaps at once.

        Another caller that waited may have begun by then: `then` checks `is_busy` again.
        """
        if self.is_busy(log):
            self._waiting.setdefault(log, []).append(then)
        else:
            then()

    def start_waiting(self, root: str) -> None:
        """Let every flusher start a batch for the waiting requests of the log directory `root`."""
        call_each(lambda start: start(root), self._starts)
        idle = [self._waiting.pop(log) for log in list(self._waiting) if not self.is_busy(log)]
        call_all(*(then for each in idle for then in each))
