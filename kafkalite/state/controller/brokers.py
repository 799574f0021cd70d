"""Brokers join, restart, fail or change their endpoints: KafkaController.processBrokerChange of Kafka 3.9.

A broker that has registered again has a new epoch: it gets a new channel, which sends everything, and the partitions
that it leads or has in sync get a new leader epoch (`leader_elections`). The work is proportional to the partitions of
the brokers that have changed.
"""

from collections.abc import Iterable

from kafkalite.state.controller.channel import OFFLINE, RETRY, Channel
from kafkalite.state.controller.context import IN_DELETION, ControllerContext
from kafkalite.state.controller.effects import Connect, DeleteNotifications, Disconnect
from kafkalite.state.controller.events import BrokersChanged, LogDirsFailed
from kafkalite.state.controller.known_topics import NO_BROKERS, Partition, Topic
from kafkalite.state.controller.partitions.table import step as step_partition
from kafkalite.state.controller.states import PartitionEvent, PartitionState, TopicEvent, TopicState
from kafkalite.state.controller.steps import Steps
from kafkalite.state.controller.topics.table import step as step_topic
from kafkalite.state.controller.values import Broker, LeaderAndIsr


def brokers_changed(context: ControllerContext, event: BrokersChanged) -> Steps:
    """Compare the registrations with the known brokers."""
    before, now = context.brokers, compatible(context, event.brokers)
    if now == before:
        return
    context.brokers = now
    restarted = [each for each in now if each in before and now[each].epoch != before[each].epoch]
    failed = [each for each in before if each not in now]
    joined = [each for each in now if each not in before]
    context.log("info", f"brokers: {joined} joined, {restarted} restarted, {failed} failed, {sorted(now)} are alive")
    for broker in (*failed, *restarted):
        yield from disconnect(context, broker)
    for broker in (*joined, *restarted):
        connect(context, now[broker])
    _send_brokers(context, before)
    for broker in (*restarted, *(each for each in joined if now[each].unclean_since >= 0)):
        yield from _note_restart(context, broker, has_left=broker in joined)
    for broker in (*restarted, *joined, *failed):
        yield from _replicas_changed(context, broker)


def compatible(context: ControllerContext, brokers: Iterable[Broker]) -> dict[int, Broker]:
    """The brokers that support all finalized features, by id; the others are ignored, as in Kafka."""
    supported = {}
    for broker in sorted(brokers):
        missing = [name for name, level in context.levels.items() if not _supports(broker, name, level)]
        if not missing:
            supported[broker.broker_id] = broker
        elif context.brokers.get(broker.broker_id) != broker:
            context.log("warning", f"broker {broker.broker_id} is ignored: it does not support the features {missing}")
    return supported


def connect(context: ControllerContext, broker: Broker) -> None:
    """Begin to send requests to a broker."""
    context.channels[broker.broker_id] = Channel(broker)
    context.effects.append(Connect(broker))


def disconnect(context: ControllerContext, broker_id: int) -> Steps:
    """Send no more requests to this incarnation of a broker; its log directories may work after a restart."""
    channel = context.channels.pop(broker_id)
    context.leaving.discard(broker_id)
    context.effects.append(Disconnect(broker_id))
    context.cancel_timer((RETRY, broker_id))
    if channel.offline:
        context.cancel_timer((OFFLINE, broker_id))
    for key in channel.offline:
        partition = context.hosted.get(broker_id, {}).get(key)
        if partition is not None:
            partition.offline = (partition.offline - {broker_id}) or NO_BROKERS
        yield


def log_dirs_failed(context: ControllerContext, event: LogDirsFailed) -> None:
    """Send all partitions to the brokers with a failed log directory: they respond which of them are offline."""
    for broker in sorted({each for each in event.brokers.values() if each is not None}):
        if (channel := context.channels.get(broker)) is not None:
            context.log("warning", f"broker {broker}: a log directory failed")
            channel.all_leadership = True
    context.effects.append(DeleteNotifications(log_dir_events=tuple(event.brokers)))


def replicas_offline(context: ControllerContext, channel: Channel, partitions: Iterable[Partition]) -> Steps:
    """The log directories of the replicas of `partitions` on the broker of `channel` have failed.

    `context` is that of the controller.
    """
    for partition in partitions:
        known = partition.key in channel.offline
        channel.offline.pop(partition.key, None)
        channel.offline[partition.key] = None
        if not known:
            partition.offline |= {channel.broker.broker_id}
            step_partition(context, partition, PartitionEvent.REPLICAS_CHANGED)
        yield


def replicas_online(context: ControllerContext, channel: Channel, partitions: Iterable[Partition]) -> Steps:
    """The log directories of the replicas of `partitions` on the broker of `channel` work again.

    `context` is that of the controller.
    """
    for partition in partitions:
        channel.offline.pop(partition.key, None)
        partition.offline = (partition.offline - {channel.broker.broker_id}) or NO_BROKERS
        step_partition(context, partition, PartitionEvent.REPLICAS_CHANGED)
        yield


def _supports(broker: Broker, feature: str, level: int) -> bool:
    first, last = broker.features.get(feature, (1, 0))
    return first <= level <= last


def _send_brokers(context: ControllerContext, before: dict[int, Broker]) -> None:
    """Send the live brokers to all of them; reconnect where only the endpoints have changed."""
    for broker_id, channel in context.channels.items():
        channel.brokers_changed = True
        broker = context.brokers[broker_id]
        if channel.broker is not broker:
            known, channel.broker = channel.broker, broker
            if known.endpoints != broker.endpoints:
                context.effects.append(Connect(broker))


def _replicas_changed(context: ControllerContext, broker: int) -> Steps:
    """Evaluate the partitions of a broker, then the deletions that concern it."""
    in_deletion: dict[Topic, None] = {}
    for partition in list(context.hosted.get(broker, {}).values()):
        if partition.topic.state in IN_DELETION:
            in_deletion[partition.topic] = None
        elif partition.state is not PartitionState.DELETED:
            step_partition(context, partition, PartitionEvent.REPLICAS_CHANGED)
        yield
    for topic in in_deletion:
        if topic.state is not TopicState.REMOVING:
            alive = broker in context.brokers
            event = TopicEvent.REPLICAS_AVAILABLE if alive else TopicEvent.REPLICAS_UNAVAILABLE
            yield from step_topic(context, topic, event, broker)


def _note_restart(context: ControllerContext, broker: int, *, has_left: bool) -> Steps:
    """Remember the partitions in which a broker that has restarted is in sync; also if the state is being written.

    Where it is eligible, or has left before and joins again, only lost records count. All brokers of an event come
    first: then a partition needs one state, however many of its replicas have restarted.
    """
    for partition in context.hosted.get(broker, {}).values():
        for state in (partition.current, partition.wanted):
            if state is not None and broker in (*state.isr, *state.eligible):
                _note_restart_in(state, partition, context.brokers[broker], has_left=has_left)
        yield


def _note_restart_in(state: LeaderAndIsr, partition: Partition, broker: Broker, *, has_left: bool) -> None:
    """Remember a broker that has restarted since it was complete in a state of a partition."""
    broker_id = broker.broker_id
    is_lossy = broker.has_lost(state.complete_epoch(broker_id))
    if is_lossy:
        partition.lossy |= {broker_id}
    if is_lossy or (broker_id in state.isr and not has_left):
        partition.restarted |= {broker_id}
