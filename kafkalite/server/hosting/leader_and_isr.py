"""Applies the state of a partition in a LeaderAndIsr request to this broker, or refuses it.

1. Each leadership begins in an epoch above all of the log, and no follower has a log with epochs above the assigned
   one. An older tree has lower ones: FENCED_LEADER_EPOCH lets the controller elect in a higher one. Clients find by the
   new epoch whether records are lost (KIP-320); those that know a higher one would ignore it.
2. Roles change only for the registration to which a request belongs: after its end the others of the request are
   refused with STALE_BROKER_EPOCH.
3. A state of the present leader epoch is refused with STALE_CONTROLLER_EPOCH, but a leader uses one with a later
   partition epoch, which the controller sends when the leader's change is of an old one.

A state with several replicas first removes a log that prevents the replica from beginning (`_give_way`).
`assigned_partitions` calls this for each partition of a request, and hosts the partitions; `replica_roles` begins the
roles of replicas.

Source: ReplicaManager.becomeLeaderOrFollower of Apache Kafka 3.9. Deviation: in ZooKeeper mode Kafka refuses all states
of the present leader epoch, so a leader whose changes are answered with INVALID_UPDATE_VERSION changes its ISR no more
until the next epoch. Rule 3 is that of Partition.makeLeader.
"""

import logging
from collections.abc import Generator, Mapping
from typing import Protocol

from kafkalite.cluster.configs.reads import Texts
from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.metadata.update import check_name, check_partition, shared_ids
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.replicas import Replicas
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from kafkalite.server.hosting.replica_files import ReplicaFiles
from kafkalite.server.hosting.replica_roles import ReplicaRoles
from kafkalite.storage.manager import LogManager

LOGGER = logging.getLogger("kafkalite.server")
NO_EPOCH = -1

TopicState = LeaderAndIsrRequest.LeaderAndIsrTopicState
Overrides = Mapping[str, Texts | None]  # None: they cannot be read


class AssignmentHost(Protocol):
    """The part of the hosting that an applied state needs; `AssignedPartitions` describes the methods."""

    def host(
        self, topic: TopicState, state: LeaderAndIsrPartitionState, image: PartitionImage, overrides: Texts | None
    ) -> Partition: ...

    def change_leader(self, partition: Partition, image: PartitionImage, *, leads: bool) -> None: ...

    def remove(self, partition: Partition) -> None: ...

    def open_unassigned(self, key: TopicPartition) -> None: ...


