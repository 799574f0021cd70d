"""Brings the hosted partitions in line with the image: created, opened, grown, deleted.

A partition's files are created in the background after its topic, at the latest at its first append
(`partition_creation`). The store records their directory after that and before the first batch. So a partition whose
recorded directory or files are missing at start is offline (KAFKA_STORAGE_ERROR), never silently empty, and a crash in
between leaves an empty directory and no partition that stays offline.
"""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Set

from kafkalite.clock import Clock, Offload, Outcome
from kafkalite.cluster.image import TopicImage
from kafkalite.cluster.internal_topics import InternalPartition
from kafkalite.cluster.partition import Partition
from kafkalite.cluster.replicas import HostedTopic, Replicas
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.server.partition_creation import DirectoryRecords, PartitionCreator
from kafkalite.server.unknown_logs import UnknownLogs
from kafkalite.slicing import Slicer, Steps, grouped
from kafkalite.state.topic_names import is_internal
from kafkalite.storage import names
from kafkalite.storage.log.log import Log
from kafkalite.storage.manager import LogManager

LOGGER = logging.getLogger("kafkalite.server")


class HostedPartitions:
    """Turns topic images into hosted partitions.

    Arguments:
        config: configs of the broker, replaced by `configure`.
        clock: of the partitions.
        offload: runs the jobs of the partitions.
        slicer: opens logs, and queues creations, within the time budget of a loop iteration.
        replicas: where handlers look partitions up.
        logs: the log directories.
        notes: records the directories of partitions.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        offload: Offload,
        slicer: Slicer,
        replicas: Replicas,
        logs: LogManager,
        notes: DirectoryRecords,
    ) -> None:
        self.clock = clock
        self.offload = offload
        self.flusher = logs.flusher
        self.mark_dirty = replicas.mark_dirty
        self.loop_budget = replicas.loop_budget
        self._config = config
        self._replicas = replicas
        self._logs = logs
        self._slicer = slicer
        self._creations = PartitionCreator(clock, slicer, logs, notes)
        self.left_alone: set[TopicPartition] = set()
        logs.on_created_offline = self._created_offline

    def load(
        self,
        topics: Iterable[TopicImage],
        noted: Callable[[bytes, int], str | None],
        deleted: Set[bytes] = frozenset(),
    ) -> None:
        """Host every partition of these topics with the log that recovery found for it.

        Arguments:
            topics: of the cluster.
            noted: returns the recorded log directory of a partition, None for one without files.
            deleted: ids of the topics whose deletion is recorded.
        """
        topics = list(topics)
        hosted = [self._hosted(topic) for topic in topics]
        self._open_unknown(noted)
        delay_ms = self._config.topic_defaults.file_delete_delay_ms
        unknown = UnknownLogs(self._replicas, self._logs, noted, deleted, delay_ms)
        unknown.handle()
        self.left_alone = unknown.left_alone
        for topic in hosted:
            for partition in topic.partitions:
                self._load_partition(partition, noted(topic.topic_id, partition.index))

    def _open_unknown(self, noted: Callable[[bytes, int], str | None]) -> None:
        """Create partitions again that were created and not recorded; handle those without a topic like other logs."""
        for key in list(self._logs.created):
            topic_id = self._logs.topic_ids[key]
            assert topic_id is not None, "a created partition has its topic id"
            if isinstance(self._replicas.partition(key[0], topic_id, key[1], by_id=True), KafkaErrorCode):
                try:
                    self._logs.open_created(*key, self._config.topic_defaults)
                except OSError as error:
                    self._logs.report_disk_error(self._logs.forget_created(key), error)
            elif noted(topic_id, key[1]) is None:
                self._logs.forget_created(key)

    def _load_partition(self, partition: Partition, directory: str | None) -> None:
        key = TopicPartition(partition.topic, partition.index)
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
                "`kafkalite log truncate %s`, which lists what can be kept; or delete the topic",
                *key, refused.reason, refused.directory, refused.directory,
            )  # fmt: skip
        elif key in self._logs.created:
            if not self._logs.is_online(self._logs.created[key]):
                partition.error = KafkaErrorCode.KAFKA_STORAGE_ERROR
        elif directory is None:
            self._create_later(partition)
        else:
            partition.error = KafkaErrorCode.KAFKA_STORAGE_ERROR
            if key not in self.left_alone:
                self._report_missing(partition, directory)

    def _begin_leadership(self, partition: Partition, log: Log) -> None:
        try:
            log.begin_leadership(partition.leader_epoch)
        except OSError as error:
            self._logs.report_disk_error(log.root, error)

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
            "%s is offline: it has records, but %s is missing in %s. Stop the broker and restore that "
            "directory from a backup or from where it was moved to; or delete the topic",
            name, name, self._logs.describe_directory(directory),
        )  # fmt: skip

    def apply(self, topic: TopicImage, done: Callable[[Outcome], object] = Outcome.result) -> None:
        """Host a new topic, or apply the changes of a hosted one: configs, more partitions.

        Thousands of partitions are changed in slices; no client sees new partitions before all of them are hosted.

        Arguments:
            topic: the new image.
            done: called with the outcome. No other change of the topic may begin before.
        """
        known = self._replicas.find(topic.name, topic.topic_id, by_id=True)
        steps = self._hosting(topic) if isinstance(known, KafkaErrorCode) else self._changing(known, topic)
        self._slicer.run(grouped(steps), done)

    def _hosting(self, topic: TopicImage) -> Steps:
        config = self._config
        hosted = HostedTopic(topic.name, topic.topic_id, config.topic_config(topic.configs))
        for index in range(len(topic.partitions)):
            hosted.partitions.append(self._partition(hosted, topic, index))
            yield
        self._replicas.add(hosted)
        if config is not self._config:  # changed meanwhile, for the topics that were hosted then
            yield from self._configuring(hosted, topic)
        self._create_each(hosted.partitions)

    def _changing(self, known: HostedTopic, topic: TopicImage) -> Steps:
        yield from self._configuring(known, topic)
        added = []
        for index in range(len(known.partitions), len(topic.partitions)):
            added.append(self._partition(known, topic, index))
            yield
        for partition in added if added and added[0].config is not known.config else ():
            partition.configure(known.config)  # changed meanwhile
        known.partitions.extend(added)
        self._create_each(added)

    def _configuring(self, known: HostedTopic, topic: TopicImage) -> Steps:
        known.config = self._config.topic_config(topic.configs)
        for partition in known.partitions:
            partition.configure(known.config)  # the newest, also where another change goes on beside this one
            yield

    def drop(self, name: str, done: Callable[[Outcome], object] = Outcome.result) -> None:
        """Stop hosting a topic at once, and delete its files in the background.

        Arguments:
            name: of the topic.
            done: called with the outcome when all directories are renamed, thousands of them in slices. No topic of
                this name may be hosted before.
        """
        self._slicer.run(grouped(self._dropping(self._replicas.remove(name).partitions)), done)

    def _dropping(self, partitions: Iterable[Partition]) -> Steps:
        for partition in partitions:
            self._drop(partition)
            yield

    def _drop(self, partition: Partition) -> None:
        if partition.log is not None:
            self._logs.delete(partition.log)
        elif not self._creations.drop(partition) and (partition.topic, partition.index) not in self.left_alone:
            self._logs.delete_refused(partition.topic, partition.index, partition.config.file_delete_delay_ms)

    def configure(self, config: BrokerConfig, topics: Mapping[str, TopicImage]) -> None:
        """Apply changed broker configs; topics use them where they set nothing themselves.

        Arguments:
            config: the new configs.
            topics: the current topics by name; each slice reads them again.
        """
        self._config = config
        self._slicer.run(grouped(self._configuring_all(topics)), Outcome.result)

    def _configuring_all(self, topics: Mapping[str, TopicImage]) -> Steps:
        for name in list(topics):
            topic = topics.get(name)
            known = self._replicas.find(name, b"", by_id=False)
            if topic is not None and not isinstance(known, KafkaErrorCode) and known.topic_id == topic.topic_id:
                yield from self._configuring(known, topic)

    def open_log(self, partition: Partition, opened: Callable[[Log | int], None]) -> None:
        """Open the log of a partition; its files are created first if there are none, before those of partitions
        without appends.

        `opened` is called with the log, or with a Kafka error code.
        """
        if (partition.topic, partition.index) in self.left_alone:
            opened(KafkaErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self._creations.open(partition, opened)

    def close(self) -> None:
        """Stop creating partitions."""
        self._creations.close()

    def _create_each(self, partitions: Iterable[Partition]) -> None:
        """Queue the creation of new partitions in the background, which takes 5 us each."""
        self._slicer.run(grouped(self._creating(list(partitions))), Outcome.result)

    def _creating(self, partitions: Iterable[Partition]) -> Steps:
        for partition in partitions:
            if not partition.error:
                self._create_later(partition)
            yield

    def _create_later(self, partition: Partition) -> None:
        if (partition.topic, partition.index) not in self.left_alone:
            self._creations.add(partition)

    def _created_offline(self, keys: list[TopicPartition]) -> None:
        """Take created partitions of a failed log directory offline."""
        for topic, index in keys:
            partition = self._replicas.partition(topic, b"", index, by_id=False)
            if not isinstance(partition, KafkaErrorCode):
                partition.close(KafkaErrorCode.KAFKA_STORAGE_ERROR)

    def _hosted(self, topic: TopicImage) -> HostedTopic:
        hosted = HostedTopic(topic.name, topic.topic_id, self._config.topic_config(topic.configs))
        hosted.partitions.extend(self._partition(hosted, topic, index) for index in range(len(topic.partitions)))
        self._replicas.add(hosted)
        return hosted

    def _partition(self, hosted: HostedTopic, topic: TopicImage, index: int) -> Partition:
        image = topic.partitions[index]
        kind = InternalPartition if is_internal(topic.name) else Partition
        state = image.leader_epoch, image.isr, len(image.replicas)
        return kind(topic.name, topic.topic_id, index, hosted.config, self, *state)
