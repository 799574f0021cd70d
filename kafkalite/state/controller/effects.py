"""The effects of the controller: what its runtime does after `Controller.handle`, in their order.

1. A `Write` is one transaction: a check of `/controller_epoch` against the version that the election wrote, then the
   operations in their order. A failed check is reported as `ControllerMoved`.
2. Operations carry the versions that they expect. Nothing is applied in memory before `WriteDone`.
3. A broker has at most one request in flight. Its content is the newest state of each partition when it is sent.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from kafkalite.model import TopicPartition
from kafkalite.state.controller.values import Broker, LeaderAndIsr, PartitionOutcome, Replicas, TimerName, Token
from kafkalite.state.effects import CancelTimer, SetTimer

# Operations of a transaction.


class CheckTopic(NamedTuple):
    """Fail unless `/brokers/topics/<topic>` has this version: its partitions are about to get their first state."""

    topic: str
    version: int


class CreatePartitionsNode(NamedTuple):
    """Create `/brokers/topics/<topic>/partitions` without data."""

    topic: str


class CreateState(NamedTuple):
    """Create the state of a new partition.

    Arguments:
        partition: of an existing topic.
        state: the content of the node.
        with_parent: whether `.../partitions/<partition>` is created before, without data.
    """

    partition: TopicPartition
    state: LeaderAndIsr
    with_parent: bool


class SetState(NamedTuple):
    """Replace the state of a partition, if its node has this version."""

    partition: TopicPartition
    state: LeaderAndIsr
    version: int


class SetTopicId(NamedTuple):
    """Write the node of a topic with a topic id, if it has this version.

    Arguments:
        topic: its name.
        topic_id: 16 bytes; None = a random one, which the runtime draws.
        replicas, adding, removing: the content of the node, unchanged.
        version: that the node must have.
    """

    topic: str
    topic_id: bytes | None
    replicas: Mapping[int, Replicas]
    adding: Mapping[int, Replicas]
    removing: Mapping[int, Replicas]
    version: int


class CheckDeletion(NamedTuple):
    """Fail unless `/admin/delete_topics/<topic>` exists, with any version."""

    topic: str


class DeleteState(NamedTuple):
    """Delete the state of a partition, with any version."""

    partition: TopicPartition


class DeletePartitionNode(NamedTuple):
    """Delete `/brokers/topics/<topic>/partitions/<partition>`."""

    partition: TopicPartition


class DeletePartitionsNode(NamedTuple):
    """Delete `/brokers/topics/<topic>/partitions`."""

    topic: str


class DeleteTopicNode(NamedTuple):
    """Delete `/brokers/topics/<topic>`, if it has this version."""

    topic: str
    version: int


class DeleteTopicConfig(NamedTuple):
    """Delete `/config/topics/<topic>`."""

    topic: str


class DeleteDeletion(NamedTuple):
    """Delete `/admin/delete_topics/<topic>`."""

    topic: str


class EnableFeatures(NamedTuple):
    """Write `/feature` as enabled, without finalized features (KafkaController.enableFeatureVersioning).

    Arguments:
        version: that the node must have; None = it is created.
    """

    version: int | None


Operation: TypeAlias = (
    CheckTopic
    | CreatePartitionsNode
    | CreateState
    | SetState
    | SetTopicId
    | CheckDeletion
    | DeleteState
    | DeletePartitionNode
    | DeletePartitionsNode
    | DeleteTopicNode
    | DeleteTopicConfig
    | DeleteDeletion
    | EnableFeatures
)


class Write(NamedTuple):
    """Execute the operations as one transaction; ends with `WriteDone`, `WriteRejected` or `WriteFailed`.

    Arguments:
        write_id: for the event.
        operations: below 1 MiB in ZooKeeper's encoding, with the check. () = only the check: is this the controller?
    """

    write_id: int
    operations: tuple[Operation, ...]


# Other changes and reads of the tree.


class DeleteNotifications(NamedTuple):
    """Delete nodes in fenced transactions of one node each, without an event; missing ones are skipped.

    Arguments:
        log_dir_events: names below `/log_dir_event_notification`.
        isr_changes: names below `/isr_change_notification`.
        reassignment: whether to delete `/admin/reassign_partitions`.
        preferred_election: whether to delete `/admin/preferred_replica_election`.
    """

    log_dir_events: tuple[str, ...] = ()
    isr_changes: tuple[str, ...] = ()
    reassignment: bool = False
    preferred_election: bool = False


class ReadTopic(NamedTuple):
    """Read the node of a topic with a watch, its configs, its partitions and states; ends with `TopicRead`."""

    topic: str


class ReadStates(NamedTuple):
    """Read the states of partitions; ends with `StatesRead`."""

    read_id: int
    partitions: tuple[TopicPartition, ...]


class ReadTopicConfigs(NamedTuple):
    """Read the configs of a topic; ends with `TopicConfigsRead`, or without an event if they cannot be read."""

    topic: str


# Requests to brokers. The runtime adds the controller's id and epoch.


class PartitionMetadata(NamedTuple):
    """A partition in UpdateMetadata, in the order of its fields. Leader -2: the partition does not exist any more."""

    partition: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: Replicas
    partition_epoch: int
    replicas: Replicas
    offline_replicas: Replicas
    eligible: Replicas = ()


class TopicMetadata(NamedTuple):
    """A topic in UpdateMetadata."""

    topic: str
    topic_id: bytes
    partitions: tuple[PartitionMetadata, ...]


class PartitionLeadership(NamedTuple):
    """A partition in LeaderAndIsr, in the order of its fields.

    Arguments:
        is_new: whether this controller has just created the partition: the broker may create its log although a log
            directory is offline.
        recovery_state: 1 = the leader was elected from outside the ISR and has not recovered yet.
        eligible: the leader commits nothing while there are any; they do not begin empty.
    """

    partition: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: Replicas
    partition_epoch: int
    replicas: Replicas
    adding_replicas: Replicas
    removing_replicas: Replicas
    is_new: bool
    recovery_state: int
    eligible: Replicas = ()


class TopicLeadership(NamedTuple):
    """A topic in LeaderAndIsr."""

    topic: str
    topic_id: bytes
    partitions: tuple[PartitionLeadership, ...]


class StoppedReplica(NamedTuple):
    """A partition in StopReplica. Leader epoch -2: its topic is being deleted."""

    partition: int
    leader_epoch: int
    delete: bool


class StoppedTopic(NamedTuple):
    """A topic in StopReplica."""

    topic: str
    partitions: tuple[StoppedReplica, ...]


class SendUpdateMetadata(NamedTuple):
    """Send UpdateMetadata; ends with `UpdateMetadataAnswered` or `RequestFailed`.

    Arguments:
        request_id: for the event.
        broker_id, broker_epoch: the receiver.
        full: the topics are all that exist: the receiver removes others from its image (`type` = 2, else 1). Brokers
            of Apache Kafka ignore it.
        brokers: all live brokers.
        topics: the partitions that have changed. Receivers of the same change get the same tuple.
    """

    request_id: int
    broker_id: int
    broker_epoch: int
    full: bool
    brokers: tuple[Broker, ...]
    topics: tuple[TopicMetadata, ...]


class SendLeaderAndIsr(NamedTuple):
    """Send LeaderAndIsr; ends with `LeaderAndIsrAnswered` or `RequestFailed`.

    Arguments:
        request_id: for the event.
        broker_id, broker_epoch: the receiver.
        full: the topics are all that the receiver hosts: it may rename the logs of other partitions (`type` = 2, else
            1). Brokers of Apache Kafka ignore it.
        topics: the partitions to host. Those of a topic that is being deleted are among them until StopReplica follows.
            The receiver renames the log of another topic id.
        live_leaders: the brokers that lead them.
    """

    request_id: int
    broker_id: int
    broker_epoch: int
    full: bool
    topics: tuple[TopicLeadership, ...]
    live_leaders: tuple[Broker, ...]


class SendStopReplica(NamedTuple):
    """Send StopReplica; ends with `StopReplicaAnswered` or `RequestFailed`.

    Arguments:
        request_id: for the event.
        broker_id, broker_epoch: the receiver.
        topics: the replicas that the receiver does not host any more. Only those with `delete` lose their log.
    """

    request_id: int
    broker_id: int
    broker_epoch: int
    topics: tuple[StoppedTopic, ...]


class Connect(NamedTuple):
    """A broker is alive at these endpoints: requests go there from now on. Replaces an earlier `Connect` of its id."""

    broker: Broker


class Disconnect(NamedTuple):
    """The registration of a broker ended: close the connection, drop the request in flight."""

    broker_id: int


# For clients, and for the controller itself.


class Completion(NamedTuple):
    """The result of an event with a token: a Kafka error code, 0 = none.

    Arguments:
        token: of the event.
        error: of the whole request.
        outcomes: of the partitions of a request that changes states.
    """

    token: Token
    error: int
    outcomes: tuple[PartitionOutcome, ...] = ()


class Log(NamedTuple):
    """Write a line to the log of the broker."""

    level: Literal["info", "warning", "error"]
    text: str


class Resign(NamedTuple):
    """This broker is not the controller any more: drop the machine and its connections, then join the election."""

    reason: str


Effect: TypeAlias = (
    Write
    | DeleteNotifications
    | ReadTopic
    | ReadStates
    | ReadTopicConfigs
    | SendUpdateMetadata
    | SendLeaderAndIsr
    | SendStopReplica
    | Connect
    | Disconnect
    | Completion
    | SetTimer[TimerName]
    | CancelTimer[TimerName]
    | Log
    | Resign
)
