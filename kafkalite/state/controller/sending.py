"""Sends what waits for the brokers: for each idle channel the next request, with the newest states."""

from collections.abc import Collection

from kafkalite.model import TopicPartition
from kafkalite.state.controller.channel import AFTER, Channel, InFlight, RequestType, Stop
from kafkalite.state.controller.contents import all_metadata, find, leadership_of, metadata_of, stopped
from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.effects import SendLeaderAndIsr, SendStopReplica, SendUpdateMetadata, TopicMetadata
from kafkalite.state.controller.rejections import is_left_out, keys_of, probe
from kafkalite.state.controller.states import PartitionState, TopicState
from kafkalite.state.controller.topics import Partition

KNOWN = frozenset((PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.ELECTING, PartitionState.DELETED))


def send_pending(context: ControllerContext) -> None:
    """Send the next request of each idle channel."""
    if context.changed:
        context.all_metadata = None
        context.metadata_of.clear()
    for channel in context.channels.values():
        if not channel.all_metadata:
            channel.metadata.update(context.changed)
        channel.evaluate_full = channel.full_due and (channel.evaluate_full or context.evaluated)
        if channel.idle:
            if channel.evaluate_full and not channel.all_leadership:
                channel.all_leadership = may_promise(context, channel)
                channel.evaluate_full = False
            send_next(context, channel)
    context.changed.clear()
    context.evaluated = False


def send_next(context: ControllerContext, channel: Channel) -> None:
    """Send the next request of an idle channel, if there is one."""
    for request_type in AFTER[channel.last]:
        if channel.waits_for(request_type) and (request := SENDERS[request_type](context, channel)) is not None:
            channel.in_flight, channel.last = request, request_type
            return
    channel.last = RequestType.STOP_REPLICA  # the next change begins with LeaderAndIsr


def may_promise(context: ControllerContext, channel: Channel) -> bool:
    """Whether a full LeaderAndIsr is due and possible."""
    return channel.full_due and not channel.rejected and hosts_only_known(context, channel.broker.broker_id)


def hosts_only_known(context: ControllerContext, broker_id: int) -> bool:
    """Whether the broker may be promised that it hosts nothing but the partitions with a state."""
    if context.unknown:
        return False
    return all(_known(partition) for partition in context.hosted.get(broker_id, {}).values())


def _known(partition: Partition) -> bool:
    """Whether the partition has a state, or no log that the broker must keep."""
    return partition.state in KNOWN


def _send_metadata(context: ControllerContext, channel: Channel) -> InFlight:
    names = probe(channel, RequestType.UPDATE_METADATA)
    everything, metadata = channel.all_metadata and names is None, channel.metadata
    if names is not None:
        topics, metadata = metadata_of(context, keys_of(context, channel, names)), {}
    else:
        topics = all_metadata(context) if everything else metadata_of(context, metadata)
        channel.all_metadata, channel.brokers_changed, channel.metadata = False, False, {}
    if channel.rejected:
        topics = tuple([each for each in topics if not is_left_out(context, channel, each.topic)])
    broker = channel.broker
    request_id = context.next_id()
    brokers = tuple(context.brokers.values())
    context.effects.append(SendUpdateMetadata(request_id, broker.broker_id, broker.epoch, everything, brokers, topics))
    led = _led(context, topics) if broker.broker_id == context.settings.broker_id else ()
    return InFlight(request_id, RequestType.UPDATE_METADATA, everything, metadata=metadata, led=led, sent=topics)


def _led(context: ControllerContext, topics: tuple[TopicMetadata, ...]) -> tuple[Partition, ...]:
    """The partitions with a leader that this broker's image will have, and did not have before."""
    led = []
    for topic in topics:
        keys = [TopicPartition(topic.topic, each.partition) for each in topic.partitions if each.leader >= 0]
        led += [partition for key in keys if (partition := find(context, key)) is not None and not partition.published]
    return tuple(led)


def _send_leadership(context: ControllerContext, channel: Channel) -> InFlight | None:
    broker = channel.broker
    hosted = context.hosted.get(broker.broker_id, {})
    names = probe(channel, RequestType.LEADER_AND_ISR)
    waiting, everything = channel.leadership, channel.all_leadership
    keys: Collection[TopicPartition] = hosted if everything or names is not None else waiting
    if names is not None:
        keys = [key for key in keys if key.topic in names]
    if channel.rejected:
        keys = [key for key in keys if not is_left_out(context, channel, key.topic)]
    partitions = [
        (partition, waiting.get(key, False))
        for key in keys
        if (partition := hosted.get(key)) is not None and _is_hosted(partition, broker.broker_id)
    ]
    full = everything and names is None and may_promise(context, channel)
    if names is None:
        channel.leadership, channel.all_leadership = {}, False
    if not partitions and not full:
        channel.suspects.pop(RequestType.LEADER_AND_ISR, None)
        return None
    channel.full_due = channel.full_due and not full
    topics = leadership_of(partitions, broker.broker_id)
    request_id = context.next_id()
    leaders = {partition.current.leader for partition, _ in partitions if partition.current is not None}
    live = tuple(context.brokers[leader] for leader in sorted(leaders) if leader in context.brokers)
    context.effects.append(SendLeaderAndIsr(request_id, broker.broker_id, broker.epoch, full, topics, live))
    return InFlight(
        request_id,
        RequestType.LEADER_AND_ISR,
        everything and names is None,
        full,
        {partition.key: is_new for partition, is_new in partitions},
        topics={partition.key: partition.topic for partition, _ in partitions},
        sent=topics,
    )


def _is_hosted(partition: Partition, broker_id: int) -> bool:
    """Whether the broker has a log of the partition, or must create it."""
    if partition.current is None:
        return False
    topic = partition.topic
    return topic.state is TopicState.ACTIVE or topic.waits_for(partition.key.partition, broker_id)


def _send_stops(context: ControllerContext, channel: Channel) -> InFlight | None:
    broker = channel.broker
    names = probe(channel, RequestType.STOP_REPLICA)
    wanted = {key: stop for key, stop in channel.stops.items() if _must_stop(context, broker.broker_id, key, stop)}
    stops = {key: stop for key, stop in wanted.items() if not stop.delete or channel.accepted.get(key) is stop.topic}
    stops = {
        key: stop
        for key, stop in stops.items()
        if (names is None or key.topic in names) and not is_left_out(context, channel, key.topic)
    }
    channel.stops = {key: stop for key, stop in wanted.items() if key not in stops}
    if not stops:
        channel.suspects.pop(RequestType.STOP_REPLICA, None)
        return None
    request_id = context.next_id()
    topics = stopped(stops)
    context.effects.append(SendStopReplica(request_id, broker.broker_id, broker.epoch, topics))
    return InFlight(request_id, RequestType.STOP_REPLICA, stops=stops, sent=topics)


def _must_stop(context: ControllerContext, broker_id: int, key: TopicPartition, stop: Stop) -> bool:
    """Whether the replica must still be stopped. A log is deleted only while the deletion of its topic is requested."""
    topic = context.topics.get(key.topic)
    if stop.delete:
        return topic is stop.topic and key.partition in topic.stopping.get(broker_id, ())
    return key not in context.hosted.get(broker_id, {})


SENDERS = {
    RequestType.LEADER_AND_ISR: _send_leadership,
    RequestType.UPDATE_METADATA: _send_metadata,
    RequestType.STOP_REPLICA: _send_stops,
}
