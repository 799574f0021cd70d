"""Sends what waits for the brokers: for each idle channel the next request, with the newest states."""

from collections.abc import Collection, Generator
from typing import TypeAlias

from kafkalite.model import TopicPartition
from kafkalite.state.controller.channel import AFTER, Channel, InFlight, RequestType, Stop
from kafkalite.state.controller.contents import all_metadata, find, leadership_of, metadata_of, stopped_topics
from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.effects import SendLeaderAndIsr, SendStopReplica, SendUpdateMetadata, TopicMetadata
from kafkalite.state.controller.known_topics import Partition
from kafkalite.state.controller.rejections import is_left_out, keys_of, probe
from kafkalite.state.controller.states import PartitionState, TopicState
from kafkalite.state.controller.steps import Steps

KNOWN = frozenset((PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.ELECTING, PartitionState.DELETED))

Next: TypeAlias = Generator[None, None, InFlight | None]  # returns the request that is sent


def send_pending(context: ControllerContext) -> Steps:
    """Send the next request of each idle channel."""
    changed = yield from _changed_metadata(context)
    if changed:
        context.metadata_of.clear()
    for channel in context.channels.values():
        if not channel.all_metadata:
            channel.metadata.update(changed)
        channel.evaluate_full = channel.full_due and (channel.evaluate_full or context.work.evaluated)
        if channel.idle:
            if channel.evaluate_full and not channel.all_leadership:
                channel.all_leadership = may_promise(context, channel)
                channel.evaluate_full = False
            yield from send_next(context, channel)
    context.work.evaluated = False


def _changed_metadata(context: ControllerContext) -> Generator[None, None, dict[TopicPartition, None]]:
    """Take the partitions whose metadata has changed.

    New partitions wait until no first state of their topic is being written: a client that saw some of them would
    choose the partition of a key among these (KafkaController.onNewPartitionCreation sends all at once, too).
    """
    work = context.work
    changed, new, creating = work.changed, dict[TopicPartition, None](), dict[str, bool]()
    for key in work.new:
        if key.topic not in creating:
            topic = context.topics.get(key.topic)
            creating[key.topic] = topic is not None and topic.is_creating
        if creating[key.topic]:
            new[key] = None
            changed.pop(key, None)
        else:
            changed[key] = None
        yield
    work.changed, work.new = {}, new
    return changed


def send_next(context: ControllerContext, channel: Channel) -> Steps:
    """Send the next request of an idle channel, if there is one."""
    for request_type in AFTER[channel.last]:
        if channel.waits_for(request_type):
            request = yield from SENDERS[request_type](context, channel)
            if request is not None:
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


def _send_metadata(context: ControllerContext, channel: Channel) -> Next:
    names = probe(channel, RequestType.UPDATE_METADATA)
    everything, metadata = channel.all_metadata and names is None, channel.metadata
    if names is not None:
        topics, metadata = (yield from metadata_of(context, keys_of(context, channel, names))), {}
    else:
        topics = yield from (all_metadata(context) if everything else metadata_of(context, metadata))
        channel.all_metadata, channel.brokers_changed, channel.metadata = False, False, {}
    if channel.rejected:
        topics = tuple([each for each in topics if not is_left_out(context, channel, each.topic)])
    broker = channel.broker
    request_id = context.next_id()
    brokers = tuple(context.brokers.values())
    context.effects.append(SendUpdateMetadata(request_id, broker.broker_id, broker.epoch, everything, brokers, topics))
    led = (yield from _led(context, topics)) if broker.broker_id == context.settings.broker_id else ()
    return InFlight(request_id, RequestType.UPDATE_METADATA, everything, metadata=metadata, led=led, sent=topics)


def _led(context: ControllerContext, topics: tuple[TopicMetadata, ...]) -> Generator[None, None, tuple[Partition, ...]]:
    """The partitions with a leader that this broker's image will have, and did not have before."""
    led = []
    for topic in topics:
        for each in topic.partitions:
            partition = find(context, TopicPartition(topic.topic, each.partition)) if each.leader >= 0 else None
            if partition is not None and not partition.published:
                led.append(partition)
            yield
    return tuple(led)


def _send_leadership(context: ControllerContext, channel: Channel) -> Next:
    broker = channel.broker
    hosted = context.hosted.get(broker.broker_id, {})
    names = probe(channel, RequestType.LEADER_AND_ISR)
    waiting, everything = channel.leadership, channel.all_leadership
    keys: Collection[TopicPartition] = hosted if everything or names is not None else waiting
    if names is not None:
        keys = [key for key in keys if key.topic in names]
    if channel.rejected:
        keys = [key for key in keys if not is_left_out(context, channel, key.topic)]
    partitions = []
    for key in keys:
        if (partition := hosted.get(key)) is not None and _is_hosted(partition, broker.broker_id):
            partitions.append((partition, waiting.get(key, False)))
        yield
    full = everything and names is None and may_promise(context, channel)
    if names is None:
        channel.leadership, channel.all_leadership = {}, False
    if not partitions and not full:
        channel.suspects.pop(RequestType.LEADER_AND_ISR, None)
        return None
    channel.full_due = channel.full_due and not full
    topics = yield from leadership_of(partitions, broker.broker_id)
    request_id = context.next_id()
    leaders = {partition.current.leader for partition, _ in partitions if partition.current is not None}
    live = tuple(context.brokers[leader] for leader in sorted(leaders) if leader in context.brokers)
    context.effects.append(SendLeaderAndIsr(request_id, broker.broker_id, broker.epoch, full, topics, live))
    yield
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


def _send_stops(context: ControllerContext, channel: Channel) -> Next:
    broker = channel.broker
    names = probe(channel, RequestType.STOP_REPLICA)
    stops: dict[TopicPartition, Stop] = {}
    left: dict[TopicPartition, Stop] = {}
    for key, stop in channel.stops.items():
        if _must_stop(context, broker.broker_id, key, stop):
            if not stop.delete and (partition := find(context, key)) is not None:
                stop = stop._replace(leader_epoch=partition.leader_epoch)
            accepted = not stop.delete or channel.accepted.get(key) is stop.topic
            sent = accepted and (names is None or key.topic in names) and not is_left_out(context, channel, key.topic)
            (stops if sent else left)[key] = stop
        yield
    channel.stops = left
    if not stops:
        channel.suspects.pop(RequestType.STOP_REPLICA, None)
        return None
    request_id = context.next_id()
    topics = stopped_topics(stops)
    yield
    context.effects.append(SendStopReplica(request_id, broker.broker_id, broker.epoch, topics))
    return InFlight(request_id, RequestType.STOP_REPLICA, stops=stops, sent=topics)


def _must_stop(context: ControllerContext, broker_id: int, key: TopicPartition, stop: Stop) -> bool:
    """Whether the replica must still be stopped: it is not hosted any more, or its broker shuts down and does not lead
    it. A log is deleted only while the deletion of its topic is requested.
    """
    topic = context.topics.get(key.topic)
    if stop.delete:
        return topic is stop.topic and key.partition in topic.stopping.get(broker_id, ())
    partition = context.hosted.get(broker_id, {}).get(key)
    return partition is None or context.follows(broker_id, partition)


SENDERS = {
    RequestType.LEADER_AND_ISR: _send_leadership,
    RequestType.UPDATE_METADATA: _send_metadata,
    RequestType.STOP_REPLICA: _send_stops,
}
