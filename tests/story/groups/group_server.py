"""The coordinator of a shard behind its real handlers: requests and responses are messages, in bytes of their version.

A simulated client sends a request with `send` and receives the response later, or none if it is dropped.
"""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kafkalite._speedups.codec import decode, encode
from kafkalite.callbacks import Completion
from kafkalite.coordinators.group.regex_resolver import matches
from kafkalite.model import ZERO_UUID
from kafkalite.protocol.extensions.create_group import CreateGroupRequest
from kafkalite.protocol.extensions.heartbeat_plus import HeartbeatPlusRequest
from kafkalite.protocol.extensions.register_consumer import RegisterConsumerRequest
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
)
from kafkalite.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.protocol.messages.join_group import JoinGroupRequest
from kafkalite.protocol.messages.leave_group import LeaveGroupRequest
from kafkalite.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.protocol.messages.sync_group import SyncGroupRequest
from kafkalite.protocol.schema import Request, Response
from kafkalite.server.handlers import (
    consumer_group_heartbeat,
    create_group,
    heartbeat,
    heartbeat_plus,
    join_group,
    leave_group,
    register_consumer,
    sync_group,
)
from kafkalite.server.handlers.describe_groups import describe_group
from kafkalite.state.effects import Token
from kafkalite.state.groups.machine import GroupMachine
from tests.kit.consumer_groups import FakeTopics
from tests.story.groups.simulated_shard import Shard

Receive = Callable[[Response], object]

HANDLERS: dict[type[Request], Callable[[Any, Any], Any]] = {
    JoinGroupRequest: join_group.join_group,
    SyncGroupRequest: sync_group.sync_group,
    HeartbeatRequest: heartbeat.heartbeat,
    LeaveGroupRequest: leave_group.leave_group,
    ConsumerGroupHeartbeatRequest: consumer_group_heartbeat.consumer_group_heartbeat,
    RegisterConsumerRequest: register_consumer.register_consumer,
    HeartbeatPlusRequest: heartbeat_plus.heartbeat_plus,
    CreateGroupRequest: create_group.create_group,
}
ANSWERED_HERE: tuple[type[Request], ...] = (
    *(ApiVersionsRequest, DescribeGroupsRequest, ListGroupsRequest, ConsumerGroupDescribeRequest, MetadataRequest),
)


