"""Handles logs found at start that belong to no partition of the cluster.

| log | result |
|---|---|
| the journal records that its topic was deleted | its deletion is finished |
| its topic id is unknown, or the topic has fewer partitions | renamed to a stray, reported and kept |
| another id, in the very directory recorded for a partition of this name | not served, not changed |
| no topic id | not served, not changed; an empty one may be replaced |

A partition that could not be loaded is treated like a log. Files are deleted only if the journal records that their
topic was deleted: a topic that it does not name may be missing because an older copy of the journal was restored.

Sources: LogManager.isStrayKraftReplica (Kafka's rule for strays).
"""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Set

from kafkalite._speedups.storage.file import Disk
from kafkalite.cluster.replicas import Replicas
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.slicing import Steps, finish
from kafkalite.storage import checkpoints
from kafkalite.storage.dirs import stray_partitions
from kafkalite.storage.dirs.directory_set import RejectedLog
from kafkalite.storage.log.log import Log
from kafkalite.storage.manager import LogManager
from kafkalite.storage.transient_errors import is_transient

LOGGER = logging.getLogger("kafkalite.server")
NAMED_MAX = 5  # strays named in a line
NOT_IN_JOURNAL = (
    "%d stray partition%s with %s bytes: kafkalite.journal does not know the topic%s of %s. The files are kept "
    "and not served. If an older kafkalite.journal was restored, stop the broker and put the newer one back; "
    "`kafkalite log stray %s` lists the strays, adopts or deletes them"
)
NOT_ASSIGNED = (
    "%d stray partition%s with %s bytes: the controller does not assign the log%s of %s to this broker. The files are "
    "kept and not served. Another tree may have been restored. A start takes strays back that the tree assigns again; "
    "`kafkalite log stray %s` lists them"
)


