"""Reads groups, their coordinators, members and committed offsets from a cluster, and commits offsets.

1. Every error of a broker ends the command with one line. A request to a coordinator that is still loading is retried.
2. Brokers must support FindCoordinator and OffsetFetch for several groups (Apache Kafka 3.0 and later).
3. Topics are sent by name, not by id, so OffsetCommit and OffsetFetch stay below version 10.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafkalite.cli.client_options import check, next_steps, refusal
from kafkalite.cli.failure import fail
from kafkalite.cli.leader_connections import LeaderConnections
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.extensions.register_consumer import RegisterConsumerRequest
from kafkalite.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkalite.protocol.stored.consumer_protocol import read_assignment

BY_NAME = 9  # the last version of OffsetCommit and OffsetFetch that names topics
CONSUMER_PROTOCOL = "consumer"
# After a start, groups are still loading, or their topic is being created.
BEGINNING = (KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS, KafkaErrorCode.COORDINATOR_NOT_AVAILABLE)
BEGINNING_S, PAUSE_S = 10.0, 0.1
DEAD = "Dead"
EMPTY = "Empty"
REGISTERED = "registered"

CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
ConsumerMember = ConsumerGroupDescribeResponse.DescribedGroup.Member
ClassicMember = DescribeGroupsResponse.DescribedGroup.DescribedGroupMember


class CommittedOffset(NamedTuple):
    """A committed offset with its metadata."""

    offset: int
    metadata: str


class GroupMember(NamedTuple):
    """A member of a group with its assignment."""

    member_id: str
    instance: str | None
    client: str
    host: str
    assignment: list[TopicPartition]


class DescribedGroup(NamedTuple):
    """A group with its members; `kind` is classic, consumer or registered, `assignor` its partition assignor."""

    name: str
    kind: str
    state: str
    assignor: str
    members: list[GroupMember]


class GroupListing(NamedTuple):
    """A group as ListGroups describes it; coordinator is a broker id."""

    name: str
    kind: str
    state: str
    protocol_type: str
    coordinator: int


class GroupClient:
    """Reads and changes the groups of a cluster.

    Arguments:
        leaders: the connections to the brokers of the cluster.
    """

    def __init__(self, leaders: LeaderConnections) -> None:
        self._leaders = leaders
        self._coordinators: dict[str, ClientConnection] = {}

    async def coordinator(self, group: str) -> ClientConnection:
        """A connection to the broker that coordinates the group."""
        if group not in self._coordinators:
            request = FindCoordinatorRequest(key=group, coordinator_keys=[group])
            first = self._leaders.first
            response = await call_with_retries(first, request, lambda found: found.coordinators[0].error_code)
            (found,) = response.coordinators
            check(found.error_code, found.error_message, group)
            peer = await self._leaders.broker(found.node_id, found.host, found.port)
            described = DescribeGroupsRequest(groups=[group])
            await call_with_retries(peer, described, lambda found: found.groups[0].error_code)
            self._coordinators[group] = peer
        return self._coordinators[group]

    async def listed(self, states: Iterable[str], types: Iterable[str]) -> list[GroupListing]:
        """All groups with these states and types (empty = all), sorted by name."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        found = []
        for broker_id, peer in (await self._leaders.brokers()).items():
            response = await call_with_retries(peer, request, lambda found: found.error_code)
            check(response.error_code, None, f"broker {broker_id}")
            found += [
                GroupListing(each.group_id, each.group_type, each.group_state, each.protocol_type, broker_id)
                for each in response.groups
            ]
        return sorted(found)

    async def described(self, group: str) -> DescribedGroup:
        """The group with its members; ends the command if the group does not exist."""
        found = await self.find(group)
        if found is None:
            code = KafkaErrorCode.GROUP_ID_NOT_FOUND
            fail(refusal(code, None, group) + next_steps([code]))
        return found

    async def state(self, group: str) -> str:
        """The group's state; Dead if the group does not exist."""
        found = await self.find(group)
        return DEAD if found is None else found.state

    async def find(self, group: str) -> DescribedGroup | None:
        """The group with its members; None if the group does not exist."""
        return await self._consumer_group(group) or await self._classic_group(group)

    async def _consumer_group(self, group: str) -> DescribedGroup | None:
        peer = await self.coordinator(group)
        if ConsumerGroupDescribeRequest.api_key not in peer.api_versions:
            return None
        response: ConsumerGroupDescribeResponse = await peer.call(ConsumerGroupDescribeRequest(group_ids=[group]))
        (found,) = response.groups
        if found.error_code == KafkaErrorCode.GROUP_ID_NOT_FOUND:
            return None  # or it has another type
        check(found.error_code, found.error_message, group)
        members = [consumer_member(each) for each in found.members]
        return DescribedGroup(group, "consumer", found.group_state, found.assignor_name, members)

    async def _classic_group(self, group: str) -> DescribedGroup | None:
        peer = await self.coordinator(group)
        response: DescribeGroupsResponse = await peer.call(DescribeGroupsRequest(groups=[group]))
        (found,) = response.groups
        if found.error_code == KafkaErrorCode.GROUP_ID_NOT_FOUND or (
            not found.error_code and found.group_state == DEAD
        ):
            return None
        check(found.error_code, found.error_message, group)
        readable = found.protocol_type in ("", CONSUMER_PROTOCOL)
        members = [classic_member(each, readable) for each in found.members]
        kind = REGISTERED if await self._is_registered(peer, group) else "classic"
        return DescribedGroup(group, kind, found.group_state, found.protocol_data, members)

    async def _is_registered(self, peer: ClientConnection, group: str) -> bool:
        """Whether the group is registered, an extension of kafkalite; DescribeGroups does not report the type."""
        if RegisterConsumerRequest.api_key not in peer.api_versions:
            return False
        response = await peer.call(ListGroupsRequest(types_filter=[REGISTERED]))
        return any(each.group_id == group for each in response.groups)

    async def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """The committed offsets of a group; empty if the group does not exist."""
        peer = await self.coordinator(group)
        wanted = FetchGroup(group_id=group, topics=None)
        (found,) = (await peer.call(OffsetFetchRequest(groups=[wanted]), version_max=BY_NAME)).groups
        check(found.error_code, None, group)
        offsets = {}
        for topic in found.topics:
            for each in topic.partitions:
                topic_partition = TopicPartition(topic.name, each.partition_index)
                check(each.error_code, None, f"{group}: {topic_partition}")
                if each.committed_offset >= 0:
                    offsets[topic_partition] = CommittedOffset(each.committed_offset, each.metadata or "")
        return dict(sorted(offsets.items()))

    async def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> dict[TopicPartition, int]:
        """Commit for a group without members, in one request; returns the errors of rejected partitions."""
        topics: dict[str, list[CommitTopic.OffsetCommitRequestPartition]] = {}
        for topic_partition, wanted in offsets.items():
            topics.setdefault(topic_partition.topic, []).append(
                CommitTopic.OffsetCommitRequestPartition(
                    partition_index=topic_partition.partition,
                    committed_offset=wanted.offset,
                    committed_metadata=wanted.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            member_id="",
            topics=[CommitTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        )
        response = await (await self.coordinator(group)).call(request, version_max=BY_NAME)
        return {
            TopicPartition(topic.name, each.partition_index): each.error_code
            for topic in response.topics
            for each in topic.partitions
            if each.error_code
        }


async def call_with_retries(peer: ClientConnection, request: Any, error_of: Callable[[Any], int]) -> Any:
    """Return the response to a request, which is retried for a while if the coordinator is loading."""
    loop = asyncio.get_running_loop()
    until = loop.time() + BEGINNING_S
    while True:
        response = await peer.call(request)
        if error_of(response) not in BEGINNING or loop.time() >= until:
            return response
        await asyncio.sleep(PAUSE_S)


def consumer_member(member: ConsumerMember) -> GroupMember:
    """A member as ConsumerGroupDescribe shows it."""
    topic_partitions = [
        TopicPartition(topic.topic_name, n) for topic in member.assignment.topic_partitions for n in topic.partitions
    ]
    return GroupMember(
        member.member_id, member.instance_id, member.client_id, host(member.client_host), sorted(topic_partitions)
    )


def classic_member(member: ClassicMember, readable: bool) -> GroupMember:
    """A member as DescribeGroups shows it; assignments of other protocols (Connect) are not decoded."""
    topic_partitions = []
    if readable:
        assigned = read_assignment(bytes(member.member_assignment)).assigned_partitions
        topic_partitions = [TopicPartition(topic.topic, n) for topic in assigned for n in topic.partitions]
    return GroupMember(
        member.member_id, member.group_instance_id, member.client_id, host(member.client_host), sorted(topic_partitions)
    )


def host(text: str) -> str:
    """An address without the slash that Java puts before it."""
    return text.removeprefix("/")
