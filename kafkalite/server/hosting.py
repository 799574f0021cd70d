"""The partitions this broker hosts, brought in line with the image: made, opened at their first append, grown, deleted.

A partition's files appear at its first append. They are made, then the store notes their directory, then the batch is
taken. So a partition whose noted directory or files are missing at start is offline (KAFKA_STORAGE_ERROR), never
silently empty, and a crash in between leaves an empty log and not a partition that is offline for ever.
"""

import logging
import os
from collections.abc import Callable, Iterable
from typing import Protocol

from kafkalite.clock import Clock, Offload, Outcome
from kafkalite.cluster.image import TopicImage
from kafkalite.cluster.internal import InternalPartition
from kafkalite.cluster.partition import Partition
from kafkalite.cluster.replicas import HostedTopic, Replicas
from kafkalite.cluster.turns import Turns
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.state.topic_names import is_internal
from kafkalite.storage.log import Log
from kafkalite.storage.manager import LogManager

LOGGER = logging.getLogger("kafkalite.server")


class DirectoryNotes(Protocol):
    """Where the directory of a partition is noted; `then(error)` once the note is durable."""

    def note_directory(self, topic_id: bytes, partition: int, directory: str, then: Callable[[int], None]) -> None: ...


class Hosting:
    """Turns topic images into hosted partitions.

    Arguments:
        config: settings of the broker, replaced by `configure`.
        replicas: what handlers look partitions up in.
        logs: the log directories.
        notes: the store of directory notes.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        offload: Offload,
        replicas: Replicas,
        logs: LogManager,
        notes: DirectoryNotes,
    ) -> None:
        self.clock = clock
        self.offload = offload
        self.flusher = logs.flusher
        self.mark_dirty = replicas.mark_dirty
        self._config = config
        self._replicas = replicas
        self._logs = logs
        self._notes = notes
        self._turns = Turns()
        self.left_alone: set[tuple[str, int]] = set()

    def load(self, topics: Iterable[TopicImage], noted: Callable[[bytes, int], str | None]) -> None:
        """Host every partition of these topics with the log that recovery found for it; `noted` tells who had files."""
        hosted = [self._host(topic) for topic in topics]
        self._finish_deletions(noted)
        for topic in hosted:
            for partition in topic.partitions:
                log = self._logs.find(topic.name, partition.index)
                if log is not None:
                    partition.adopt(log)
                    if log.failed:  # its directory went offline while it was read
                        partition.error = KafkaErrorCode.KAFKA_STORAGE_ERROR
                elif noted(topic.topic_id, partition.index) is not None:
                    partition.error = KafkaErrorCode.KAFKA_STORAGE_ERROR
                    where = self._logs.describe_directory(noted(topic.topic_id, partition.index) or "")
                    LOGGER.error("%s-%d is offline: its files are missing in %s", topic.name, partition.index, where)

    def _finish_deletions(self, noted: Callable[[bytes, int], str | None]) -> None:
        """A log whose topic id the cluster does not know is of a topic whose deletion was not finished.

        Not so where the cluster has noted that very directory for a topic of the name: files are noted after they were
        made, so it is the id in `partition.metadata` that is wrong, and the records are somebody's.
        """
        for log in self._logs.all():
            topic_id = self._logs.topic_ids.get((log.topic, log.partition))
            if topic_id is None:
                self._leave_alone(log)
            elif not isinstance(self._replicas.partition(log.topic, topic_id, log.partition, by_id=True), int):
                continue
            elif self._is_noted(log, noted):
                self._logs.leave_alone(log)
                self.left_alone.add((log.topic, log.partition))
                path = os.path.join(log.directory, "partition.metadata")
                LOGGER.error("%s: not the id of its topic; left alone and not served", path)
            else:
                LOGGER.info("%s: its topic was deleted; deleting the files", log.directory)
                self._logs.delete(log)

    def _is_noted(self, log: Log, noted: Callable[[bytes, int], str | None]) -> bool:
        topic = self._replicas.find(log.topic, b"", by_id=False)
        directory = None if isinstance(topic, int) else noted(topic.topic_id, log.partition)
        return directory in (log.root, self._logs.directory_id(log.root))

    def _leave_alone(self, log: Log) -> None:
        """Nobody knows whose records these are: they are neither served nor written over."""
        self._logs.leave_alone(log)
        if log.size:
            LOGGER.warning("%s: has records and no topic id; left alone and not served", log.directory)
            self.left_alone.add((log.topic, log.partition))

    def apply(self, topic: TopicImage) -> None:
        """Host a new topic, or take over what changed of one: configs, more partitions."""
        known = self._replicas.find(topic.name, topic.topic_id, by_id=True)
        if isinstance(known, int):
            self._host(topic)
            return
        known.config = self._config.topic_config(topic.configs)
        for partition in known.partitions:
            partition.configure(known.config)
        for index in range(len(known.partitions), len(topic.partitions)):
            known.partitions.append(self._partition(known, topic, index))

    def drop(self, name: str) -> None:
        """Stop hosting a topic and delete its files in the background."""
        for partition in self._replicas.remove(name).partitions:
            if partition.log is not None:
                self._logs.delete(partition.log)

    def configure(self, config: BrokerConfig, topics: Iterable[TopicImage]) -> None:
        """Put changed broker settings into force; topics follow where they set nothing themselves."""
        self._config = config
        for topic in topics:
            self.apply(topic)

    def open_log(self, partition: Partition, opened: Callable[[Log | int], None]) -> None:
        """Make the files as a job, then note their directory; `opened` gets the log once both are durable."""
        key = (partition.topic, partition.index)  # a topic of the same name may be on its way out or in
        self._turns.take(key, lambda end: Opening(self, self._logs, self._notes, partition, opened, end).start())

    def _host(self, topic: TopicImage) -> HostedTopic:
        hosted = HostedTopic(topic.name, topic.topic_id, self._config.topic_config(topic.configs))
        hosted.partitions.extend(self._partition(hosted, topic, index) for index in range(len(topic.partitions)))
        self._replicas.add(hosted)
        return hosted

    def _partition(self, hosted: HostedTopic, topic: TopicImage, index: int) -> Partition:
        image = topic.partitions[index]
        kind = InternalPartition if is_internal(topic.name) else Partition
        return kind(topic.name, topic.topic_id, index, hosted.config, self, image.leader_epoch, image.isr)


class Opening:
    """The first opening of one partition's log: files, note, log."""

    def __init__(
        self,
        hosting: Hosting,
        logs: LogManager,
        notes: DirectoryNotes,
        partition: Partition,
        opened: Callable[[Log | int], None],
        end: Callable[[], None],
    ) -> None:
        self._hosting = hosting
        self._logs = logs
        self._notes = notes
        self._partition = partition
        self._opened = opened
        self._end = end
        self._settled = False

    def start(self) -> None:
        partition, directory = self._partition, self._logs.choose_directory()
        taken = (partition.topic, partition.index) in self._hosting.left_alone
        if partition.error or taken or directory is None:  # deleted meanwhile, or nowhere to go
            self._settle(partition.error or KafkaErrorCode.KAFKA_STORAGE_ERROR)
            return
        self._directory = directory
        identity = (directory, partition.topic, partition.index, partition.topic_id, partition.config)
        self._logs.make(*identity, done=self._created)

    def _created(self, outcome: Outcome) -> None:
        partition = self._partition
        if outcome.error is not None:
            LOGGER.error("%s-%d: cannot make its files: %s", partition.topic, partition.index, outcome.error)
            known = isinstance(outcome.error, OSError)
            if isinstance(outcome.error, OSError):
                self._logs.note(self._directory, outcome.error)
            self._settle(KafkaErrorCode.KAFKA_STORAGE_ERROR if known else KafkaErrorCode.UNKNOWN_SERVER_ERROR)
            if not known:
                raise outcome.error
            return
        try:
            self._add(outcome.value)
        except Exception:
            self._settle(KafkaErrorCode.UNKNOWN_SERVER_ERROR)
            raise

    def _add(self, log: Log) -> None:
        partition = self._partition
        self._logs.add(log)
        directory_id = self._logs.directory_id(log.root)
        self._notes.note_directory(
            partition.topic_id, partition.index, directory_id, lambda error: self._noted(log, error)
        )

    def _noted(self, log: Log, error: int) -> None:
        error = error or self._partition.error
        if not error:
            log.config = self._partition.config
            self._settle(log)
            return
        try:  # the note failed, or the topic was deleted meanwhile
            self._logs.delete(log)
        finally:
            self._settle(error)

    def _settle(self, opened: Log | int) -> None:
        """The first end counts: what is raised behind it comes by here again on its way up."""
        if self._settled:
            return
        self._settled = True
        try:
            self._opened(opened)
        finally:
            self._end()
