"""How a log is made, so that it inherits nothing from a deleted one of its name.

The steps, each after the one before has succeeded:
1. The last job that works in the directory by name has ended (`holds`).
2. The checkpoints name the partition no more: a kill at any later moment would take what they say for the new log's.
3. The files are made.

Source: LogManager.getOrCreateLog.
"""

import os
from collections.abc import Callable
from functools import partial

from kafkalite._speedups.file import Disk
from kafkalite.clock import Offload, Outcome
from kafkalite.config.topic import TopicConfig
from kafkalite.storage import checkpoints, names, retention
from kafkalite.storage.deletion import Deletions
from kafkalite.storage.holds import Holds
from kafkalite.storage.log import Log
from kafkalite.storage.points import PointFiles

Key = tuple[str, int]


class LogMaker:
    """Makes logs.

    Arguments:
        disk, offload: where, and how it leaves the loop.
        holds, deletions, files: what happens in the directories besides.
    """

    def __init__(
        self,
        disk: Disk,
        offload: Offload,
        holds: Holds,
        deletions: Deletions,
        files: PointFiles,
    ) -> None:
        self._disk = disk
        self._offload = offload
        self._holds = holds
        self._deletions = deletions
        self._files = files

    def make(
        self,
        path: str,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        done: Callable[[Outcome], object],
    ) -> None:
        """Make the files of a new partition in the log directory `path`; `done` gets the Log or the OSError."""
        key = topic, partition
        directory = os.path.join(path, names.directory_name(topic, partition))

        def create() -> None:
            left = self._deletions.is_left(directory)
            self._offload.run(create_log, self._disk, directory, key, topic_id, config, left, done=created)

        def created(outcome: Outcome) -> None:
            if outcome.error is None:
                self._deletions.removed(directory)
            done(outcome)

        self._holds.when_free(directory, partial(self._forget, path, key, create, done))

    def _forget(self, path: str, key: Key, then: Callable[[], object], failed: Callable[[Outcome], object]) -> None:
        """Have the checkpoints of a log directory name a partition no more."""
        if self._files.others[path].pop(key, None) is not None:
            self._files.note_deleted(path, key)
        if key not in self._files.deleted[path]:
            then()
            return

        def forgotten(outcome: Outcome) -> None:
            if outcome.error is not None:
                failed(outcome)
            else:
                then()

        self._files.write_both(path, forgotten)


def create_log(disk: Disk, directory: str, key: Key, topic_id: bytes, config: TopicConfig, left: bool) -> Log:
    """Job: make the files of a new partition; `left`: those of a deleted one are still there. Raises OSError."""
    if left:
        retention.remove_directory(disk, directory)
    log = Log.create(disk, directory, *key, config)
    checkpoints.write_topic_id(disk, directory, topic_id)
    disk.sync_dir(os.path.dirname(directory))
    return log
