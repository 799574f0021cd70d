"""Groups of all types: list, describe, create, delete, remove members."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from kafkalite.errors import DecodeError, KafkaError, KafkaErrorCode, error_for
from kafkalite.model import TopicPartition
from kafkalite.protocol.extensions.create_group import CreateGroupRequest, CreateGroupResponse
from kafkalite.protocol.extensions.register_consumer import RegisterConsumerRequest
from kafkalite.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kafkalite.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkalite.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kafkalite.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkalite.protocol.stored.consumer_protocol import read_assignment
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.group_types import (
    CLASSIC,
    CONSUMER,
    DEAD,
    REGISTERED,
    GroupDescription,
    GroupLag,
    GroupListing,
    GroupMember,
    RemovedMember,
)
from kafkalite_sdk.admin.operation import Operation, check_result, is_address, operations_of, require
from kafkalite_sdk.admin.outcomes import Outcomes

NOT_FOUND = KafkaErrorCode.GROUP_ID_NOT_FOUND
SESSION_TIMEOUT_MS = 45_000
REASON = "removed by an administrator"
ConsumerGroup = ConsumerGroupDescribeResponse.DescribedGroup
ClassicGroup = DescribeGroupsResponse.DescribedGroup


class Groups:
    """The groups of a cluster.

    Every method takes `timeout`, a deadline in seconds; None = `default_api_timeout_ms`.

    Arguments:
        driver: sends the requests.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def list(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout: float | None = None
    ) -> tuple[GroupListing, ...]:
        """List the groups of all brokers, sorted by name.

        Arguments:
            states: only groups in these states; none = all.
            types: only groups of these types; none = all.

        Raises:
            KafkaError: a broker does not answer: its groups would be missing.
        """
        found = (await self.list_by_broker(states=states, types=types, timeout=timeout)).check()
        return tuple(sorted(each for groups in found.values() for each in groups))

    async def list_by_broker(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout: float | None = None
    ) -> Outcomes[int, tuple[GroupListing, ...]]:
        """List the groups that each broker coordinates, or why it does not answer.

        Arguments:
            states: only groups in these states; none = all.
            types: only groups of these types; none = all.
        """
        left_s = self._driver.countdown(timeout)
        return await self._listed(await self._driver.brokers(left_s()), states, types, left_s())

    async def _listed(
        self, brokers: Collection[int], states: Iterable[str], types: Iterable[str], timeout: float | None
    ) -> Outcomes[int, tuple[GroupListing, ...]]:
        request = ListGroupsRequest(states_filter=[*states], types_filter=[*types])
        operation: Operation[int, tuple[GroupListing, ...]] = Operation(
            ListGroupsRequest, lambda _: request, _listings, is_address, single=True
        )
        return await self._driver.run(operation, brokers, timeout)

    async def describe(
        self, *groups: str, authorized_operations: bool = False, timeout: float | None = None
    ) -> Outcomes[str, GroupDescription]:
        """Describe groups of any type with their members. A group that does not exist fails with GroupIdNotFoundError.

        Arguments:
            groups: their ids.
            authorized_operations: the operations are included that this client may use.
        """
        consumer: Operation[str, GroupDescription] = Operation(
            ConsumerGroupDescribeRequest,
            lambda names: ConsumerGroupDescribeRequest(
                group_ids=names, include_authorized_operations=authorized_operations
            ),
            self._consumer_groups,
            is_address,
        )
        classic: Operation[str, GroupDescription] = Operation(
            DescribeGroupsRequest,
            lambda names: DescribeGroupsRequest(groups=names, include_authorized_operations=authorized_operations),
            self._classic_groups,
            is_address,
        )
        left_s = self._driver.countdown(timeout)
        found = await self._driver.run(consumer, dict.fromkeys(groups), left_s())
        other = [name for name, each in found.ended.items() if isinstance(each, KafkaError) and _other_type(each)]
        if not other:
            return found
        replaced = await self._driver.run(classic, other, left_s())
        found.ignore_errors()
        replaced.ignore_errors()  # those of the outcomes below count
        return Outcomes(await self._with_registered({**found.ended, **replaced.ended}, left_s()))

    async def _with_registered(
        self, ended: dict[str, GroupDescription | KafkaError], timeout: float | None
    ) -> dict[str, GroupDescription | KafkaError]:
        """Find out which classic groups are registered ones: DescribeGroups does not report the type."""
        nodes = {each.coordinator for each in ended.values() if not isinstance(each, KafkaError)}
        served = [node for node in nodes if self._driver.serves(node, RegisterConsumerRequest)]
        if not served:
            return ended
        listed = (await self._listed(served, (), (REGISTERED,), timeout)).check()
        names = {each.group for groups in listed.values() for each in groups}
        return {name: _as_registered(each, name in names) for name, each in ended.items()}

    def _consumer_groups(
        self, response: ConsumerGroupDescribeResponse, _: object
    ) -> Iterator[tuple[str, GroupDescription | KafkaError]]:
        for each in response.groups:
            group = _consumer_group(each, self._driver.coordinator(each.group_id))
            yield each.group_id, check_result(each.error_code, each.error_message, group)

    def _classic_groups(
        self, response: DescribeGroupsResponse, _: object
    ) -> Iterator[tuple[str, GroupDescription | KafkaError]]:
        for each in response.groups:
            code = each.error_code or (NOT_FOUND if each.group_state == DEAD else 0)
            if code:
                yield each.group_id, error_for(code, each.error_message)
            else:
                yield each.group_id, _classic_group(each, self._driver.coordinator(each.group_id))

    async def lag(
        self, *groups: str, ages: bool = False, transactions: bool = False, timeout: float | None = None
    ) -> Outcomes[str, GroupLag]:
        """Describe groups with their committed offsets and their lag.

        Arguments:
            groups: their ids.
            ages: the age of the first record that is not committed is included, which fetches it.
            transactions: last stable offsets and the offsets of open transactions are included: two requests more.
        """
        from kafkalite_sdk.admin.lag import Lag  # decodes records, which other calls do not need

        computed = Lag(self._driver, self.describe)
        return await computed.of_groups(groups, ages=ages, transactions=transactions, timeout=timeout)

    async def create(
        self,
        group: str,
        *,
        topics: Collection[str] | None = None,
        pattern: str | None = None,
        assignor: str = "range",
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        ephemeral: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Create a registered group, an extension of kafkalite. Returns the broker id of its coordinator.

        Arguments:
            group: its id.
            topics: the topics that it reads; or
            pattern: a regular expression (RE2) of topic names.
            assignor: "range", "roundrobin", "sticky" or "uniform".
            session_timeout_ms: a member without heartbeats is removed after this time, in ms.
            ephemeral: the group is deleted when its last member leaves.
            timeout: of the request in seconds; None = that of the client.

        Raises:
            KafkaError: it cannot be created; UnsupportedVersionError from Apache Kafka.
        """
        if (topics is None) == (pattern is None):
            raise ValueError("a group reads topics or a pattern: pass topics or pattern, not both")
        request = CreateGroupRequest(
            group_id=group,
            session_timeout_ms=session_timeout_ms,
            topics=None if topics is None else [*topics],
            topic_pattern=pattern,
            assignor=assignor,
            ephemeral=ephemeral,
        )
        operation: Operation[str, int] = Operation(CreateGroupRequest, lambda _: request, _created)
        return (await self._driver.run(operation, [group], timeout))[group]

    async def delete(self, *groups: str, timeout: float | None = None) -> Outcomes[str, None]:
        """Delete groups without members, and their committed offsets.

        Arguments:
            groups: their ids.
        """
        operation: Operation[str, None] = Operation(
            DeleteGroupsRequest, lambda names: DeleteGroupsRequest(groups_names=names), _deleted, is_address
        )
        return await self._driver.run(operation, dict.fromkeys(groups), timeout)

    async def remove_members(
        self,
        group: str,
        members: Collection[RemovedMember] | None = None,
        *,
        reason: str = REASON,
        timeout: float | None = None,
    ) -> Outcomes[RemovedMember, None]:
        """Remove members from a classic group; their clients join again unless they have ended.

        Arguments:
            group: its id.
            members: member ids, or instance ids of static members; None = all members.
            reason: for the log of the broker.

        Raises:
            KafkaError: the members are unknown, as the group cannot be described.
        """
        left_s = self._driver.countdown(timeout)
        if members is None:
            described = (await self.describe(group, timeout=left_s()))[group]
            members = [
                RemovedMember(instance_id=each.instance_id) if each.instance_id else RemovedMember(each.member_id)
                for each in described.members
            ]
        operation: Operation[RemovedMember, None] = Operation(
            LeaveGroupRequest, lambda keys: _leaving(group, keys, reason), _left, lambda _: group
        )
        return await self._driver.run(operation, members, left_s())


def _other_type(error: KafkaError) -> bool:
    """Return whether DescribeGroups may know the group: it is of another type, or the broker has no consumer groups."""
    return error.code in (NOT_FOUND, KafkaErrorCode.UNSUPPORTED_VERSION)


def _as_registered(each: GroupDescription | KafkaError, registered: bool) -> GroupDescription | KafkaError:
    if registered and isinstance(each, GroupDescription) and each.type == CLASSIC:
        return replace(each, type=REGISTERED)
    return each


def _listings(response: ListGroupsResponse, keys: list[int]) -> Iterator[tuple[int, tuple[GroupListing, ...]]]:
    require(response.error_code)
    groups = (
        GroupListing(each.group_id, each.group_type, each.group_state, each.protocol_type, keys[0])
        for each in response.groups
    )
    yield keys[0], tuple(groups)


def _consumer_group(group: ConsumerGroup, coordinator: int) -> GroupDescription:
    members = [
        GroupMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            _host(each.client_host),
            _partitions(each.assignment),
            _partitions(each.target_assignment),
            each.member_epoch,
            tuple(each.subscribed_topic_names),
            each.subscribed_topic_regex or None,
            each.rack_id,
        )
        for each in group.members
    ]
    return GroupDescription(
        group.group_id,
        CONSUMER,
        group.group_state,
        CONSUMER,
        group.assignor_name,
        coordinator,
        group.group_epoch,
        group.assignment_epoch,
        tuple(members),
        operations_of(group.authorized_operations),
    )


def _partitions(assignment: ConsumerGroup.Member.Assignment) -> tuple[TopicPartition, ...]:
    each = assignment.topic_partitions
    return tuple(sorted(TopicPartition(topic.topic_name, number) for topic in each for number in topic.partitions))


def _classic_group(group: ClassicGroup, coordinator: int) -> GroupDescription | KafkaError:
    """Convert a group; assignments of other protocol types, such as that of Connect, are not decoded. One that is
    malformed is an error of its group.
    """
    readable = group.protocol_type in ("", CONSUMER)
    try:
        owned = [_owned(bytes(each.member_assignment)) if readable else () for each in group.members]
    except DecodeError as error:
        return error
    members = [
        GroupMember(each.member_id, each.group_instance_id, each.client_id, _host(each.client_host), own, own)
        for each, own in zip(group.members, owned, strict=True)
    ]
    return GroupDescription(
        group.group_id,
        CLASSIC,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        coordinator,
        -1,
        -1,
        tuple(members),
        operations_of(group.authorized_operations),
    )


def _owned(assignment: bytes) -> tuple[TopicPartition, ...]:
    topics = read_assignment(assignment).assigned_partitions
    return tuple(sorted(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions))


def _host(text: str) -> str:
    """Return an address without the slash that Java puts before it."""
    return text.removeprefix("/")


def _created(response: CreateGroupResponse, keys: list[str]) -> Iterator[tuple[str, int | KafkaError]]:
    yield keys[0], check_result(response.error_code, None, response.controller_id)


def _deleted(response: DeleteGroupsResponse, _: object) -> Iterator[tuple[str, KafkaError | None]]:
    for each in response.results:
        yield each.group_id, check_result(each.error_code, None, None)


def _leaving(group: str, members: Iterable[RemovedMember], reason: str) -> LeaveGroupRequest:
    identity = LeaveGroupRequest.MemberIdentity
    leaving = [
        identity(member_id=each.member_id, group_instance_id=each.instance_id, reason=reason) for each in members
    ]
    return LeaveGroupRequest(group_id=group, members=leaving)


def _left(response: LeaveGroupResponse, keys: list[RemovedMember]) -> Iterator[tuple[RemovedMember, KafkaError | None]]:
    require(response.error_code)
    for key, each in zip(keys, response.members, strict=False):  # in the order of the request
        yield key, check_result(each.error_code, None, None)
