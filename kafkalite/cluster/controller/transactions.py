"""Converts the writes of the controller's machine to transactions of znodes, and their outcomes to events.

Every transaction begins with a check of `/controller_epoch`: once another controller is elected, nothing that this one
still sends is written (KafkaZkClient.wrapRequestWithControllerEpochCheck).
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from kafkalite.clock import Outcome
from kafkalite.coordination import znodes
from kafkalite.coordination.errors import (
    BadVersionError,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from kafkalite.coordination.tree import Check, Create, CreatedNode, Delete, Operation, Set, Stat
from kafkalite.coordination.znodes import brokers, controller
from kafkalite.state.controller import effects
from kafkalite.state.controller.events import ControllerMoved, WriteDone, WriteFailed, WriteRejected
from kafkalite.state.controller.values import LeaderAndIsr

DrawId = Callable[[], bytes]
REJECTIONS = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)
NO_VERSION = 0


def fence(epoch_version: int) -> Operation:
    """The check that no other controller was elected; `epoch_version`: of the node that the own election wrote."""
    return Check(controller.CONTROLLER_EPOCH, epoch_version)


def transaction(write: effects.Write, epoch_version: int, draw_id: DrawId) -> Generator[None, None, list[Operation]]:
    """Return the fenced transaction of a write; yields after each operation.

    Arguments:
        write: of the machine.
        epoch_version: as of `fence`.
        draw_id: returns a new topic id, 16 bytes.
    """
    operations = [fence(epoch_version)]
    for each in write.operations:
        operations += convert(with_id(each, draw_id))
        yield
    return operations


def with_id(operation: effects.Operation, draw_id: DrawId) -> effects.Operation:
    """The operation, with a random topic id if it asks for one."""
    if isinstance(operation, effects.SetTopicId) and operation.topic_id is None:
        return operation._replace(topic_id=draw_id())
    return operation


def convert(operation: effects.Operation) -> Sequence[Operation]:
    """The operations on znodes for one of the machine's; the version after the last one is that of `WriteDone`."""
    return CONVERSIONS[type(operation)](operation)


def origins(write: effects.Write) -> list[int]:
    """Return the index of the machine's operation for each operation of the transaction behind the check."""
    return [
        at
        for at, each in enumerate(write.operations)
        for _ in range(2 if isinstance(each, effects.CreateState) and each.with_parent else 1)
    ]


def state_created(operation: effects.CreateState) -> Sequence[Operation]:
    """The first state of a partition."""
    topic, partition = operation.partition
    state = Create(znodes.state_path(topic, partition), encode_state(operation.state))
    return (Create(znodes.partition_path(topic, partition)), state) if operation.with_parent else (state,)


def state_set(operation: effects.SetState) -> Sequence[Operation]:
    """Another state of a partition."""
    return (Set(znodes.state_path(*operation.partition), encode_state(operation.state), operation.version),)


def topic_id_set(operation: effects.SetTopicId) -> Sequence[Operation]:
    """A topic id in the node of a topic."""
    node = znodes.TopicNode(operation.topic_id, operation.replicas, operation.adding, operation.removing)
    return (Set(znodes.topic_path(operation.topic), znodes.encode_topic(node), operation.version),)


def features_enabled(operation: effects.EnableFeatures) -> Sequence[Operation]:
    """The feature node, enabled."""
    data = brokers.encode_features(brokers.FeatureNode(enabled=True))
    if operation.version is None:
        return (Create(brokers.FEATURE, data),)
    return (Set(brokers.FEATURE, data, operation.version),)


CONVERSIONS: Mapping[type, Callable[..., Sequence[Operation]]] = {
    effects.CheckTopic: lambda each: (Check(znodes.topic_path(each.topic), each.version),),
    effects.CreatePartitionsNode: lambda each: (Create(f"{znodes.topic_path(each.topic)}/partitions"),),
    effects.CreateState: state_created,
    effects.SetState: state_set,
    effects.SetTopicId: topic_id_set,
    effects.CheckDeletion: lambda each: (Check(controller.delete_topic_path(each.topic)),),
    effects.DeleteState: lambda each: (Delete(znodes.state_path(*each.partition)),),
    effects.DeletePartitionNode: lambda each: (Delete(znodes.partition_path(*each.partition)),),
    effects.DeletePartitionsNode: lambda each: (Delete(f"{znodes.topic_path(each.topic)}/partitions"),),
    effects.DeleteTopicNode: lambda each: (Delete(znodes.topic_path(each.topic), each.version),),
    effects.DeleteTopicConfig: lambda each: (Delete(znodes.topic_config_path(each.topic)),),
    effects.DeleteDeletion: lambda each: (Delete(controller.delete_topic_path(each.topic)),),
    effects.EnableFeatures: features_enabled,
}


def encode_state(state: LeaderAndIsr) -> bytes:
    """The content of a state node."""
    return znodes.encode_state(znodes.PartitionState(*state))


def notification_paths(effect: effects.DeleteNotifications) -> list[str]:
    """The nodes to delete, each in a transaction of its own."""
    return [
        *(f"{controller.LOG_DIR_EVENTS}/{name}" for name in effect.log_dir_events),
        *(f"{controller.ISR_CHANGES}/{name}" for name in effect.isr_changes),
        *([controller.REASSIGN_PARTITIONS] if effect.reassignment else []),
        *([controller.PREFERRED_ELECTION] if effect.preferred_election else []),
    ]


def fencing_reason(error: CoordinationError) -> str | None:
    """Why this broker is not the controller any more, if the error of a fenced transaction shows that; else None."""
    if isinstance(error, SessionExpiredError):
        return "its session with the coordination service is over"
    if isinstance(error, BadVersionError) and error.at == 0:
        return "the controller epoch was moved by another controller"
    return None


def outcome_event(write: effects.Write, outcome: Outcome) -> WriteDone | WriteRejected | WriteFailed | ControllerMoved:
    """The event with the outcome of the transaction of a write. Raises an error that is no CoordinationError."""
    error = outcome.error
    at = origins(write)
    if error is None:
        versions = [NO_VERSION] * len(write.operations)
        for origin, result in zip(at, outcome.value[1:], strict=True):
            versions[origin] = version_of(result)  # the last one of an operation counts
        return WriteDone(write.write_id, tuple(versions))
    if not isinstance(error, CoordinationError):
        raise error
    if (reason := fencing_reason(error)) is not None:
        return ControllerMoved(reason)
    if isinstance(error, REJECTIONS) and 0 < error.at <= len(at):
        return WriteRejected(write.write_id, at[error.at - 1])
    return WriteFailed(write.write_id, str(error))


def version_of(result: Any) -> int:
    """The version of a node after an operation."""
    if isinstance(result, CreatedNode):
        return result.stat.version
    return result.version if isinstance(result, Stat) else NO_VERSION
