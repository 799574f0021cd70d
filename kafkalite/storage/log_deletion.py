"""Deletes the files of logs and segments: renames them at once, removes them after file.delete.delay.ms.

1. Regions in responses keep their files open, so running reads succeed.
2. On a disk without space for a longer name, a file is removed at once. No log is created in its directory until then.
3. What could not be removed at once is removed before a log is created in its directory.

Sources: LogManager.asyncDelete, LocalLog.deleteSegmentFiles.
"""

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Clock, Offload, Outcome, Random
from kafkalite.storage import names, retention
from kafkalite.storage.dirs_in_use import DirectoriesInUse
from kafkalite.storage.file_removal import FileRemover
from kafkalite.storage.log.log import Log
from kafkalite.storage.transient_errors import is_transient

LOGGER = logging.getLogger("kafkalite.storage.log_deletion")


class LogDeleter:
    """Renames the directories of deleted logs, and removes them after a delay.

    Arguments:
        disk, clock, offload, random: where, when, how it leaves the loop, and names of deleted directories. Nothing
            but deletions uses this offload, so that no other job waits behind thousands of them.
        holds: keeps new logs away from directories that are being removed.
        note: called with a log directory and an error in it.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        offload: Offload,
        random: Random,
        holds: DirectoriesInUse,
        note: Callable[[str, OSError], object],
    ) -> None:
        self._disk = disk
        self._offload = offload
        self._removals = FileRemover(disk, clock, offload)
        self._random = random
        self._holds = holds
        self._note = note
        self._left: set[str] = set()

    def log(self, log: Log) -> None:
        """Rename the directory of a log that is not managed any more, and remove it later."""
        name = names.deleted_directory_name(log.topic, log.partition, self._random.bytes(16).hex())
        deleted = os.path.join(log.root, name)
        try:
            self._disk.rename(log.directory, deleted)
        except OSError as error:
            self._note(log.root, error)
            if is_transient(error):
                self._left.add(log.directory)
                self._holds.when_free(log.directory, partial(self._remove_now, log, deleted))
            return
        self._removals.add([deleted], log.config.file_delete_delay_ms, directories=True)

    def delete_unloaded(self, root: str, directory: str, topic: str, partition: int, delay_ms: int) -> bool:
        """Rename the directory of a partition without a log now, and remove it later.

        Arguments:
            root, directory: its log directory, and its own directory.
            delay_ms: file.delete.delay.ms of its topic.

        Returns False where it cannot be renamed.
        """
        deleted = os.path.join(root, names.deleted_directory_name(topic, partition, self._random.bytes(16).hex()))
        try:
            self._disk.rename(directory, deleted)
        except OSError as error:
            self._note(root, error)
            return False
        self._removals.add([deleted], delay_ms, directories=True)
        return True

    def _remove_now(self, log: Log, deleted: str) -> None:
        """Remove the directory without a rename: the disk had no space for the longer name."""
        if log.directory in self._left:  # else `create_files` removed it for a new log
            done = partial(self._gone, log, self._holds.enter(log.directory))
            self._offload.run(retention.remove_now, self._disk, log.directory, deleted, done=done)

    def _gone(self, log: Log, release: Callable[[], None], outcome: Outcome) -> None:
        try:
            if outcome.error is None:
                self._left.discard(log.directory)
            elif isinstance(outcome.error, OSError):
                self._note(log.root, outcome.error)
            else:
                raise outcome.error
        finally:
            release()

    def is_left(self, directory: str) -> bool:
        """Whether files of a deleted log still exist under its own name."""
        return directory in self._left

    def removed(self, directory: str) -> None:
        """Register that the files of a deleted log were removed."""
        self._left.discard(directory)

    def files(self, log: Log, paths: list[str]) -> None:
        """Remove `.deleted` files of a log later."""
        self._removals.add(paths, log.config.file_delete_delay_ms)

    def directories(self, paths: Sequence[str], delay_ms: int = 0) -> None:
        """Remove directories that were renamed before, after `delay_ms`."""
        self._removals.add(paths, delay_ms, directories=True)

    def when_removed(self, then: Callable[[], object]) -> None:
        """Call `then` once everything that is due has been removed, perhaps at once."""
        self._removals.when_done(then)

    def close(self) -> None:
        """Start no further removal; the next start removes the remaining files."""
        self._removals.close()
