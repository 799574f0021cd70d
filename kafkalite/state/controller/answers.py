"""Responses of brokers to the controller's requests, and requests that failed.

A whole request that failed is repeated after a back-off with the newest states; one that was rejected as impossible is
not (`rejections`). Lines about the same failure are logged once a minute. Partitions that a broker has refused
are sent again after the back-off, which doubles until the broker has accepted them all. KAFKA_STORAGE_ERROR is no
refusal: a log directory failed. Nor is STALE_CONTROLLER_EPOCH: the broker knows this leader epoch already
(ReplicaManager.becomeLeaderOrFollower). After FENCED_LEADER_EPOCH the leader is elected again, in a higher epoch: the
log has this one or a later one, for example because an older tree was restored.
"""

from collections.abc import Mapping, Sized
from itertools import islice

from kafkalite.backoff import exponential_pause
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.state.controller.brokers import replicas_offline, replicas_online
from kafkalite.state.controller.channel import OFFLINE, RETRY, Channel, InFlight, RequestType, Stop
from kafkalite.state.controller.contents import find
from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.events import (
    LeaderAndIsrAnswered,
    RequestFailed,
    StopReplicaAnswered,
    UpdateMetadataAnswered,
)
from kafkalite.state.controller.known_topics import Partition, Topic
from kafkalite.state.controller.partitions.table import step as step_partition
from kafkalite.state.controller.rejections import accept, reject
from kafkalite.state.controller.states import PartitionEvent, PartitionState, TopicEvent, TopicState
from kafkalite.state.controller.steps import Steps
from kafkalite.state.controller.topics.table import step as step_topic
from kafkalite.state.controller.writes import EpochCheck

OFFLINE_MS, OFFLINE_COUNT = 5_000, 500  # a broker with a failed log directory costs so many partitions in this time
KNOWN_TO_BROKER = frozenset((KafkaErrorCode.NONE, KafkaErrorCode.STALE_CONTROLLER_EPOCH))


def metadata_answered(context: ControllerContext, event: UpdateMetadataAnswered) -> Steps:
    """A broker has replaced its image; this broker's own one completes requests of clients."""
    if (answered := _end(context, event.request_id, event.error)) is None:
        return
    topics: dict[Topic, None] = {}
    for partition in answered[1].led:
        if not partition.published:
            partition.published = True
            partition.topic.published += 1
            topics[partition.topic] = None
        yield
    for topic in topics:
        if topic.state is TopicState.ACTIVE:
            context.completions.published(topic)
        yield


def leadership_answered(context: ControllerContext, event: LeaderAndIsrAnswered) -> Steps:
    """A broker has become leader or follower of partitions, or their log directory is offline."""
    if (answered := _end(context, event.request_id, event.error)) is None:
        return
    channel, request = answered
    refused = {key: error for key, error in event.errors.items() if error not in KNOWN_TO_BROKER}
    offline = [key for key, error in refused.items() if error == KafkaErrorCode.KAFKA_STORAGE_ERROR]
    fenced = {key for key, error in refused.items() if error == KafkaErrorCode.FENCED_LEADER_EPOCH}
    yield
    for key, topic in request.topics.items():
        # A fenced one has this topic id, and one that is offline has no usable log of another: it may be deleted.
        if key not in refused or key in fenced or refused[key] == KafkaErrorCode.KAFKA_STORAGE_ERROR:
            channel.accepted[key] = topic
        yield
    yield from replicas_offline(context, channel, _current(context, request, offline))
    online = [key for key in sorted(channel.offline.keys() & request.leadership.keys()) if not event.errors.get(key)]
    yield from replicas_online(context, channel, _current(context, request, online))
    if offline:
        context.set_timer((OFFLINE, channel.broker.broker_id), OFFLINE_MS)
    _elect_again(context, channel.broker.broker_id, _current(context, request, sorted(fenced)))
    again = {key: request.leadership.get(key, False) for key in refused if key not in offline and key not in fenced}
    if again:
        _log_refused(context, channel, "LeaderAndIsr", refused, again)
        channel.deferred_leadership |= again
    _count_refusals(context, channel, request.type, again, channel.deferred_leadership)


def _elect_again(context: ControllerContext, broker: int, partitions: list[Partition]) -> None:
    """Elect in higher epochs, as if the broker had restarted."""
    for partition in partitions:
        partition.restarted |= {broker}
        step_partition(context, partition, PartitionEvent.REPLICAS_CHANGED)


def stops_answered(context: ControllerContext, event: StopReplicaAnswered) -> Steps:
    """A broker has stopped replicas, and deleted their logs."""
    if (answered := _end(context, event.request_id, event.error)) is None:
        return
    channel, request = answered
    broker, topics = channel.broker.broker_id, dict[Topic, None]()
    again: dict[TopicPartition, Stop] = {}
    for key, stop in request.stops.items():
        yield
        error = event.errors.get(key, KafkaErrorCode.NONE)
        if not stop.delete or key.partition not in stop.topic.stopping.get(broker, ()):
            continue
        if error == KafkaErrorCode.NONE or error == KafkaErrorCode.KAFKA_STORAGE_ERROR:
            _replica_ended(stop.topic, key.partition, broker, deleted=error == KafkaErrorCode.NONE)
            topics[stop.topic] = None
        else:
            again[key] = stop
    for topic in topics:
        if topic.state is TopicState.DELETING:
            yield from step_topic(context, topic, TopicEvent.REPLICAS_DELETED)
    if again:
        _log_refused(context, channel, "StopReplica", event.errors, again)
        channel.deferred_stops |= again
    _count_refusals(context, channel, request.type, again, channel.deferred_stops)


