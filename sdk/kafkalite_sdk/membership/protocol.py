"""The interface of a group protocol, which `Membership` drives: classic, consumer (KIP-848) or registered.

Pure. The driver calls `step` while the coordinator is known; a protocol queues its requests with `MemberCore.send`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from kafkalite.errors import KafkaError, KafkaErrorCode, is_known
from kafkalite.protocol.schema import Request, Response
from kafkalite_sdk.membership.core import COORDINATOR_MOVED, MemberCore, is_retriable

Code = KafkaErrorCode
Reconsider = Callable[[KafkaError, float], None]
"""Called with the error and the time if the group or the broker does not support this protocol."""

FATAL_IN_GROUP = {
    Code.GROUP_MAX_SIZE_REACHED: "it has as many members as the broker permits (group.max.size); stop another member",
    Code.GROUP_AUTHORIZATION_FAILED: "the client may not read it",
    Code.TOPIC_AUTHORIZATION_FAILED: "the client may not read all of its topics",
    Code.INVALID_SESSION_TIMEOUT: "session_timeout_ms is outside group.min.session.timeout.ms and "
    "group.max.session.timeout.ms of the broker",
    Code.FENCED_INSTANCE_ID: "another process uses the same group_instance_id; give each process its own",
    Code.UNRELEASED_INSTANCE_ID: "another member uses the same group_instance_id or claims the same partition",
    Code.UNSUPPORTED_ASSIGNOR: "the broker does not have this assignor; see group.consumer.assignors",
    Code.INVALID_REGULAR_EXPRESSION: "RE2 rejects the pattern of the subscription",
}


class GroupProtocol(ABC):
    """A member that uses one group protocol.

    Arguments:
        core: the state that all protocols share.
        reconsider: reports that the group or the broker speaks another protocol.

    Attributes:
        name: of the protocol.
        resolves_patterns: whether the client resolves patterns, not the broker.
        state: for people, such as "stable".
    """

    name: ClassVar[str]
    resolves_patterns = False

    def __init__(self, core: MemberCore, reconsider: Reconsider) -> None:
        self.core = core
        self.reconsider = reconsider
        self.retries = core.retries()
        self.state = "unjoined"

    @abstractmethod
    def step(self, now: float) -> None:
        """Queue the requests that are due."""

    @abstractmethod
    def wake_at(self) -> float:
        """When `step` has something to do without a response before; inf = never."""

    @abstractmethod
    def subscription_changed(self, now: float) -> None:
        """`core.subscription`, or the topics that its pattern matches, have changed."""

    @abstractmethod
    def metadata_changed(self, now: float) -> None:
        """Topics were created, deleted or have more partitions."""

    @abstractmethod
    def commit_failed(self, code: int, now: float) -> None:
        """A commit with the current identity has failed."""

    @abstractmethod
    def leave(self, done: Callable[[], None]) -> None:
        """Leave the group without releasing partitions, then call `done`."""

    def watched_topics(self) -> frozenset[str]:
        """Topics whose metadata the client must keep, beyond those that it reads."""
        return frozenset()

    def send_last(self, request: Request, end: Callable[[], None]) -> None:
        """Send the request that leaves the group; `end` is called with its response, and if it fails."""

        def ended(_: Response | KafkaError, now: float) -> None:
            end()

        self.core.send(request, ended, ended)

    # errors

    def lost_connection(self, error: KafkaError, now: float) -> bool:
        """Handle the failure of a request without a response: find the coordinator and try again.

        Returns: False if the error is fatal; the member has ended.
        """
        if not is_retriable(error):
            self.core.fail(error, now)
            return False
        self.retries.failed(now)
        self.core.coordinator_lost()
        return True

    def retry_later(self, code: int, now: float) -> bool:
        """Handle a retriable code: pause, and find the coordinator if it has moved. Returns: False for other codes."""
        if not is_known(code) or not Code(code).retriable:
            return False
        self.retries.failed(now)
        if code in COORDINATOR_MOVED:
            self.core.coordinator_lost()
        return True

    def fail_with(self, code: int, now: float, message: str | None = None) -> None:
        """End the member with an error code."""
        reason = FATAL_IN_GROUP.get(Code(code)) if is_known(code) else None
        self.core.fail_with(code, now, message or reason)
