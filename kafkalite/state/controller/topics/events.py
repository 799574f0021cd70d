"""Topics appear, change and disappear in the tree, and deletions are requested."""

from kafkalite.state.controller.context import IN_DELETION, UNKNOWN_TOPICS, ControllerContext
from kafkalite.state.controller.effects import DeleteDeletion
from kafkalite.state.controller.events import AwaitDeletion, AwaitTopic, DeletionsChanged, TopicRead, TopicsChanged
from kafkalite.state.controller.known_topics import Topic
from kafkalite.state.controller.states import TopicEvent, TopicState
from kafkalite.state.controller.steps import Steps
from kafkalite.state.controller.topics.table import step
from kafkalite.state.controller.values import InvalidNode, TopicNodes
from kafkalite.state.controller.writes import RequestRemoval


def topics_changed(context: ControllerContext, event: TopicsChanged) -> Steps:
    """Read new topics, and forget those that others have deleted."""
    for name in sorted(event.topics - context.topics.keys()):
        add_unread(context, name)
        yield
    for name in sorted(context.topics.keys() - event.topics):
        topic = context.topics[name]
        if topic.state is not TopicState.UNREAD:  # else it is being read
            yield from step(context, topic, TopicEvent.MISSING)


def add_unread(context: ControllerContext, name: str) -> Topic:
    """Read a topic that is not known."""
    topic = context.topics[name] = Topic(name)
    context.unknown.add(name)
    context.work.topics_to_read[name] = None
    return topic


def topic_read(context: ControllerContext, event: TopicRead) -> Steps:
    """The nodes of a topic, or that it does not exist. Another node or id: it was deleted and created again.

    Nodes of a name that is not known are ignored: `TopicsChanged` will bring it.
    """
    topic, nodes = context.topics.get(event.topic), event.nodes
    if topic is None:
        return
    if _is_other(topic, nodes):
        if topic.state is TopicState.ACTIVE:
            yield from step(context, topic, TopicEvent.MISSING)
        else:  # the deletion begins again, with the replicas of the existing topic
            yield from context.forget(topic)
        topic = context.topics[event.topic] = Topic(event.topic)
    yield from step(context, topic, event_of(nodes), nodes)


def _is_other(topic: Topic, nodes: TopicNodes | InvalidNode | None) -> bool:
    """Whether the nodes are those of another topic with the name of a known one."""
    if topic.state in UNKNOWN_TOPICS or not isinstance(nodes, TopicNodes):
        return False
    return nodes.created_zxid != topic.created_zxid or nodes.topic_id not in (None, topic.topic_id)


def event_of(nodes: TopicNodes | InvalidNode | None) -> TopicEvent:
    """The event that corresponds to nodes that were read."""
    if nodes is None:
        return TopicEvent.MISSING
    if isinstance(nodes, InvalidNode):
        return TopicEvent.UNREADABLE
    return TopicEvent.READ_WITHOUT_ID if nodes.topic_id is None else TopicEvent.READ


def deletions_changed(context: ControllerContext, event: DeletionsChanged) -> Steps:
    """Begin the deletions that are requested, and end those whose request was removed."""
    if not context.settings.delete_topic_enable:
        refuse_deletions(context, event.topics)
        return
    requested = sorted(event.topics - context.deletions)
    withdrawn = sorted(context.deletions - event.topics)
    context.deletions = set(event.topics)
    for name in requested:
        topic = context.topics.get(name)
        if topic is None:
            add_unread(context, name)
        else:
            yield from step(context, topic, TopicEvent.DELETION_REQUESTED)
        yield
    for name in withdrawn:
        topic = context.topics.get(name)
        if topic is not None and topic.state in IN_DELETION:
            yield from step(context, topic, TopicEvent.DELETION_WITHDRAWN)


def refuse_deletions(context: ControllerContext, topics: frozenset[str]) -> None:
    """Remove the requests, because the configuration does not allow deletions."""
    for name in sorted(topics):
        context.log("warning", f"topic {name}: it is not deleted because delete.topic.enable is false")
        context.write((DeleteDeletion(name),), RequestRemoval(name))


def await_topic(context: ControllerContext, event: AwaitTopic) -> None:
    """A client waits for a new topic or for new partitions."""
    topic = context.topics.get(event.topic)
    context.completions.await_topic(event, topic)
    if topic is not None and topic.state in IN_DELETION:
        context.completions.deletion_begun(topic)


def await_deletion(context: ControllerContext, event: AwaitDeletion) -> None:
    """A client waits for a deletion."""
    context.completions.await_deletion(event)
    topic = context.topics.get(event.topic)
    if topic is not None and topic.state is TopicState.INELIGIBLE:
        context.completions.deleted(event.topic)