class LeaderAndIsrStates:
    """Applies or refuses the states of partitions.

    Arguments:
        broker_id: of this broker.
        host: hosts and removes partitions.
        replicas: the hosted partitions.
        logs: the log directories.
        roles: of the partitions with several replicas.
        files: of the partitions with several replicas.
    """

    def __init__(
        self,
        broker_id: int,
        host: AssignmentHost,
        replicas: Replicas,
        logs: LogManager,
        roles: ReplicaRoles,
        files: ReplicaFiles,
    ) -> None:
        self._broker_id = broker_id
        self._host = host
        self._replicas = replicas
        self._logs = logs
        self._roles = roles
        self._files = files
        self._behind: dict[TopicPartition, int] = {}

    def apply(self, topic: TopicState, state: LeaderAndIsrPartitionState, overrides: Texts | None) -> int:
        """Apply the state of one partition, or refuse it.

        Arguments:
            topic, state: of the request.
            overrides: the configs of a topic that is not hosted yet; None: they cannot be read.

        Returns a Kafka error code, 0 = applied.
        """
        key = TopicPartition(topic.topic_name, state.partition_index)
        if len(state.replicas) > 1 and self._broker_id in state.replicas:
            self._give_way(topic, key)
        partition = self._replicas.hosted_partition(key)
        image = image_of(state)
        if partition is not None and partition.topic_id == topic.topic_id and partition.leads_with(image):
            partition.receive_state(image)
            return 0
        error = self._offline(key, partition) or self._refusal(topic, key, partition, state)
        if error:
            return error
        leads = image.leader == self._broker_id
        if partition is None:
            partition = self._host.host(topic, state, image, overrides)
        if partition.defect:
            return partition.defect
        if len(image.replicas) > 1:
            self._roles.assign(partition, image)
        else:
            self._host.change_leader(partition, image, leads=leads)
        return partition.defect

    def _give_way(self, topic: TopicState, key: TopicPartition) -> None:
        """Leave what prevents that a replica begins: a log of another topic id, or its own loss at an earlier state."""
        partition = self._replicas.hosted_partition(key)
        hosted = self._replicas.hosted_topic(key.topic)
        if hosted is not None and hosted.topic_id != topic.topic_id:
            for each in list(hosted.partitions.values()):
                self._host.remove(each)
        elif partition is not None and key in self._files.lost:
            self._host.remove(partition)
        if self._logs.topic_ids.get(key) not in (None, topic.topic_id):
            if key in self._logs.created:
                self._host.open_unassigned(key)
            self._files.set_aside(key)

    def _offline(self, key: TopicPartition, partition: Partition | None) -> int:
        """KAFKA_STORAGE_ERROR for a hosted partition that is offline, else 0."""
        if partition is None:
            return 0
        homeless = partition.log is None and key not in self._logs.created and self._logs.choose_directory() is None
        return KafkaErrorCode.KAFKA_STORAGE_ERROR if partition.defect or homeless else 0

    def _refusal(
        self, topic: TopicState, key: TopicPartition, partition: Partition | None, state: LeaderAndIsrPartitionState
    ) -> int:
        """The error of a state that is not applied, else 0."""
        hosted = self._replicas.hosted_topic(key.topic)
        known_ids = (hosted.topic_id if hosted is not None else None, self._logs.topic_ids.get(key))
        if any(known not in (None, topic.topic_id) for known in known_ids):
            LOGGER.error("%s: the controller assigns another topic id than the one in the files here", key)
            return KafkaErrorCode.INCONSISTENT_TOPIC_ID
        if partition is not None and state.leader_epoch <= partition.leader_epoch:
            leads_again = partition.error and state.leader == self._broker_id  # it was led for an earlier registration
            if not (leads_again or self._follows_again(partition, state)):
                return KafkaErrorCode.STALE_CONTROLLER_EPOCH
        if self._broker_id not in state.replicas:
            return KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return KafkaErrorCode.FENCED_LEADER_EPOCH if self._is_behind(key, partition, state) else 0

    def _follows_again(self, partition: Partition, state: LeaderAndIsrPartitionState) -> bool:
        """Whether a replica without a role is assigned the leader epoch that it had in an earlier registration."""
        is_same = state.leader_epoch == partition.leader_epoch and len(state.replicas) > 1
        return is_same and partition.role is None and not partition.defect

    def _is_behind(self, key: TopicPartition, partition: Partition | None, state: LeaderAndIsrPartitionState) -> bool:
        """Whether the log, or an earlier registration, forbids the leader epoch of a state (rule 1)."""
        log = self._logs.find(*key)
        latest = NO_EPOCH if log is None else log.epochs.latest
        if partition is not None:
            latest = max(latest, partition.leader_epoch)
        leads = state.leader == self._broker_id
        if state.leader_epoch > latest or (state.leader_epoch == latest and not leads):
            return False
        self._behind[key] = latest
        return True

    def take_behind(self) -> dict[TopicPartition, int]:
        """The last leader epochs of the logs that were assigned in no later one, since the last call."""
        behind, self._behind = self._behind, {}
        return behind


def check_assignment(request: LeaderAndIsrRequest) -> Generator[None, None, None]:
    """Check a request in steps. Raises InvalidControllerRequestError, with nothing applied."""
    for topic in request.topic_states:
        check_name(topic.topic_name)
        for state in topic.partition_states:
            check_partition(topic.topic_name, state.partition_index)
            yield


def image_of(state: LeaderAndIsrPartitionState) -> PartitionImage:
    """The state of a partition in a LeaderAndIsr request."""
    return PartitionImage(
        shared_ids(tuple(state.replicas)),
        shared_ids(tuple(state.isr)),
        state.leader,
        state.leader_epoch,
        state.partition_epoch,
        state.controller_epoch,
        (),
        shared_ids(tuple(state.adding_replicas)),
        shared_ids(tuple(state.removing_replicas)),
        shared_ids(tuple(state.eligible_replicas)),
    )
