"""ConsumerGroupHeartbeat, key 68, v0-1. A member of a consumer group joins, lives, leaves, and hears what to own
(KIP-848).

Version notes: v0 the broker may choose the member id; v1 the client does (KIP-1082), and patterns. A pattern that RE2
does not take is INVALID_REGULAR_EXPRESSION. Where `group.coordinator.rebalance.protocols` leaves "consumer" out, this
is UNSUPPORTED_VERSION. The machine is `state/consumer_groups.py`.
"""

from kafkalite.coordinators.patterns import complaint
from kafkalite.errors import KafkaErrorCode, shortened
from kafkalite.model import uuid_text
from kafkalite.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafkalite.server.call import Call
from kafkalite.state.assignors import Assignment
from kafkalite.state.consumer_requests import JOIN_EPOCH, ConsumerGroupHeartbeat, HeartbeatResult

CLIENT_CHOOSES_SINCE = 1
NO_INTERVAL = 0
SWITCHED_OFF = "group.coordinator.rebalance.protocols does not name consumer."

AssignmentMessage = ConsumerGroupHeartbeatResponse.Assignment
TopicPartitions = AssignmentMessage.TopicPartitions


def consumer_group_heartbeat(
    call: Call, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | None:
    """Take note of the member and move it towards its target."""
    if "consumer" not in call.broker.config.group_coordinator_rebalance_protocols:
        return refused(KafkaErrorCode.UNSUPPORTED_VERSION, SWITCHED_OFF)
    pattern = request.subscribed_topic_regex
    wrong = complaint(pattern) if pattern else None
    if wrong is not None:
        text = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {wrong}."
        return refused(KafkaErrorCode.INVALID_REGULAR_EXPRESSION, text)
    beat = command_of(call, request)
    call.broker.groups.submit(
        request.group_id,
        lambda shard, token, now: shard.kinds.consumer_heartbeat(beat, token, now),
        call.awaiting(answer, lambda error: refused(error, None)),
    )
    return None


def command_of(call: Call, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeat:
    """The request in the machine's words."""
    member_id = request.member_id
    if not member_id and call.version < CLIENT_CHOOSES_SINCE and request.member_epoch == JOIN_EPOCH:
        member_id = uuid_text(call.broker.random.uuid())
    names = request.subscribed_topic_names
    return ConsumerGroupHeartbeat(
        group=request.group_id,
        member_id=member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=min(request.rebalance_timeout_ms, call.broker.config.kafkalite_client_timeout_max_ms),
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=owned(request),
        client_id=call.client_id,
        client_host=call.client_host,
    )


def owned(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    """What the member has; a topic may come in several pieces."""
    if request.topic_partitions is None:
        return None
    found: dict[bytes, frozenset[int]] = {}
    for each in request.topic_partitions:
        if each.partitions:
            found[each.topic_id] = found.get(each.topic_id, frozenset()) | frozenset(each.partitions)
    return found


def answer(result: HeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    """The epoch, and the assignment where it has changed."""
    if result.error:
        return refused(result.error, result.message)
    message = None
    if result.assignment is not None:
        topics = [
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in result.assignment.items()
        ]
        message = AssignmentMessage(topic_partitions=topics)
    return ConsumerGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=message,
    )


def refused(error: int, message: str | None) -> ConsumerGroupHeartbeatResponse:
    """An error, and why."""
    return ConsumerGroupHeartbeatResponse(
        error_code=error,
        error_message=None if message is None else shortened(message),
        member_epoch=0,
        heartbeat_interval_ms=NO_INTERVAL,
    )