class UnknownLogs:
    """Handles logs without a partition at start.

    Arguments:
        replicas: the hosted partitions.
        logs: the loaded logs.
        noted: returns the recorded log directory of a partition.
        deleted: ids of the topics whose deletion is recorded.
        delay_ms: file.delete.delay.ms of topics that the journal does not name.

    `left_alone`: partitions in whose directories nothing may be created.
    """

    def __init__(
        self,
        replicas: Replicas,
        logs: LogManager,
        noted: Callable[[bytes, int], str | None],
        deleted: Set[bytes],
        delay_ms: int,
    ) -> None:
        self.left_alone: set[TopicPartition] = set()
        self._replicas = replicas
        self._logs = logs
        self._noted = noted
        self._deleted = deleted
        self._delay_ms = delay_ms
        self._renamed_in: set[str] = set()
        self._cleaned: dict[str, checkpoints.Offsets] = {}  # cleaner checkpoints of the log directories with strays

    def handle(self) -> None:
        """Handle every log, and report all strays, those of earlier starts included."""
        finish(self.handling())
        if self._logs.strays:
            report_strays(self._logs.disk, self._logs.strays)

    def handling(self) -> Steps:
        """Handle every log, in steps; returns whether any is a stray now."""
        for log in self._logs.all():
            self._loaded(log)
            yield
        for key, refused in list(self._logs.refused.items()):
            self._refused(key, refused)
            yield
        for root in self._renamed_in:
            self._sync(root)
            yield
        return bool(self._renamed_in)

    def _loaded(self, log: Log) -> None:
        key = TopicPartition(log.topic, log.partition)
        topic_id = self._logs.topic_ids.get(key)
        if topic_id is None:
            self._without_id(log)
        elif self._is_hosted(key, topic_id):
            return
        elif topic_id in self._deleted:
            LOGGER.info("%s: the topic was deleted before the last shutdown; deleting the files", log.directory)
            self._logs.delete(log)
        elif self._is_recorded(key, log.root):
            self._logs.leave_alone(log)
            self.left_alone.add(key)
            LOGGER.error(
                "%s-%d is offline: %s has the id of another topic; the files are unchanged. Restore the directory from "
                "a backup, or move it away and delete the topic",
                *key, os.path.join(log.directory, "partition.metadata"),
            )  # fmt: skip
        else:
            self._set_stray(key, log.root, log)

    def _refused(self, key: TopicPartition, refused: RejectedLog) -> None:
        """Handle a partition that could not be loaded; it is kept while a hosted topic may own it."""
        topic_id, created = self._id_of_refused(key, refused)
        if created:
            return  # without records: a later topic of this name creates its files again
        if topic_id is None and not self._is_named(key):
            LOGGER.error("%s: not served, the files are unchanged: %s", refused.directory, refused.reason)
            self.left_alone.add(key)  # a topic of this name may be created later
        if topic_id is None or self._is_hosted(key, topic_id):
            return
        if topic_id in self._deleted:
            LOGGER.info("%s: the topic was deleted before the last shutdown; deleting the files", refused.directory)
            self._logs.delete_refused(*key, self._delay_ms)
        elif not self._is_recorded(key, refused.root):
            LOGGER.error("%s: cannot be loaded: %s", refused.directory, refused.reason)
            self._set_stray(key, refused.root, None)

    def _id_of_refused(self, key: TopicPartition, refused: RejectedLog) -> tuple[bytes | None, bool]:
        """Return its topic id, if that can be read, and whether what an interrupted creation had left was deleted."""
        try:
            if self._logs.is_incomplete(key) and not self._is_named(key):
                return None, self._logs.delete_unrecorded(key, self._delay_ms)
            return checkpoints.read_topic_id(self._logs.disk, refused.directory), False
        except (checkpoints.BadCheckpoint, OSError):
            return None, False

    def _is_named(self, key: TopicPartition) -> bool:
        """Return whether a hosted partition has this name."""
        return not isinstance(self._replicas.partition(key[0], b"", key[1], by_id=False), KafkaErrorCode)

    def _is_hosted(self, key: TopicPartition, topic_id: bytes) -> bool:
        return not isinstance(self._replicas.partition(key[0], topic_id, key[1], by_id=True), KafkaErrorCode)

    def _is_recorded(self, key: TopicPartition, root: str) -> bool:
        """Return whether this log directory is recorded for the partition of this name: then the id in the files is
        wrong.
        """
        topic = self._replicas.find(key[0], b"", by_id=False)
        directory = None if isinstance(topic, KafkaErrorCode) else self._noted(topic.topic_id, key[1])
        return directory in (root, self._logs.directory_id(root))

    def _without_id(self, log: Log) -> None:
        self._logs.leave_alone(log)
        if log.size:
            self.left_alone.add(TopicPartition(log.topic, log.partition))
            LOGGER.warning(
                "%s: has records but no partition.metadata, so the topic is unknown; not served, the files are "
                "unchanged. Restore that file from a backup, or move the directory away",
                log.directory,
            )

    def _set_stray(self, key: TopicPartition, root: str, log: Log | None) -> None:
        try:
            self._logs.set_stray(key, self._cleaned_until(key, root))
        except OSError as error:
            LOGGER.error("%s-%d in %s: cannot rename it to a stray, not served: %s", *key, root, error)
            self.left_alone.add(key)
            if log is not None:
                self._logs.leave_alone(log)
            if not is_transient(error):
                self._logs.report_disk_error(root, error)
        else:
            self._renamed_in.add(root)

    def _cleaned_until(self, key: TopicPartition, root: str) -> int | None:
        """Return the offset of a partition in the cleaner's checkpoint, None for none. Raises OSError."""
        if root not in self._cleaned:
            path = os.path.join(root, checkpoints.CLEANER_OFFSETS)
            try:
                self._cleaned[root] = checkpoints.read_offsets(self._logs.disk, path)
            except checkpoints.BadCheckpoint:  # logged when the directory was loaded
                self._cleaned[root] = {}
        return self._cleaned[root].get(key)

    def _sync(self, root: str) -> None:
        try:
            self._logs.disk.sync_dir(root)
        except OSError as error:
            self._logs.report_disk_error(root, error)


class UnassignedLogs(UnknownLogs):
    """Handles logs that the controller has not assigned, after a full LeaderAndIsr request.

    Arguments:
        assigned: the topic id of each assigned partition.
        replicas, logs, deleted, delay_ms: as for `UnknownLogs`; `deleted` are the ids that the controller announced.
    """

    def __init__(
        self,
        assigned: Mapping[TopicPartition, bytes],
        replicas: Replicas,
        logs: LogManager,
        deleted: Set[bytes],
        delay_ms: int,
    ) -> None:
        super().__init__(replicas, logs, lambda _topic_id, _index: None, deleted, delay_ms)
        self._assigned = assigned

    def _is_named(self, key: TopicPartition) -> bool:
        return key in self._assigned

    def _is_hosted(self, key: TopicPartition, topic_id: bytes) -> bool:
        return self._assigned.get(key) == topic_id


def report_strays(disk: Disk, directories: Iterable[str], text: str = NOT_IN_JOURNAL) -> None:
    """Log the number of strays, their bytes, the cause and the next step, as a line with this text."""
    found = sorted(directories)
    size = sum(_bytes_in(disk, directory) for directory in found)
    more = len(found) - NAMED_MAX
    named = ", ".join(map(os.path.basename, found[:NAMED_MAX])) + (f" and {more} more" if more > 0 else "")
    plural = "" if len(found) == 1 else "s"
    LOGGER.warning(text, len(found), plural, f"{size:,}", plural, named, os.path.dirname(found[0]))


def _bytes_in(disk: Disk, directory: str) -> int:
    try:
        return stray_partitions.bytes_in(disk, directory)
    except OSError:
        return 0  # only counted for the report
