"""ConsumerGroupHeartbeat, key 68, v0-1: a member joins, leaves, keeps its session and receives its assignment
(KIP-848).

Version notes: in v0 the broker may choose the member id; in v1 the client does (KIP-1082) and may subscribe to a
pattern. A pattern that RE2 rejects fails with INVALID_REGULAR_EXPRESSION. If `group.coordinator.rebalance.protocols`
does not contain "consumer", the request fails with UNSUPPORTED_VERSION. The machine is
`state/groups/consumer/heartbeat.py`.
"""

from collections.abc import Collection, Generator
from functools import partial
from typing import Any

from kafkalite.coordinators.group.regex_resolver import complaint
from kafkalite.errors import KafkaErrorCode, shorten
from kafkalite.model import uuid_text
from kafkalite.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafkalite.server.requests.call import OBJECTS_MAX, GroupCall
from kafkalite.state.groups.assignors import Assignment
from kafkalite.state.groups.consumer.requests import JOIN_EPOCH, ConsumerGroupHeartbeat, HeartbeatResult

CLIENT_CHOOSES_SINCE = 1
NO_INTERVAL = 0
SWITCHED_OFF = "group.coordinator.rebalance.protocols does not name consumer."

AssignmentMessage = ConsumerGroupHeartbeatResponse.Assignment
TopicPartitions = AssignmentMessage.TopicPartitions


def consumer_group_heartbeat(
    call: GroupCall, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | None:
    """Submit the heartbeat to the group's shard."""
    if "consumer" not in call.context.config.group_coordinator_rebalance_protocols:
        return refuse(KafkaErrorCode.UNSUPPORTED_VERSION, SWITCHED_OFF)
    pattern = request.subscribed_topic_regex
    wrong = complaint(pattern) if pattern else None
    if wrong is not None:
        text = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {wrong}."
        return refuse(KafkaErrorCode.INVALID_REGULAR_EXPRESSION, text)
    fast_heartbeat = command_of(call, request)
    call.context.groups.submit(
        request.group_id,
        lambda machine, token, now: machine.registry.consumer_heartbeat(fast_heartbeat, token, now),
        call.completion(partial(answer, call), lambda error: refuse(error, None)),
    )
    return None


def command_of(call: GroupCall, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeat:
    """Convert the request to the command of the machine."""
    member_id = request.member_id
    if not member_id and call.version < CLIENT_CHOOSES_SINCE and request.member_epoch == JOIN_EPOCH:
        member_id = uuid_text(call.context.random.uuid())
    names = request.subscribed_topic_names
    return ConsumerGroupHeartbeat(
        group=request.group_id,
        member_id=member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=min(request.rebalance_timeout_ms, call.context.config.kafkalite_client_timeout_max_ms),
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=owned_partitions(request),
        client_id=call.client_id,
        client_host=call.client_host,
    )


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    """Return the partitions that the member owns; the request may list a topic several times."""
    if request.topic_partitions is None:
        return None
    found: dict[bytes, frozenset[int]] = {}
    for each in request.topic_partitions:
        if each.partitions:
            found[each.topic_id] = found.get(each.topic_id, frozenset()) | frozenset(each.partitions)
    return found


def answer(call: GroupCall, result: HeartbeatResult) -> ConsumerGroupHeartbeatResponse | None:
    """Return the member epoch, and the assignment if it has changed; a large one is encoded in slices, and None is
    returned.
    """
    if result.error:
        return refuse(result.error, result.message)
    if result.assignment is None:
        return response(result, None)
    if len(result.assignment) <= OBJECTS_MAX:
        return response(result, [topic_partitions(*each) for each in result.assignment.items()])
    call.answer_from(large_response(call, result, result.assignment), len(result.assignment))
    return None


def large_response(
    call: GroupCall, result: HeartbeatResult, assignment: Assignment
) -> Generator[None, None, ConsumerGroupHeartbeatResponse]:
    """Build the response for an assignment of many topics, encoded piece by piece."""
    array = call.elements()
    for each in assignment.items():
        array.add(topic_partitions(*each))
        yield
    return response(result, array.finish())


def topic_partitions(topic_id: bytes, partitions: Collection[int]) -> TopicPartitions:
    """Return one topic of an assignment."""
    return TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))


def response(result: HeartbeatResult, topics: list[Any] | None) -> ConsumerGroupHeartbeatResponse:
    """Return the response without an error; `topics` is the assignment, None = unchanged."""
    return ConsumerGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if topics is None else AssignmentMessage(topic_partitions=topics),
    )


def refuse(error: int, message: str | None) -> ConsumerGroupHeartbeatResponse:
    """Return the response with an error and its reason."""
    return ConsumerGroupHeartbeatResponse(
        error_code=error,
        error_message=None if message is None else shorten(message),
        member_epoch=0,
        heartbeat_interval_ms=NO_INTERVAL,
    )
