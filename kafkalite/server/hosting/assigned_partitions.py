"""Hosts the partitions that the controller assigns to this broker: LeaderAndIsr and StopReplica.

1. A partition whose log exists uses it, if the topic id is the same. Other files of a partition with one replica are
   created as on a broker that is alone: in the background, at the latest at the first append. The controller is
   answered before that. Those of partitions with several replicas are created at once, and the answer waits for them
   (`replica_roles`).
2. This broker leads a partition, or follows its leader and rejects the requests of clients with
   NOT_LEADER_OR_FOLLOWER.
3. Only a StopReplica request that says so deletes a log. A log without an assignment is deleted only if the controller
   has announced the deletion of its topic id in UpdateMetadata: StopReplica has names alone.
4. A full LeaderAndIsr request (`type` = 2) names everything that this broker hosts. Logs that it does not name are
   renamed to strays, reported and kept, before it is applied: a log of another topic id gives way to the assigned one.
5. A new partition is created in any case. Another one without files is offline while a log directory is offline, is new
   or has lost partitions (`missing_logs`): its files may be elsewhere. Else it is created empty, as in Apache Kafka. A
   partition whose log has become a stray is offline until the next start returns the stray (`returned_strays`). With
   several replicas, `replica_files` decides instead, and a log of another topic id becomes a stray.

Which states of a LeaderAndIsr request are applied, and which are refused: `leader_and_isr`.

Sources: ReplicaManager.becomeLeaderOrFollower, ReplicaManager.stopReplicas, LogManager.getOrCreateLog of Apache Kafka
3.9. Deviation: a failed creation of files is repeated at the next append; Kafka takes the log directory offline.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from kafkalite.callbacks import call_all
from kafkalite.clock import Clock, Offload, Outcome
from kafkalite.cluster.configs.reads import Texts
from kafkalite.cluster.metadata.image import UNASSIGNED_ID, ClusterTables, PartitionImage
from kafkalite.cluster.metadata.update import FULL
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.replicas import HostedTopic, Replicas
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from kafkalite.protocol.messages.stop_replica import StopReplicaRequest
from kafkalite.server.hosting.leader_and_isr import LeaderAndIsrStates, Overrides, TopicState
from kafkalite.server.hosting.missing_logs import FIRST_EPOCH, MissingLogs
from kafkalite.server.hosting.partition_hosting import PartitionHosting
from kafkalite.server.hosting.replica_files import ReplicaFiles
from kafkalite.server.hosting.replica_roles import ReplicaRoles
from kafkalite.server.hosting.unknown_logs import NOT_ASSIGNED, UnassignedLogs, report_strays
from kafkalite.slicing import Slicer, group_steps
from kafkalite.storage.dirs import stray_partitions
from kafkalite.storage.log.log import Log
from kafkalite.storage.manager import LogManager

LOGGER = logging.getLogger("kafkalite.server")
STORAGE_ERROR = KafkaErrorCode.KAFKA_STORAGE_ERROR
EPOCH_DURING_DELETE = -2
NO_EPOCH = -1  # of requests without leader epochs


class PartitionError(NamedTuple):
    """The result for one partition of a request: a Kafka error code, 0 = applied."""

    topic: str
    topic_id: bytes
    partition: int
    error: int


class StoppedPartition(NamedTuple):
    """One partition of a StopReplica request, of any version."""

    topic: str
    partition: int
    leader_epoch: int
    delete: bool


class LeadershipChanges(Protocol):
    """Is called when this broker becomes or ceases to be the leader of a partition."""

    def elected(self, partition: Partition) -> None:
        """It leads the partition: called once while `partition.is_behind`, once when all records can be read, and in
        each new leader epoch under this leader.
        """

    def resigned(self, partition: Partition) -> None:
        """It leads the partition no more."""


class NoDirectoryRecords:
    """The directory records of a broker in a cluster: only the embedded tree has them."""

    keeps = False

    def note_directories(
        self, partitions: Iterable[tuple[bytes, int]], directory: str, then: Callable[[int], object]
    ) -> None:
        """Call `then` with 0; the arguments are those of `DirectoryRecords`."""
        then(0)


class AssignedPartitions(PartitionHosting):
    """The partitions of a broker in a cluster.

    Arguments:
        broker_id: of this broker.
        tables: the live brokers of the cluster.
        changes: receives the leaderships that begin and end.
        config, clock, offload, slicer, replicas, logs: see `PartitionHosting`.

    Attributes:
        initializing: topics that are being hosted, and whether their configs were changed meanwhile.
        roles: of the partitions with several replicas.
        states: applies or refuses the states of LeaderAndIsr requests.
    """

    def __init__(
        self,
        broker_id: int,
        tables: ClusterTables,
        changes: LeadershipChanges,
        config: BrokerConfig,
        clock: Clock,
        offload: Offload,
        slicer: Slicer,
        replicas: Replicas,
        logs: LogManager,
    ) -> None:
        super().__init__(config, clock, offload, slicer, replicas, logs, NoDirectoryRecords())
        self.initializing: dict[str, bool] = {}
        self._broker_id = broker_id
        self._tables = tables
        self._changes = changes
        self.roles = ReplicaRoles(broker_id, self, logs, clock)
        self._files = ReplicaFiles(broker_id, logs)
        self._missing = MissingLogs(logs, offload)
        self.states = LeaderAndIsrStates(broker_id, self, replicas, logs, self.roles, self._files)

    def is_live(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker is alive in the image, which has no broker epochs: the controller compares them."""
        return broker_id in self._tables.brokers

    def open_log(self, partition: Partition, opened: Callable[[Log | int], None]) -> None:
        """See `PartitionHosting`; a replica that waits for its log gets its role."""

        def then(result: Log | int) -> None:
            call_all(partial(opened, result), partial(self.roles.log_opened, partition, result))

        super().open_log(partition, then)

    def stop_fetching(self, partition: Partition) -> None:
        """Append nothing that is fetched to the log of a partition, until `continue_fetching`."""
        self.roles.fetchers.stop(partition)

    def continue_fetching(self, partition: Partition) -> None:
        """Fetch a partition again, if this broker follows it."""
        self.roles.continue_fetching(partition)

    def logs_offline(self, logs: Iterable[Log]) -> None:
        """Fetch nothing for the logs of a failed log directory; their partitions are closed."""
        for log in logs:
            partition = self._partition_of(log.topic, log.partition)
            if partition is not None:
                self.roles.fetchers.stop(partition)

    # LeaderAndIsr.

    def topics_to_host(self, request: LeaderAndIsrRequest) -> Generator[None, None, list[str]]:
        """Return the topics in a request whose configs are needed, because no partition of them is hosted yet."""
        found: list[str] = []
        for topic in request.topic_states:
            hosted = self._replicas.hosted_topic(topic.topic_name)
            if hosted is None and any(self._broker_id in state.replicas for state in topic.partition_states):
                found.append(topic.topic_name)
            yield
        return found

    def leaving(self, request: LeaderAndIsrRequest, deletions: Mapping[str, bytes]) -> Generator[None, None, None]:
        """Before a full request is applied: stop hosting what it does not name, and rename the logs without an
        assignment to strays.

        Arguments:
            request: with all partitions of this broker.
            deletions: the topic ids whose deletion the controller has announced, by name.
        """
        assigned: dict[TopicPartition, bytes] = {}
        for topic in request.topic_states:
            for state in topic.partition_states:
                if self._broker_id in state.replicas:
                    assigned[TopicPartition(topic.topic_name, state.partition_index)] = topic.topic_id
                yield
        for partition in self._all():
            key = TopicPartition(partition.topic, partition.index)
            if assigned.get(key) != partition.topic_id:
                self.remove(partition)
                if key not in self._logs.created:
                    self._creations.drop(partition)
            yield
        for key in list(self._logs.created):
            if key in self._logs.created and assigned.get(key) != self._logs.topic_ids[key]:
                self.open_unassigned(key)
            yield
        delay_ms = self._config.topic_defaults.file_delete_delay_ms
        logs = UnassignedLogs(assigned, self._replicas, self._logs, frozenset(deletions.values()), delay_ms)
        found = yield from logs.handling()
        self.left_alone |= logs.left_alone
        if found:
            report_strays(self._logs.disk, self._logs.strays, NOT_ASSIGNED)

    def open_unassigned(self, key: TopicPartition) -> None:
        """Open the files of a partition that never had a record, so that they are handled like other logs."""
        try:
            self._logs.open_created(*key, self._config.topic_defaults)
        except OSError as error:
            self._logs.report_disk_error(self._logs.forget_created(key), error)

    def assigning(
        self, request: LeaderAndIsrRequest, overrides: Overrides, is_current: Callable[[], bool]
    ) -> Generator[None, None, list[PartitionError]]:
        """Apply a request; yields after each partition. Returns the results, which `roles.when_ready` completes.

        Arguments:
            request: accepted and checked.
            overrides: the configs of its topics that were not hosted, by name.
            is_current: returns whether the registration to which the request belongs still exists.
        """
        results: list[PartitionError] = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                error: int = KafkaErrorCode.STALE_BROKER_EPOCH
                if is_current():
                    error = self.states.apply(topic, state, overrides.get(topic.topic_name, {}))
                results.append(PartitionError(topic.topic_name, topic.topic_id, state.partition_index, error))
                yield
        self.flusher.begin()  # of partitions that are led again
        self._missing.report()
        self._files.report()
        if request.type == FULL:
            yield from self._missing.confirming(self._all())
        return results

    def _all(self) -> list[Partition]:
        return [partition for hosted in self._replicas for partition in hosted.partitions.values()]

    def host(
        self,
        topic: TopicState,
        state: LeaderAndIsrPartitionState,
        image: PartitionImage,
        overrides: Texts | None,
    ) -> Partition:
        """Host a partition, which has no role yet.

        Arguments:
            topic, state: of the request.
            image: the same state.
            overrides: the configs of a topic that is not hosted yet.

        Returns the partition; it has a defect if its log cannot be used.
        """
        key = TopicPartition(topic.topic_name, state.partition_index)
        hosted = self._replicas.hosted_topic(key.topic)
        if hosted is None:
            config = self._topic_config(key.topic, overrides)
            hosted = HostedTopic(key.topic, topic.topic_id, config, overrides)
            self._replicas.add(hosted)
        partition = self._partition(hosted, key.partition, image)
        partition.resign()
        partition.leader_epoch = NO_EPOCH
        hosted.partitions[key.partition] = partition
        self._set_incomplete_aside(key)
        if len(image.replicas) > 1:
            self._find_replica(partition, key, state, image)
        else:
            self._find_files(partition, key, state, image)
        if partition.log is not None and not partition.defect:
            partition.configure(hosted.config)
        return partition

    def _find_files(
        self, partition: Partition, key: TopicPartition, state: LeaderAndIsrPartitionState, image: PartitionImage
    ) -> None:
        """Use the files of a partition with one replica, create them in the background, or take it offline."""
        leads = image.leader == self._broker_id
        if self._use_files(partition, leads=False):
            return
        may_exist = self._is_stray(key, partition.topic_id) or self._may_be_elsewhere(key, is_new=state.is_new)
        if may_exist or not self._missing.may_create(key, image.leader_epoch, leads=leads, is_new=state.is_new):
            partition.close(STORAGE_ERROR)
        else:
            self._creations.add(partition)

    def _may_be_elsewhere(self, key: TopicPartition, *, is_new: bool) -> bool:
        online = key not in self.left_alone and self._logs.choose_directory() is not None
        if online and (is_new or self._all_online):
            return False
        LOGGER.error("%s is offline: its files may be in a log directory that is offline", key)
        return True

    def _find_replica(
        self, partition: Partition, key: TopicPartition, state: LeaderAndIsrPartitionState, image: PartitionImage
    ) -> None:
        """Use the files of one of several replicas, let it begin empty, or take it offline; `roles` creates files."""
        is_new, recovery = state.is_new, state.leader_recovery_state
        empty = self._files.may_begin_empty(image, is_new=is_new, recovery_state=recovery)
        is_damaged, leads = key in self._logs.refused, image.leader == self._broker_id
        if empty and is_damaged:
            self._files.set_aside(key)
        empty = empty or (not is_damaged and self._missing.is_complete)
        if self._use_files(partition, leads=False):
            if partition.log is None and partition.defect:
                self._files.take_offline(key)
        elif self._may_be_elsewhere(key, is_new=is_new):
            partition.close(STORAGE_ERROR)
        elif not empty or (leads and not is_damaged and self._is_stray(key, partition.topic_id)):
            partition.close(STORAGE_ERROR)
            self._files.take_offline(key)
        else:
            self._files.begin_empty(key, is_new=is_new or image.leader_epoch == FIRST_EPOCH)

    def _is_stray(self, key: TopicPartition, topic_id: bytes) -> bool:
        """Whether a stray has the records of a partition that has no files: an empty log must not replace them."""
        try:
            stray = stray_partitions.with_offsets(self._logs.disk, self._logs.strays, key, topic_id)
        except OSError as error:
            LOGGER.error("%s is offline: it cannot be compared with the strays: %s", key, error)
            return True
        if stray is None:
            return False
        LOGGER.error("%s is offline: its log was made the stray %s; start the broker again to use it", key, stray.name)
        return True

    def _set_incomplete_aside(self, key: TopicPartition) -> None:
        """Rename the directory of an interrupted creation to a stray, so that the files are created again."""
        try:
            if self._logs.is_incomplete(key):
                renamed = self._logs.set_stray(key, None)
                LOGGER.warning("%s: its creation was interrupted; what is there is kept as %s", key, renamed)
        except OSError as error:
            LOGGER.error("%s: its directory cannot be renamed: %s", key, error)

    def change_leader(self, partition: Partition, image: PartitionImage, *, leads: bool) -> None:
        """Lead or follow a partition with one replica."""
        led = not partition.error
        if leads:
            self.begin_leading(partition, image)
            return
        partition.follow(image)
        if led:
            self._changes.resigned(partition)

    def begin_leading(self, partition: Partition, image: PartitionImage) -> None:
        """Lead a partition, or continue to lead it in another leader epoch."""
        led, epoch = not partition.error, partition.leader_epoch
        partition.lead(image, nothing if led else partial(self._changes.elected, partition))
        if (partition.leader_epoch != epoch) if led else partition.is_behind:
            self._changes.elected(partition)
        if not led and len(image.replicas) > 1:
            self.roles.answer_followers()
        if partition.log is not None:
            partition.log.begin_leadership(partition.leader_epoch)

    # StopReplica.

    def stopping(
        self, request: StopReplicaRequest, deletions: Mapping[str, bytes]
    ) -> Generator[None, None, list[PartitionError]]:
        """Apply a request; yields after each partition. Returns the results.

        Arguments:
            request: accepted.
            deletions: the topic ids whose deletion the controller has announced, by name.
        """
        results: list[PartitionError] = []
        for stopped in stopped_partitions(request):
            error = self._stop(stopped, deletions)
            results.append(PartitionError(stopped.topic, UNASSIGNED_ID, stopped.partition, error))
            yield
        return results

    def _stop(self, stopped: StoppedPartition, deletions: Mapping[str, bytes]) -> int:
        key = TopicPartition(stopped.topic, stopped.partition)
        partition = self._partition_of(*key)
        if partition is None:
            if stopped.delete:
                self._delete_unassigned(key, deletions)
            return 0
        if partition.defect and key not in self._logs.refused and key not in self._files.lost:
            return STORAGE_ERROR
        if NO_EPOCH < stopped.leader_epoch < partition.leader_epoch:
            return KafkaErrorCode.FENCED_LEADER_EPOCH
        if stopped.delete:
            self.remove(partition)
            self._drop(partition)
        else:
            self.roles.end(partition)
        return 0

    def resigning(self) -> Generator[None, None, None]:
        """Lead and follow no partition until the controller assigns it again, for the next registration."""
        for partition in self._all():
            if partition.role is not None:
                self.roles.end(partition)
            yield

    @property
    def replicated(self) -> list[Partition]:
        """The partitions with several replicas of which this broker has a role."""
        return [each for each in self._all() if each.role is not None and each.is_replicated]

    def end_leading(self, partition: Partition) -> None:
        """Let a partition have no role."""
        led = not partition.error
        partition.resign()
        if led:
            self._changes.resigned(partition)

    def remove(self, partition: Partition) -> None:
        """Stop hosting a partition; its files stay."""
        led = not partition.error
        self.roles.fetchers.stop(partition)
        self._files.lost.discard(TopicPartition(partition.topic, partition.index))
        self._replicas.remove_partition(partition.topic, partition.index)
        if led:
            self._changes.resigned(partition)

    def _delete_unassigned(self, key: TopicPartition, deletions: Mapping[str, bytes]) -> None:
        """Delete a log that no partition uses: its topic was deleted while this broker was down (rule 3)."""
        topic_id = self._logs.topic_ids.get(key)
        if topic_id is None:
            return
        if deletions.get(key.topic) != topic_id:
            LOGGER.warning("%s: the log is kept: the controller has not announced the deletion of its topic id", key)
            return
        log = self._logs.find(*key)
        if log is not None:
            self._logs.delete(log)
        else:
            self._logs.delete_created(*key, self._config.topic_defaults.file_delete_delay_ms)

    # Look-ups.

    def begin_hosting(self, topics: Iterable[str]) -> None:
        """Note topics whose configs are read and whose partitions are hosted then, in several loop iterations."""
        self.initializing.update(dict.fromkeys(topics, False))

    def end_hosting(self, topics: Iterable[str]) -> list[str]:
        """Return those of the topics whose configs were changed meanwhile: they must be read again."""
        return [topic for topic in topics if self.initializing.pop(topic, False)]

    def configure_topic(self, name: str, overrides: Texts | None) -> None:
        """Apply the changed configs of a topic, if a partition of it is hosted. If it is being hosted, its configs may
        have been read before: they are read again then (as Kafka's `partitionsInitializing`, KAFKA-8813).
        """
        if name in self.initializing:
            self.initializing[name] = True
        hosted = self._replicas.hosted_topic(name)
        if hosted is not None:
            hosted.overrides = overrides
            self._slicer.run(group_steps(self._configuring(hosted)), Outcome.result)

    def _partition_of(self, topic: str, index: int) -> Partition | None:
        return self._replicas.hosted_partition(TopicPartition(topic, index))

    @property
    def _all_online(self) -> bool:
        return len(self._logs.online()) == len(self._logs.directories())


def nothing() -> None:
    """A new epoch of the same leader: nothing to announce."""


def stopped_partitions(request: StopReplicaRequest) -> Iterator[StoppedPartition]:
    """The partitions of a StopReplica request of any version."""
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield StoppedPartition(topic.topic_name, state.partition_index, state.leader_epoch, state.delete_partition)
    delete = request.delete_partitions
    for named in request.topics:
        for index in named.partition_indexes:
            yield StoppedPartition(named.name, index, NO_EPOCH, delete)
    for one in request.ungrouped_partitions:
        yield StoppedPartition(one.topic_name, one.partition_index, NO_EPOCH, delete)
