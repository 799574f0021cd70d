"""Requests that a broker rejects as a whole, or that cannot be encoded: the topic that causes it is left out.

1. A rejected request is never repeated unchanged. The topics of the request are halved: a request with the first half
   says whether it has the cause. What was accepted is sent again with the rest, which is harmless.
2. A topic that is rejected alone is left out for this broker, with one line in the log, until its nodes change or the
   broker registers again. All other topics are sent.
3. While a topic is left out, no LeaderAndIsr promises that the broker hosts nothing else.
"""

from kafkalite.model import TopicPartition
from kafkalite.state.controller.channel import Channel, InFlight, RequestType, Signature
from kafkalite.state.controller.context import ControllerContext


def probe(channel: Channel, request_type: RequestType) -> frozenset[str] | None:
    """The topics that the next request may have; None = all."""
    suspects = channel.suspects.get(request_type)
    return None if suspects is None else frozenset(suspects[: (len(suspects) + 1) // 2])


def is_left_out(context: ControllerContext, channel: Channel, topic: str) -> bool:
    """Whether the broker of `channel` has rejected `topic` as `context` has it now."""
    if topic not in channel.rejected:
        return False
    if channel.rejected[topic] == _signature(context, topic):
        return True
    del channel.rejected[topic]
    return False


def reject(context: ControllerContext, channel: Channel, request: InFlight, reason: str) -> None:
    """A request was rejected as a whole: look for the topic that causes it, or leave it out.

    Arguments:
        context: of the controller.
        channel: of the broker.
        request: that was sent.
        reason: of the rejection, for the log.
    """
    topics = list(dict.fromkeys(each.topic for each in request.sent))
    if len(topics) > 1:
        channel.suspects[request.type] = topics
        return
    channel.suspects.pop(request.type, None)
    for topic in topics:
        channel.rejected[topic] = _signature(context, topic)
        text = f"broker {channel.broker.broker_id}: {request.type.name} rejected for topic {topic!r} ({reason})"
        context.log("error", f"{text}; the topic is left out for this broker until it changes")


def accept(channel: Channel, request: InFlight) -> None:
    """A request was accepted: the cause is among the other topics."""
    suspects = channel.suspects.pop(request.type, None)
    if suspects is not None:
        sent = {each.topic for each in request.sent}
        left = [topic for topic in suspects if topic not in sent]
        if left and len(left) < len(suspects):
            channel.suspects[request.type] = left


def keys_of(context: ControllerContext, channel: Channel, topics: frozenset[str]) -> tuple[TopicPartition, ...]:
    """The partitions of `topics` in `context`, and those that wait in `channel` because they do not exist any more."""
    known = [context.topics[name] for name in sorted(topics) if name in context.topics]
    keys = dict.fromkeys(partition.key for topic in known for partition in topic.partitions.values())
    return tuple(keys | {key: None for key in channel.metadata if key.topic in topics})


def _signature(context: ControllerContext, name: str) -> Signature:
    topic = context.topics.get(name)
    if topic is None:
        return None
    return topic, topic.version, sum(partition.version for partition in topic.partitions.values())
