"""Hosts partitions: they find, create and open their files, get changed configs, and are dropped.

This is the base of `hosted_partitions`, which hosts every partition of the image, and of `assigned_partitions`, which
hosts what the controller assigns.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kafkalite.clock import Clock, Offload, Outcome
from kafkalite.cluster.configs.reads import Texts
from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.replicas import HostedTopic, Replicas
from kafkalite.cluster.topics.internal_topics import InternalPartition
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.server.configs.config_problems import ConfigProblems
from kafkalite.server.hosting.partition_creation import DirectoryRecords, PartitionCreator
from kafkalite.slicing import Slicer, Steps, group_steps
from kafkalite.state.topic_names import is_internal
from kafkalite.storage.log.log import Log
from kafkalite.storage.manager import LogManager

if TYPE_CHECKING:  # only in a cluster, and with transactions
    from kafkalite.cluster.isr.isr_requests import IsrRequests
    from kafkalite.cluster.partition.verification import TransactionChecks

LOGGER = logging.getLogger("kafkalite.server")


class PartitionHosting:
    """The host of partitions (`cluster.partition.PartitionHost`).

    Arguments:
        config: configs of the broker, replaced by `configure`.
        clock: of the partitions.
        offload: runs the jobs of the partitions.
        slicer: opens logs, and queues creations, within the time budget of a loop iteration.
        replicas: where handlers look partitions up.
        logs: the log directories.
        notes: records the directories of partitions.

    Attributes:
        isr_requests: requests ISR changes; None: no other broker has replicas.
        left_alone: partitions in whose directories nothing may be created.
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
        self.report = replicas.report
        self._config = config
        self._replicas = replicas
        self._logs = logs
        self._slicer = slicer
        self._problems = ConfigProblems()
        self._notes = notes
        self.isr_requests: IsrRequests | None = None
        self._creations = PartitionCreator(clock, slicer, logs, notes)
        self.left_alone: set[TopicPartition] = set()
        logs.on_created_offline = self._created_offline

    @property
    def replica_lag_max_ms(self) -> int:
        """How long a follower may lag (`replica.lag.time.max.ms`)."""
        return self._config.replica_lag_time_max_ms

    @property
    def transaction_checks(self) -> "TransactionChecks":
        """Asks the coordinators of transactions."""
        return self._replicas.transaction_checks

    def is_live(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the registration of a broker with this epoch is the present one. No other broker has replicas."""
        return False

    def open_log(self, partition: Partition, opened: Callable[[Log | int], None]) -> None:
        """Open the log of a partition; its files are created first if there are none, before those of partitions
        without appends.

        `opened` is called with the log, or with a Kafka error code.
        """
        if (partition.topic, partition.index) in self.left_alone:
            opened(KafkaErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self._creations.open(partition, opened)

    def stop_fetching(self, partition: Partition) -> None:
        """The log of a partition must not change for a while. A broker that is alone fetches nothing."""

    def continue_fetching(self, partition: Partition) -> None:
        """The log of a partition may change again."""

    def note_directory(self, partition: Partition, directory: str, then: Callable[[int], None]) -> None:
        """Record the log directory of a partition that was moved, by its id; `then` receives a Kafka error code."""
        self._notes.note_directories([(partition.topic_id, partition.index)], directory, then)

    def close(self) -> None:
        """Stop creating partitions."""
        self._creations.close()

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed broker configs; topics use them where they set nothing themselves."""
        self._config = config
        self._slicer.run(group_steps(self._configuring_all()), Outcome.result)

    def _configuring_all(self) -> Steps:
        for hosted in list(self._replicas):
            if self._replicas.find(hosted.name, hosted.topic_id, by_id=True) is hosted:
                yield from self._configuring(hosted)

    def _configuring(self, hosted: HostedTopic) -> Steps:
        """Apply the configs of a hosted topic: its own and those of the broker."""
        hosted.config = self._topic_config(hosted.name, hosted.overrides)
        for partition in list(hosted.partitions.values()):
            partition.configure(hosted.config)  # the newest, also where another change goes on beside this one
            yield

    def _topic_config(self, topic: str, overrides: Texts | None) -> TopicConfig:
        """The configs of a topic: its own, which may be of another version or written by hand, and those of the broker.

        Arguments:
            topic: its name, for the log.
            overrides: as stored; None: they cannot be read, so nothing of the topic is deleted.
        """
        stored = self._config.stored_topic_config(overrides)
        self._problems.report_topic(topic, stored)
        return stored.config

    def _partition(self, hosted: HostedTopic, index: int, state: PartitionImage) -> Partition:
        """A partition of a topic, which does not have its files yet."""
        kind = InternalPartition if is_internal(hosted.name) else Partition
        counts = state.leader_epoch, state.isr, len(state.replicas)
        return kind(hosted.name, hosted.topic_id, index, hosted.config, self, *counts)

    def _use_files(self, partition: Partition, *, leads: bool) -> bool:
        """Let a partition use the files that recovery found for it; returns whether there are any.

        A partition whose files cannot be used is offline.

        Arguments:
            partition: of which this broker has no log yet.
            leads: whether this broker leads it, so that its leader epoch begins.
        """
        key = TopicPartition(partition.topic, partition.index)
        log = self._logs.find(*key)
        if log is not None:
            if leads:
                log.begin_leadership(partition.leader_epoch)
            partition.adopt(log)
            if log.failed:  # its directory went offline while it was read
                partition.close(KafkaErrorCode.KAFKA_STORAGE_ERROR)
        elif key in self._logs.refused:
            partition.close(KafkaErrorCode.KAFKA_STORAGE_ERROR)
            refused = self._logs.refused[key]
            LOGGER.error(
                "%s-%d is offline, its files are unchanged: %s. Restore %s from a backup; or stop the broker and run "
                "`kafkalite log truncate %s`, which lists what can be kept; or delete the topic",
                *key, refused.reason, refused.directory, refused.directory,
            )  # fmt: skip
        elif key in self._logs.created:
            if not self._logs.is_online(self._logs.created[key]):
                partition.close(KafkaErrorCode.KAFKA_STORAGE_ERROR)
        else:
            return False
        return True

    def _dropping(self, partitions: Iterable[Partition]) -> Steps:
        for partition in list(partitions):
            self._drop(partition)
            yield

    def _drop(self, partition: Partition) -> None:
        """Delete the files of a closed partition."""
        if partition.log is not None:
            self._logs.delete(partition.log)
        elif not self._creations.drop(partition) and (partition.topic, partition.index) not in self.left_alone:
            self._logs.delete_refused(partition.topic, partition.index, partition.config.file_delete_delay_ms)

    def _created_offline(self, keys: list[TopicPartition]) -> None:
        """Take created partitions of a failed log directory offline."""
        for topic, index in keys:
            partition = self._replicas.partition(topic, b"", index, by_id=False)
            if not isinstance(partition, KafkaErrorCode):
                partition.close(KafkaErrorCode.KAFKA_STORAGE_ERROR)
