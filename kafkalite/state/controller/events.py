"""The events of the controller: what its runtime reports to `Controller.handle`.

The runtime guarantees, and the machine relies on this:
1. `SnapshotRead` is the first event. Watches were set by the reads of the snapshot; what they report comes later.
2. An event carries the value that was read after a watch has fired, not the change: events may coalesce, and a
   repeated value has no effect. The read sets the watch again.
3. Results of reads and writes arrive in the order of the effects, as the session returns them, with the values that
   watches read.
4. Every `Write`, `ReadStates` and request ends with exactly one event, except after `Resign` and, for
   requests, after `Disconnect` of that broker.
5. Nothing is reported about a topic that was read while the watch on its node fired: the read begins again. The same
   holds if `ReadTopic` comes during the read; one `TopicRead` then ends both. This includes the reads of the snapshot.
6. After `Resign`, or after it has reported `ControllerMoved`, the runtime drops the machine.

Times are in ms of the monotonic clock. Errors are Kafka error codes, 0 = none.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from kafkalite.model import TopicPartition
from kafkalite.state.controller.values import (
    Broker,
    InvalidNode,
    Snapshot,
    StoredState,
    TimerName,
    Token,
    TopicNodes,
)

# What was read from the tree.


class SnapshotRead(NamedTuple):
    """The whole tree, read after the election."""

    snapshot: Snapshot


class BrokersChanged(NamedTuple):
    """The valid registrations below `/brokers/ids`: after a change of the children or of one registration."""

    brokers: tuple[Broker, ...]


class TopicsChanged(NamedTuple):
    """The names below `/brokers/topics`."""

    topics: frozenset[str]


class TopicRead(NamedTuple):
    """A topic, after `ReadTopic` or after the watch on its node has fired. None = the topic does not exist.

    Arguments:
        topic: its name.
        nodes: its node, its configs, its partitions and their states, read in this order.
    """

    topic: str
    nodes: TopicNodes | InvalidNode | None


class StatesRead(NamedTuple):
    """The states of partitions, after `ReadStates`. None = there is no state node.

    Arguments:
        read_id: of the effect.
        states: the state of each partition of the effect.
    """

    read_id: int
    states: Mapping[TopicPartition, StoredState | InvalidNode | None]


class DeletionsChanged(NamedTuple):
    """The names below `/admin/delete_topics`."""

    topics: frozenset[str]


class LogDirsFailed(NamedTuple):
    """The notifications below `/log_dir_event_notification`.

    Arguments:
        brokers: the broker of each notification by its name; None = its content is invalid.
    """

    brokers: Mapping[str, int | None]


# Results of writes.


class WriteDone(NamedTuple):
    """The transaction was committed.

    Arguments:
        write_id: of the effect.
        versions: the version of the node after each operation; any number where the operation has none.
    """

    write_id: int
    versions: tuple[int, ...]


class WriteRejected(NamedTuple):
    """An operation failed, so nothing was written: a node has another version, exists, does not exist or has children.

    Arguments:
        write_id: of the effect.
        at: index of the failed operation in the effect.
    """

    write_id: int
    at: int


class WriteFailed(NamedTuple):
    """The result of a transaction is unknown (the connection was lost), or the service refused it for other reasons."""

    write_id: int
    reason: str


class ControllerMoved(NamedTuple):
    """Another controller was elected: the check of the controller epoch failed, or the session is lost."""

    reason: str


# Results of requests to brokers.


class UpdateMetadataAnswered(NamedTuple):
    """The response to `SendUpdateMetadata`."""

    request_id: int
    error: int


class LeaderAndIsrAnswered(NamedTuple):
    """The response to `SendLeaderAndIsr`.

    Arguments:
        request_id: of the effect.
        error: of the whole request.
        errors: of the partitions; those without an error may be missing.
    """

    request_id: int
    error: int
    errors: Mapping[TopicPartition, int]


class StopReplicaAnswered(NamedTuple):
    """The response to `SendStopReplica`; the fields are those of `LeaderAndIsrAnswered`."""

    request_id: int
    error: int
    errors: Mapping[TopicPartition, int]


class RequestFailed(NamedTuple):
    """There is no response to a request: no connection, a broken one, or a timeout. The broker may have executed it.

    Arguments:
        impossible: whether the request cannot be encoded, so that it was not sent.
    """

    request_id: int
    reason: str
    impossible: bool = False


# Timers and requests of clients.


class TimerExpired(NamedTuple):
    """A timer of `SetTimer` is due."""

    name: TimerName


class AwaitTopic(NamedTuple):
    """Complete a CreateTopics or CreatePartitions request when the partitions of the topic are led. The runtime reports
    it after the node of the topic is written.

    Arguments:
        token: completed with 0, once each partition has a leader and this broker's image has it (Kafka's
            DelayedCreatePartitions); with REQUEST_TIMED_OUT at the deadline, NOT_CONTROLLER if another controller was
            elected, or UNKNOWN_TOPIC_OR_PARTITION if the topic is deleted.
        topic, topic_id: the topic.
        partitions: the number of its partitions.
        deadline_ms: of the monotonic clock.
    """

    token: Token
    topic: str
    topic_id: bytes
    partitions: int
    deadline_ms: int


class AwaitDeletion(NamedTuple):
    """Complete a DeleteTopics request when the topic is deleted. The runtime reports it within the callback of the
    write of `/admin/delete_topics/<topic>`, so that it comes before the deletion.

    Arguments:
        token: completed with 0, once the nodes of the topic are deleted, or wait only for replicas on brokers that are
            not alive; else as in `AwaitTopic`.
        topic: its name.
        deadline_ms: of the monotonic clock.
    """

    token: Token
    topic: str
    deadline_ms: int


class RequestedIsr(NamedTuple):
    """The ISR that the leader of a partition wants.

    Arguments:
        topic_id, partition: of the partition.
        leader_epoch, partition_epoch: of the state that is changed.
        isr: broker ids with broker epochs; -1 = the epoch is not checked.
        recovering: whether the leader, which was elected from outside the ISR, has not recovered yet.
    """

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    recovering: bool = False


class AlterPartitions(NamedTuple):
    """A leader changes ISRs (AlterPartition, KIP-497).

    Arguments:
        token: completed with STALE_BROKER_EPOCH, or with a `PartitionOutcome` for each change, in their order.
        broker_id, broker_epoch: of the sender.
        changes: at most one of a partition.
    """

    token: Token
    broker_id: int
    broker_epoch: int
    changes: tuple[RequestedIsr, ...]


class ElectLeaders(NamedTuple):
    """A client requests elections (ElectLeaders, KIP-183 and KIP-460).

    Arguments:
        token: completed with a `PartitionOutcome` for each partition, in their order.
        unclean: whether replicas are elected that are not in sync, where there is no other; else preferred replicas.
        partitions: each once.
    """

    token: Token
    unclean: bool
    partitions: tuple[TopicPartition, ...]


class ShutDownBroker(NamedTuple):
    """A broker shuts down (ControlledShutdown).

    Arguments:
        token: completed with STALE_BROKER_EPOCH or BROKER_NOT_AVAILABLE, or with a `PartitionOutcome` for each of its
            partitions with other replicas, once all that can move has moved.
        broker_id, broker_epoch: of the sender; epoch -1 = not checked.
    """

    token: Token
    broker_id: int
    broker_epoch: int


class TopicConfigsRead(NamedTuple):
    """The configs of a topic, after `ReadTopicConfigs`.

    Arguments:
        topic: its name.
        unclean_elections: whether replicas may be elected that are not in sync (`unclean.leader.election.enable`).
    """

    topic: str
    unclean_elections: bool


class ConfigsChanged(NamedTuple):
    """The configs of a topic have changed; None = those of all brokers, which are the default.

    Arguments:
        topic: its name.
        min_insync_replicas: the present default of the brokers.
    """

    topic: str | None
    min_insync_replicas: int


Event: TypeAlias = (
    SnapshotRead
    | BrokersChanged
    | TopicsChanged
    | TopicRead
    | StatesRead
    | DeletionsChanged
    | LogDirsFailed
    | WriteDone
    | WriteRejected
    | WriteFailed
    | ControllerMoved
    | UpdateMetadataAnswered
    | LeaderAndIsrAnswered
    | StopReplicaAnswered
    | RequestFailed
    | TimerExpired
    | AwaitTopic
    | AwaitDeletion
    | AlterPartitions
    | ElectLeaders
    | ShutDownBroker
    | TopicConfigsRead
    | ConfigsChanged
)
