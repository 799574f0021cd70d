"""The results of transactions: by what was written, the function for a commit and the one for a rejection."""

from collections.abc import Callable
from typing import Any

from kafkalite.state.controller.context import IN_DELETION, ControllerContext
from kafkalite.state.controller.effects import DeleteTopicConfig, EnableFeatures
from kafkalite.state.controller.events import WriteDone, WriteFailed, WriteRejected
from kafkalite.state.controller.partitions.state_writes import apply_states, reject_states
from kafkalite.state.controller.states import TopicEvent, TopicState
from kafkalite.state.controller.steps import Steps, run_steps
from kafkalite.state.controller.topics.events import add_unread, refuse_deletions
from kafkalite.state.controller.topics.table import step
from kafkalite.state.controller.writes import (
    RESULT_UNKNOWN,
    EpochCheck,
    FeatureWrite,
    NodeRemoval,
    PendingWrite,
    RequestRemoval,
    StateWrite,
    TopicIdWrite,
)

WRITE = "write"  # first part of the names of the timers
WITH_ID_WRITE = frozenset((TopicState.WITHOUT_ID, TopicState.ACTIVE))


def write_done(context: ControllerContext, event: WriteDone) -> Steps:
    """A transaction was committed."""
    if (write := context.writes.pop(event.write_id, None)) is not None:
        yield from run_steps(RESULTS[type(write)][0](context, write, event.versions))


def write_rejected(context: ControllerContext, event: WriteRejected) -> Steps:
    """An operation of a transaction failed: nothing was written."""
    return _reject(context, event.write_id, event.at)


def write_failed(context: ControllerContext, event: WriteFailed) -> None:
    """The result of a transaction is unknown: read after a pause, as the service may refuse it again."""
    context.log("warning", f"a transaction failed ({event.reason}), its znodes are read again")
    context.set_timer((WRITE, event.write_id), context.settings.retry_backoff_ms)


def read_after_failure(context: ControllerContext, write_id: int) -> Steps:
    """The pause after a failed transaction has ended."""
    return _reject(context, write_id, RESULT_UNKNOWN)


def enable_features(context: ControllerContext, version: int | None) -> None:
    """Write the features node, as Kafka 3.9 does before it serves as a controller."""
    context.write((EnableFeatures(version),), FeatureWrite(version))


def _reject(context: ControllerContext, write_id: int, at: int) -> Steps:
    if (write := context.writes.pop(write_id, None)) is not None:
        yield from run_steps(RESULTS[type(write)][1](context, write, at))


def _topic_id_written(context: ControllerContext, write: TopicIdWrite, versions: tuple[int, ...]) -> Steps:
    if _holds(context, write):
        yield from step(context, write.topic, TopicEvent.WRITTEN)


def _topic_id_rejected(context: ControllerContext, write: TopicIdWrite, at: int) -> Steps:
    if _holds(context, write):
        yield from step(context, write.topic, TopicEvent.WRITE_FAILED)


def _holds(context: ControllerContext, write: TopicIdWrite) -> bool:
    return context.topics.get(write.topic.name) is write.topic and write.topic.state in WITH_ID_WRITE


def _nodes_removed(context: ControllerContext, write: NodeRemoval, versions: tuple[int, ...]) -> Steps:
    if context.topics.get(write.topic.name) is write.topic:
        yield from step(context, write.topic, TopicEvent.PART_WRITTEN if write.topic.removal else TopicEvent.WRITTEN)


def _removal_rejected(context: ControllerContext, write: NodeRemoval, at: int) -> Steps:
    if at >= 0 and isinstance(write.operations[at], DeleteTopicConfig):
        write.topic.has_config = False
    if context.topics.get(write.topic.name) is write.topic:
        yield from step(context, write.topic, TopicEvent.WRITE_FAILED)


def _request_removed(context: ControllerContext, write: RequestRemoval, result: object) -> Steps:
    """The request does not exist any more; a later one, which was removed with it, is withdrawn."""
    context.deletions.discard(write.topic)
    topic = context.topics.get(write.topic)
    if topic is not None and topic.state in IN_DELETION:
        yield from step(context, topic, TopicEvent.DELETION_WITHDRAWN)


def _request_not_removed(context: ControllerContext, write: RequestRemoval, at: int) -> Steps:
    """If the removal was rejected, others have removed the request. Else the topic may exist by now."""
    if at != RESULT_UNKNOWN:
        yield from _request_removed(context, write, at)
    elif not context.settings.delete_topic_enable:
        refuse_deletions(context, frozenset((write.topic,)))
    elif write.topic in context.deletions and write.topic not in context.topics:
        add_unread(context, write.topic)


def _features_not_written(context: ControllerContext, write: FeatureWrite, at: int) -> None:
    if at == RESULT_UNKNOWN:  # if it was rejected, the node was written before
        enable_features(context, write.version)


def _epoch_checked(context: ControllerContext, write: EpochCheck, result: object) -> None:
    context.verifying = False


def _nothing(context: ControllerContext, write: object, result: object) -> None:
    """No more is to be done."""


Result = Callable[[ControllerContext, Any, Any], Steps | None]
RESULTS: dict[type[PendingWrite], tuple[Result, Result]] = {
    StateWrite: (apply_states, reject_states),
    TopicIdWrite: (_topic_id_written, _topic_id_rejected),
    NodeRemoval: (_nodes_removed, _removal_rejected),
    RequestRemoval: (_request_removed, _request_not_removed),
    FeatureWrite: (_nothing, _features_not_written),
    EpochCheck: (_epoch_checked, _epoch_checked),
}
