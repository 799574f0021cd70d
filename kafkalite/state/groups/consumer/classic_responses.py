"""The actions of `groups/consumer/classic_table`: responses to SyncGroup and Heartbeat of members of the classic
protocol in a consumer group.
"""

from enum import Enum
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.classic.requests import ErrorOnly, Synced
from kafkalite.state.groups.classic.settings import CONSUMER_PROTOCOL
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.group_steps import JOIN, SYNC, GroupSteps
from kafkalite.state.groups.records import CONSUMER, ConsumerGroupMemberMetadata


class ClassicMemberRequest(Enum):
    """The requests; the values are their descriptions in docs/groups.md."""

    HEARTBEAT = "sends a heartbeat"
    SYNC = "fetches its assignment"


class ClassicRequest(NamedTuple):
    """One request of a member while it is executed.

    Arguments:
        steps: the steps that commands share.
        effects: receives the response.
        token: of the response.
        group: of the member.
        member: the sender.
        request: its request.
        now: the time.
    """

    steps: GroupSteps
    effects: Effects
    token: Token
    group: ConsumerGroup
    member: ConsumerGroupMemberMetadata
    request: ClassicMemberRequest
    now: Now


def request_rejoin(served: ClassicRequest) -> None:
    """Respond with REBALANCE_IN_PROGRESS. The member has its rebalance timeout from the first time on."""
    group_id, member_id = served.group.group_id, served.member.member_id
    if (group_id, member_id) not in served.steps.rejoining:
        served.steps.rejoining.add((group_id, member_id))
        over_at_ms = served.now.ms + served.member.rebalance_timeout_ms
        served.effects.set_timer((CONSUMER, JOIN, group_id, member_id), over_at_ms)
    error = KafkaErrorCode.REBALANCE_IN_PROGRESS
    is_heartbeat = served.request is ClassicMemberRequest.HEARTBEAT
    served.effects.answer(served.token, ErrorOnly(error) if is_heartbeat else Synced(error))


def acknowledge_heartbeat(served: ClassicRequest) -> None:
    """Respond without an error."""
    served.effects.answer(served.token, ErrorOnly())


def return_assignment(served: ClassicRequest) -> None:
    """Return the partitions that the member owns, as an assignment of its protocol."""
    steps, member, group = served.steps, served.member, served.group
    partitions = {}
    for topic_id, epochs in group.current(member.member_id).assigned.items():
        topic = steps.topics.by_id(topic_id)
        if topic is not None:
            partitions[topic.name] = sorted(epochs)
    protocol, metadata = protocol_of(member)
    assignment = steps.embedded.assignment(partitions, metadata)
    served.effects.cancel_timer((CONSUMER, SYNC, group.group_id, member.member_id))
    keep_alive(steps, served.effects, member, served.now)
    served.effects.answer(served.token, Synced(0, CONSUMER_PROTOCOL, protocol, assignment))


def keep_alive(steps: GroupSteps, effects: Effects, member: ConsumerGroupMemberMetadata, now: Now) -> None:
    """Extend the session of a member of the classic protocol by its session timeout."""
    assert member.classic is not None
    steps.keep_session(effects, (member.group, member.member_id), member.classic.session_timeout_ms, now)


def protocol_of(member: ConsumerGroupMemberMetadata) -> tuple[str, bytes]:
    """Name and metadata of the protocol in responses to a member: the first of its join. A damaged record may have
    none.
    """
    assert member.classic is not None
    return next(iter(member.classic.protocols), ("", b""))
