"""The start of an elected controller: KafkaController.onControllerFailover of Kafka 3.9.

Every broker first receives UpdateMetadata, with all brokers and partitions, then LeaderAndIsr with all partitions that
it hosts. Partitions without a live leader are elected, half-created topics completed, and deletions continued.
"""

from collections.abc import Mapping

from kafkalite.model import TopicPartition
from kafkalite.state.controller.brokers import compatible, connect
from kafkalite.state.controller.contents import find
from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.effects import DeleteNotifications
from kafkalite.state.controller.events import SnapshotRead
from kafkalite.state.controller.known_topics import Topic
from kafkalite.state.controller.leader_rebalance import start_rebalances
from kafkalite.state.controller.partitions.events import elect_each
from kafkalite.state.controller.preferred_election import can_lead_preferred
from kafkalite.state.controller.states import TopicState
from kafkalite.state.controller.steps import Steps
from kafkalite.state.controller.topics.events import add_unread, event_of, refuse_deletions
from kafkalite.state.controller.topics.table import step
from kafkalite.state.controller.values import FeaturesNode, InvalidNode, Replicas, Snapshot, TopicNodes
from kafkalite.state.controller.write_results import enable_features


def snapshot_read(context: ControllerContext, event: SnapshotRead) -> Steps:
    """Begin to control the cluster."""
    snapshot = event.snapshot
    _load_features(context, snapshot.features)
    context.brokers = compatible(context, snapshot.brokers)
    for broker in context.brokers.values():
        connect(context, broker)
    _load_deletions(context, snapshot)
    for name, nodes in snapshot.topics.items():
        yield from _load_topic(context, name, nodes)
        yield
    yield from _load_requests(context, snapshot)
    start_rebalances(context)
    _log_loaded(context)


def _load_features(context: ControllerContext, node: FeaturesNode | None) -> None:
    if node is None or not node.enabled:
        enable_features(context, None if node is None else node.version)
    else:
        context.levels = dict(node.levels)


def _load_deletions(context: ControllerContext, snapshot: Snapshot) -> None:
    """Continue deletions. A name that is not a topic is read again before its request is removed."""
    if not context.settings.delete_topic_enable:
        refuse_deletions(context, snapshot.deletions)
        return
    context.deletions = set(snapshot.deletions)
    for name in sorted(snapshot.deletions - snapshot.topics.keys()):
        add_unread(context, name)


def _load_topic(context: ControllerContext, name: str, nodes: TopicNodes | InvalidNode) -> Steps:
    topic = context.topics[name] = Topic(name)
    yield from step(context, topic, event_of(nodes), nodes)


def _load_requests(context: ControllerContext, snapshot: Snapshot) -> Steps:
    """The requests of administrators that Kafka's tools before 2.x write, and notifications that are obsolete now."""
    if snapshot.reassignment is not None:
        _refuse_reassignment(context, snapshot.reassignment)
    if snapshot.preferred_election is not None:
        yield from _elect_preferred(context, snapshot.preferred_election)
    obsolete = DeleteNotifications(
        snapshot.log_dir_events,
        snapshot.isr_changes,
        snapshot.reassignment is not None,
        snapshot.preferred_election is not None,
    )
    if obsolete != DeleteNotifications():
        context.effects.append(obsolete)


def _refuse_reassignment(context: ControllerContext, reassignment: Mapping[TopicPartition, Replicas]) -> None:
    for key, replicas in reassignment.items():
        partition = find(context, key)
        if partition is None:
            context.log("warning", f"reassignment of {key} refused: the partition does not exist")
        elif partition.replicas != replicas:
            change = f"from {list(partition.replicas)} to {list(replicas)}"
            context.log("error", f"reassignment of {key} {change} refused: replicas cannot be moved yet")


def _elect_preferred(context: ControllerContext, partitions: tuple[TopicPartition, ...]) -> Steps:
    """Elect the preferred replicas that are online and in sync."""
    elected = []
    for key in partitions:
        partition = find(context, key)
        if partition is None:
            context.log("warning", f"preferred replica election of {key} refused: the partition does not exist")
        elif partition.current is not None and partition.current.leader == partition.replicas[0]:
            continue
        elif can_lead_preferred(context, partition):
            elected.append(partition)
        else:
            context.log("warning", f"preferred replica election of {key} failed: the preferred replica is not online")
    yield from elect_each(context, elected, unclean=False)


def _log_loaded(context: ControllerContext) -> None:
    topics = [topic for topic in context.topics.values() if topic.state is TopicState.ACTIVE]
    partitions = sum(len(topic.partitions) for topic in topics)
    counts = f"{len(context.brokers)} brokers, {len(topics)} topics, {partitions} partitions"
    context.log("info", f"controller epoch {context.settings.epoch}: {counts}, {len(context.deletions)} deletions")