def request_failed(context: ControllerContext, event: RequestFailed) -> None:
    """There is no response: repeat the request later."""
    if (channel := _find(context, event.request_id)) is not None:
        _fail(context, channel, event.reason, rejected=event.impossible)


def retry(context: ControllerContext, broker_id: int) -> None:
    """The back-off of a broker has ended."""
    if (channel := context.channels.get(broker_id)) is not None:
        channel.restore_deferred()


def retry_offline(context: ControllerContext, broker_id: int) -> None:
    """Send some replicas with a failed log directory again, those that were tried first: a full disk may have space."""
    if (channel := context.channels.get(broker_id)) is not None:
        for key in islice(channel.offline, OFFLINE_COUNT):
            channel.lead(key, is_new=False)


def _end(context: ControllerContext, request_id: int, error: int) -> tuple[Channel, InFlight] | None:
    """The channel and the request of a response; None if it is obsolete, or if the request must be repeated."""
    channel = _find(context, request_id)
    if channel is None or channel.in_flight is None:
        return None
    if error != KafkaErrorCode.NONE:
        _fail(context, channel, f"error {error}", rejected=error == KafkaErrorCode.INVALID_REQUEST)
        if error == KafkaErrorCode.STALE_CONTROLLER_EPOCH and not context.verifying:
            context.verifying = True
            context.write((), EpochCheck())
        return None
    request, channel.in_flight, channel.failures = channel.in_flight, None, 0
    accept(channel, request)
    return channel, request


def _find(context: ControllerContext, request_id: int) -> Channel | None:
    for channel in context.channels.values():
        if channel.in_flight is not None and channel.in_flight.request_id == request_id:
            return channel
    return None


def _fail(context: ControllerContext, channel: Channel, reason: str, *, rejected: bool) -> None:
    """Repeat a request later, unless it was rejected as a whole: then without the topic that causes it."""
    request = channel.in_flight
    assert request is not None
    channel.in_flight = None
    channel.restore(request)
    channel.failures += 1
    channel.blocked = True
    if rejected and request.sent:
        channel.failures = 1  # the next request is another one
        reject(context, channel, request, reason)
    elif channel.logs(f"{request.type} {reason}", context.now_ms):
        text = f"broker {channel.broker.broker_id}: {request.type.name} failed ({reason}), it is repeated"
        context.log("warning", f"{text}; this is logged once a minute")
    _back_off(context, channel)


def _count_refusals(
    context: ControllerContext, channel: Channel, request_type: RequestType, again: Sized, deferred: Sized
) -> None:
    """Back off if the response has refused partitions. The count ends when none of them are left.

    Arguments:
        again, deferred: the refused partitions of this response, and all that wait for the back-off.
    """
    if again:
        channel.refusals[request_type] += 1
        _back_off(context, channel)
    elif not deferred:
        channel.refusals[request_type] = 0


def _back_off(context: ControllerContext, channel: Channel) -> None:
    """Set the timer of a channel. Consecutive failures, or refusals, double the time."""
    settings = context.settings
    count = max(channel.failures, *channel.refusals.values())
    pause_ms = exponential_pause(settings.retry_backoff_ms, count, settings.retry_backoff_max_ms)
    context.set_timer((RETRY, channel.broker.broker_id), pause_ms)


def _current(context: ControllerContext, request: InFlight, keys: list[TopicPartition]) -> list[Partition]:
    """The partitions that still are those of the request: a topic may have been deleted and created again."""
    partitions = [partition for key in keys if (partition := find(context, key)) is not None]
    return [
        one
        for one in partitions
        if one.state is not PartitionState.DELETED and request.topics.get(one.key) is one.topic
    ]


def _replica_ended(topic: Topic, index: int, broker: int, *, deleted: bool) -> None:
    """A log is deleted, or it waits until its log directory works again."""
    topic.stopping[broker].discard(index)
    if not topic.stopping[broker]:
        del topic.stopping[broker]
    if not deleted:
        topic.unavailable.setdefault(broker, set()).add(index)


def _log_refused(
    context: ControllerContext,
    channel: Channel,
    request: str,
    errors: Mapping[TopicPartition, int],
    keys: Mapping[TopicPartition, object],
) -> None:
    """Log how many partitions were refused, and the first of them.

    Arguments:
        request: its name.
        errors, keys: the errors, and the partitions that are sent again.
    """
    first = next(iter(keys))
    if not channel.logs(f"{request} refused with {errors[first]}", context.now_ms):
        return
    text = f"broker {channel.broker.broker_id}: {request} failed for {len(keys)} partitions, first {first}"
    context.log("warning", f"{text} with error {errors[first]}; they are sent again")
