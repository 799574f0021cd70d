"""The partitions this broker hosts, brought in line with the image: made, opened at their first append, grown, deleted.

A partition's files appear at its first append. They are made, then the store notes their directory, then the batch is
taken. So a partition whose noted directory or files are missing at start is offline (KAFKA_STORAGE_ERROR), never
silently empty, and a crash in between leaves an empty log and not a partition that is offline for ever.
"""

import logging
import os
from collections.abc import Callable, Iterable, Set
from typing import Protocol

from kafkalite.clock import Clock, Offload, Outcome
from kafkalite.cluster.image import TopicImage
from kafkalite.cluster.internal import InternalPartition
from kafkalite.cluster.partition import Partition
from kafkalite.cluster.replicas import HostedTopic, Replicas
from kafkalite.cluster.turns import Turns
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.server.unknown_logs import UnknownLogs
from kafkalite.state.topic_names import is_internal
from kafkalite.storage import names
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
        self.loop_budget = replicas.loop_budget
        self._config = config
        self._replicas = replicas
        self._logs = logs
        self._notes = notes
        self._turns = Turns()
        self.left_alone: set[tuple[str, int]] = set()

    def load(
        self,
        topics: Iterable[TopicImage],
        noted: Callable[[bytes, int], str | None],
        deleted: Set[bytes] = frozenset(),
    ) -> None:
        """Host every partition of these topics with the log that recovery found for it.

        Arguments:
            noted: returns the recorded log directory of a partition, None for one without files.
            deleted: ids of the topics whose deletion is recorded.
        """
        hosted = [self._host(topic) for topic in topics]
        unknown = UnknownLogs(self._replicas, self._logs, noted, deleted)
        unknown.handle()
        self.left_alone = unknown.left_alone
        for topic in hosted:
            for partition in topic.partitions:
                self._load_partition(partition, noted(topic.topic_id, partition.index))

    def _load_partition(self, partition: Partition, directory: str | None) -> None:
        key = partition.topic, partition.index
        log = self._logs.find(*key)
        if log is not None:
            self._begin_leadership(partition, log)
            partition.adopt(log)
            if log.failed:  # its directory went offline while it was read
                partition.error = KafkaErrorCode.KAFKA_STORAGE_ERROR
        elif key in self._logs.refused:
            partition.error = KafkaErrorCode.KAFKA_STORAGE_ERROR
            refused = self._logs.refused[key]
            LOGGER.error(
                "%s-%d is offline, its files are unchanged: %s. Restore %s from a backup; or stop the broker and run "
                "`kafkalite log truncate %s`, which shows what can be kept; or delete the topic",
                *key, refused.reason, refused.directory, refused.directory,
            )  # fmt: skip
        elif directory is not None:
            partition.error = KafkaErrorCode.KAFKA_STORAGE_ERROR
            if key not in self.left_alone:
                self._report_missing(partition, directory)

    def _begin_leadership(self, partition: Partition, log: Log) -> None:
        try:
            log.begin_leadership(partition.leader_epoch)
        except OSError as error:
            self._logs.note(log.root, error)

    def _report_missing(self, partition: Partition, directory: str) -> None:
        name = names.directory_name(partition.topic, partition.index)
        stray = next((path for path in self._logs.strays if os.path.basename(path).startswith(f"{name}.")), None)
        if stray is not None:
            LOGGER.error(
                "%s is offline: its files may be those of %s. Stop the broker and run `kafkalite log stray %s`",
                name, stray, os.path.dirname(stray),
            )  # fmt: skip
            return
        LOGGER.error(
            "%s is offline: it has records, but there is no directory %s in %s. Stop the broker and restore that "
            "directory from a backup or from where it was moved to; or delete the topic",
            name, name, self._logs.describe_directory(directory),
        )  # fmt: skip

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
            elif (name, partition.index) not in self.left_alone:
                self._logs.delete_refused(name, partition.index)

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
        state = image.leader_epoch, image.isr, len(image.replicas)
        return kind(topic.name, topic.topic_id, index, hosted.config, self, *state)


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
