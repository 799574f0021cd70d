"""Brings the hosted partitions in line with the image: created, opened, grown, deleted.

A partition's files are created in the background after its topic, at the latest at its first append
(`partition_creation`). The store records their directory after that and before the first batch. So a partition whose
recorded directory or files are missing at start is offline (KAFKA_STORAGE_ERROR), never silently empty, and a crash in
between leaves an empty directory and no partition that stays offline.
"""

import logging
import os
from collections.abc import Callable, Iterable, Set

from kafkalite.clock import Outcome, Then
from kafkalite.cluster.metadata.image import TopicImage
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.replicas import HostedTopic
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.server.hosting.partition_hosting import PartitionHosting
from kafkalite.server.hosting.unknown_logs import UnknownLogs
from kafkalite.slicing import Steps, group_steps
from kafkalite.storage import names

LOGGER = logging.getLogger("kafkalite.server")


class HostedPartitions(PartitionHosting):
    """Turns topic images into hosted partitions; `PartitionHosting` describes the arguments."""

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
            for partition in topic.partitions.values():
                self._load_partition(partition, noted(topic.topic_id, partition.index))

    def _open_unknown(self, noted: Callable[[bytes, int], str | None]) -> None:
        """Open created partitions without a topic, so that they are handled like other logs."""
        for key in list(self._logs.created):
            topic_id = self._logs.topic_ids[key]
            assert topic_id is not None, "a created partition has its topic id"
            if isinstance(self._replicas.partition(key[0], topic_id, key[1], by_id=True), KafkaErrorCode):
                try:
                    self._logs.open_created(*key, self._config.topic_defaults)
                except OSError as error:
                    self._logs.report_disk_error(self._logs.forget_created(key), error)

    def _load_partition(self, partition: Partition, directory: str | None) -> None:
        if directory is None:
            self._delete_unrecorded(TopicPartition(partition.topic, partition.index), partition.config)
        if self._use_files(partition, leads=True):
            return
        if directory is None:
            self._create_later(partition)
        else:
            partition.close(KafkaErrorCode.KAFKA_STORAGE_ERROR)
            if (partition.topic, partition.index) not in self.left_alone:
                self._report_missing(partition, directory)

    def _delete_unrecorded(self, key: TopicPartition, config: TopicConfig) -> None:
        try:
            self._logs.delete_unrecorded(key, config.file_delete_delay_ms)
        except OSError as error:
            LOGGER.error("%s-%d: cannot read what its creation has left: %s", *key, error)

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

    def apply(self, topic: TopicImage, done: Then = Outcome.result) -> None:
        """Host a new topic, or apply the changes of a hosted one: configs, more partitions.

        Thousands of partitions are changed in slices; no client sees new partitions before all of them are hosted.

        Arguments:
            topic: the new image.
            done: called with the outcome. No other change of the topic may begin before.
        """
        known = self._replicas.find(topic.name, topic.topic_id, by_id=True)
        steps = self._hosting(topic) if isinstance(known, KafkaErrorCode) else self._changing(known, topic)
        self._slicer.run(group_steps(steps), done)

    def _hosting(self, topic: TopicImage) -> Steps:
        config = self._config
        own = self._topic_config(topic.name, topic.configs)
        hosted = HostedTopic(topic.name, topic.topic_id, own, topic.configs)
        for index, state in enumerate(topic.partitions):
            hosted.partitions[index] = self._partition(hosted, index, state)
            yield
        self._replicas.add(hosted)
        if config is not self._config:  # changed meanwhile, for the topics that were hosted then
            yield from self._configuring(hosted)
        self._create_each(hosted.partitions.values())

    def _changing(self, known: HostedTopic, topic: TopicImage) -> Steps:
        known.overrides = topic.configs
        yield from self._configuring(known)
        added = {}
        for index in range(len(known.partitions), len(topic.partitions)):
            added[index] = self._partition(known, index, topic.partitions[index])
            yield
        for partition in added.values():
            if partition.config is not known.config:
                partition.configure(known.config)  # changed meanwhile
        known.partitions.update(added)
        self._create_each(added.values())

    def drop(self, name: str, done: Then = Outcome.result) -> None:
        """Stop hosting a topic at once, and delete its files in the background.

        Arguments:
            name: of the topic.
            done: called with the outcome when all directories are renamed, thousands of them in slices. No topic of
                this name may be hosted before.
        """
        self._problems.forget_topic(name)
        self._slicer.run(group_steps(self._dropping(self._replicas.remove(name).partitions.values())), done)

    def _create_each(self, partitions: Iterable[Partition]) -> None:
        """Queue the creation of new partitions in the background, which takes 5 us each."""
        self._slicer.run(group_steps(self._creating(list(partitions))), Outcome.result)

    def _creating(self, partitions: Iterable[Partition]) -> Steps:
        for partition in partitions:
            if not partition.error:
                self._create_later(partition)
            yield

    def _create_later(self, partition: Partition) -> None:
        if (partition.topic, partition.index) not in self.left_alone:
            self._creations.add(partition)

    def _hosted(self, topic: TopicImage) -> HostedTopic:
        config = self._topic_config(topic.name, topic.configs)
        hosted = HostedTopic(topic.name, topic.topic_id, config, topic.configs)
        for index, state in enumerate(topic.partitions):
            hosted.partitions[index] = self._partition(hosted, index, state)
        self._replicas.add(hosted)
        return hosted