class GroupServer:
    """The coordinator.

    Arguments:
        shard: the machine.
        topics: that exist.
        dice: random numbers of the broker.
        protocols: `group.coordinator.rebalance.protocols`.

    Attributes:
        versions: newest served version by request.
        received: class name and version of each request.
        unavailable: error code of every request for a group, 0 = none.
        order: number of the last response of the machine.
    """

    def __init__(
        self,
        shard: Shard[GroupMachine],
        topics: FakeTopics,
        dice: random.Random,
        protocols: tuple[str, ...] = ("classic", "consumer"),
    ) -> None:
        self.shard, self.topics, self.dice = shard, topics, dice
        self.versions = {each: each.versions[1] for each in (*HANDLERS, *ANSWERED_HERE)}
        self.received: list[tuple[str, int]] = []
        self.unavailable = 0
        self.order = -1
        self._waiting: dict[Token, Completion[Any]] = {}
        self.context = SimpleNamespace(
            random=SimpleNamespace(uuid=lambda: dice.randbytes(16)),
            config=SimpleNamespace(
                kafkalite_client_timeout_max_ms=10**9, group_coordinator_rebalance_protocols=protocols
            ),
            groups=SimpleNamespace(submit=self._submit),
            replicas=SimpleNamespace(partition=lambda *of, **by: SimpleNamespace(log_start_offset=0)),
            broker_id=1,
            peers=None,
            nodes=lambda connection: [SimpleNamespace(broker_id=1, host="h", port=1)],
        )

    def send(self, request: Request, receive: Receive, client_id: str = "c") -> None:
        """Serve a request; `receive` is called once, now or later, unless the broker restarts before."""
        version = self.versions[type(request)]
        self.received.append((type(request).__name__, version))
        arrived = decode(type(request), version, bytes(encode(request, version)))
        call = _Call(self, version, client_id, receive)
        if type(request) in HANDLERS:
            response = HANDLERS[type(request)](call, arrived)
            if response is not None:
                call.answer(response)
        else:
            call.answer(self._answer(arrived, version))

    def deliver(self) -> None:
        """Deliver the responses of commands that have ended."""
        for token in [token for token in self._waiting if token in self.shard.answers]:
            self.order = self.shard.order[token]
            self._waiting.pop(token).answer(self.shard.answers[token])

    def restart(self) -> None:
        """Restart the broker: requests that wait are lost."""
        self.shard.restart()
        self._waiting.clear()

    def resolve_patterns(self) -> None:
        """Resolve the patterns of groups, as the runtime does."""
        questions, self.shard.questions = self.shard.questions, []
        for question in questions:
            found = matches(question.patterns, list(self.topics.topics))
            self.shard.do(self.shard.machine.patterns_resolved(question.group, found, self.shard.now))

    def _submit(self, group: str, command: Callable[..., Any], completion: Completion[Any]) -> None:
        if self.unavailable:
            completion.fail(self.unavailable)
            return
        token = self.shard.ask(command)
        self._waiting[token] = completion
        self.deliver()

    def _answer(self, request: Any, version: int) -> Response:
        match request:
            case ApiVersionsRequest():
                served = [
                    ApiVersionsResponse.ApiVersion(api_key=each.api_key, min_version=0, max_version=newest)
                    for each, newest in self.versions.items()
                ]
                return ApiVersionsResponse(api_keys=served)
            case DescribeGroupsRequest():
                return DescribeGroupsResponse(
                    groups=[describe_group(version, name, self.shard.machine) for name in request.groups]
                )
            case ListGroupsRequest():
                names = [
                    name
                    for name in self.shard.machine.registry.names()
                    if (group_type := self.shard.machine.registry.type_of(name)) is not None
                    and group_type.name in request.types_filter
                ]
                listed = [
                    ListGroupsResponse.ListedGroup(group_id=name, protocol_type="", group_state="") for name in names
                ]
                return ListGroupsResponse(groups=listed)
            case MetadataRequest():
                return self.metadata(request)
        raise NotImplementedError(type(request).__name__)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """The topics that exist, of those that a request names."""
        wanted = request.topics
        existing = self.topics.topics.values()
        if wanted is not None:
            ids, names = {each.topic_id for each in wanted} - {ZERO_UUID}, {each.name for each in wanted}
            existing = [each for each in existing if each.topic_id in ids or each.name in names]  # type: ignore[assignment]
        topics = [
            MetadataResponse.MetadataResponseTopic(
                name=each.name, topic_id=each.topic_id, partitions=[_partition(at) for at in range(each.partitions)]
            )
            for each in existing
        ]
        return MetadataResponse(brokers=[], topics=topics)


def _partition(index: int) -> MetadataResponse.MetadataResponseTopic.MetadataResponsePartition:
    return MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
        partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1]
    )


class _Call:
    """What the handlers use of a call."""

    def __init__(self, server: GroupServer, version: int, client_id: str, receive: Receive) -> None:
        self.context, self.version, self.client_id = server.context, version, client_id
        self.client_host = "/127.0.0.1"
        self.connection = None
        self.own_node = SimpleNamespace(broker_id=1, host="h", port=1)
        self._receive = receive

    def completion(self, respond: Callable[[Any], Any], refuse: Callable[[int], Any]) -> Completion[Any]:
        return Completion(lambda result: self.answer(respond(result)), lambda error: self.answer(refuse(error)))

    def refuse_of_client(self, *, of_brokers: bool) -> bool:
        return False

    def answer(self, response: Any) -> None:
        if response is not None:
            self._receive(decode(type(response), self.version, bytes(encode(response, self.version))))
