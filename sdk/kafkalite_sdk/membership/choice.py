"""Chooses the group protocol: that of the members of the group, else the newest that the broker supports.

Pure. The coordinator is asked for its API versions and for the group, at once. KIP-848 needs ConsumerGroupHeartbeat v1;
v0, which Apache Kafka 3.9 serves, counts only if the group has members of that protocol.
"""

from collections.abc import Callable
from math import inf
from typing import NamedTuple, TypeVar

from kafkalite._version import VERSION
from kafkalite.errors import KafkaError, KafkaErrorCode, UnsupportedVersionError, is_known
from kafkalite.protocol.extensions.register_consumer import RegisterConsumerRequest
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kafkalite.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkalite.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkalite.protocol.schema import Request, Response
from kafkalite_sdk.membership.core import COORDINATOR_MOVED, MemberCore, is_retriable
from kafkalite_sdk.membership.settings import CLASSIC, CONSUMER, REGISTERED

Code = KafkaErrorCode
Versions = dict[int, int]
"""The newest served version by API key."""

R = TypeVar("R", bound=Response)

CONSUMER_VERSION_MIN = 1
TYPES_FILTER_VERSION = 5
SOFTWARE = "kafkalite"


class Choice(NamedTuple):
    """The result: the protocol, and whether members of the group use it."""

    protocol: str
    by_members: bool


class ProtocolChoice:
    """Determines the protocol of a group.

    Arguments:
        core: of the member.
        chosen: receives the result.
        without_consumer: the broker has rejected KIP-848 before.
    """

    def __init__(self, core: MemberCore, chosen: Callable[[Choice, float], None], *, without_consumer: bool) -> None:
        self._core = core
        self._chosen = chosen
        self._without_consumer = without_consumer
        self._retries = core.retries()
        self._versions: Versions | None = None
        self._classic_members: bool | None = None
        self._open = 0

    def step(self, now: float) -> None:
        """Ask the coordinator, unless that is in progress."""
        if self._open or now < self._retries.at:
            return
        self._versions = self._classic_members = None
        self._ask(
            ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version=VERSION), self._received_versions
        )
        self._ask(DescribeGroupsRequest(groups=[self._core.settings.group_id]), self._received_group)

    def wake_at(self) -> float:
        """When `step` asks again after a failure; inf = responses are expected."""
        return inf if self._open else self._retries.at

    def _ask(self, request: Request, received: Callable[[R, float], None]) -> None:
        def answered(response: R, now: float) -> None:
            self._open -= 1
            received(response, now)

        self._open += 1
        self._core.send(request, answered, self._failed)

    def _failed(self, error: KafkaError, now: float) -> None:
        self._open -= 1
        if isinstance(error, UnsupportedVersionError):
            self._choose(CLASSIC, False, now)  # a request of step 2: no members of that type
        elif is_retriable(error):
            self._retry(now)
            self._core.coordinator_lost()
        else:
            self._core.fail(error, now)

    def _retry(self, now: float) -> None:
        self._core.abandon_calls()
        self._open = 0
        self._retries.failed(now)

    # step 1: versions and classic members

    def _received_versions(self, response: ApiVersionsResponse, now: float) -> None:
        self._versions = {each.api_key: each.max_version for each in response.api_keys}
        self._decide(now)

    def _received_group(self, response: DescribeGroupsResponse, now: float) -> None:
        (group,) = response.groups
        if group.error_code in (Code.NONE, Code.GROUP_ID_NOT_FOUND):
            self._classic_members = bool(group.members)
            self._decide(now)
        elif self._is_retried(group.error_code, now):
            return
        else:
            self._core.fail_with(group.error_code, now, group.error_message)

    def _is_retried(self, code: int, now: float) -> bool:
        if not is_known(code) or not Code(code).retriable:
            return False
        self._retry(now)
        if code in COORDINATOR_MOVED:
            self._core.coordinator_lost()
        return True

    def _decide(self, now: float) -> None:
        if self._versions is None or self._classic_members is None:
            return
        self._retries.succeeded()
        consumer = -1 if self._without_consumer else self._newest(ConsumerGroupHeartbeatRequest)
        if self._classic_members:
            if self._newest(RegisterConsumerRequest) >= 0 and self._newest(ListGroupsRequest) >= TYPES_FILTER_VERSION:
                self._ask(ListGroupsRequest(types_filter=[REGISTERED]), self._received_registered)
            else:
                self._choose(CLASSIC, True, now)
        elif consumer >= CONSUMER_VERSION_MIN:
            self._choose(CONSUMER, False, now)
        elif consumer >= 0 and self._newest(ConsumerGroupDescribeRequest) >= 0:
            self._ask(ConsumerGroupDescribeRequest(group_ids=[self._core.settings.group_id]), self._received_members)
        else:
            self._choose(CLASSIC, False, now)

    def _newest(self, request: type[Request]) -> int:
        return (self._versions or {}).get(request.api_key, -1)

    # step 2: members of other types

    def _received_registered(self, response: ListGroupsResponse, now: float) -> None:
        if response.error_code and self._is_retried(response.error_code, now):
            return
        names = {group.group_id for group in response.groups}
        self._choose(REGISTERED if self._core.settings.group_id in names else CLASSIC, True, now)

    def _received_members(self, response: ConsumerGroupDescribeResponse, now: float) -> None:
        (group,) = response.groups
        if self._is_retried(group.error_code, now):
            return
        live = not group.error_code and bool(group.members)
        self._choose(CONSUMER if live else CLASSIC, live, now)

    def _choose(self, protocol: str, by_members: bool, now: float) -> None:
        self._chosen(Choice(protocol, by_members), now)
