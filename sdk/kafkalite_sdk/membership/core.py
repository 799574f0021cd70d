"""The base of the three group protocols: open requests, the assignment and its changes, the coordinator, errors.

Pure: no I/O, no clock; randomness is a parameter. Invariants:
1. A response is applied once, and only while its call is open: after `abandon_calls` late responses are ignored.
2. There is one `change` at a time, and the assignment changes only by `change_done`: until then the member owns the
   revoked partitions and reports them.
3. Partitions are lost (`lose_all`) as soon as a pending change is done; the member does not join before.
"""

from collections.abc import Callable
from typing import TypeVar

from kafkalite.backoff import Backoff
from kafkalite.errors import BrokerResponseError, KafkaError, KafkaErrorCode, RetriableError, error_for, with_right
from kafkalite.protocol.schema import Request, Response
from kafkalite_sdk.client.cluster_view import ClusterView
from kafkalite_sdk.membership.retries import RandomNumbers, Retries
from kafkalite_sdk.membership.settings import (
    NO_PARTITIONS,
    AssignmentChange,
    GroupCall,
    MemberIdentity,
    MembershipSettings,
    Partitions,
)
from kafkalite_sdk.membership.subscription import NO_SUBSCRIPTION, Subscription
from kafkalite_sdk.membership.topics import GroupTopics

COORDINATOR_MOVED = (KafkaErrorCode.NOT_COORDINATOR, KafkaErrorCode.COORDINATOR_NOT_AVAILABLE)

Then = Callable[[float], None]
R = TypeVar("R", bound=Response)


class MemberCore:
    """The state that does not depend on the protocol.

    Arguments:
        settings: of the member.
        random: for member ids and jitter.
        view: the metadata of the client.

    Attributes:
        subscription: what the member reads; `wanted_topics` has the topics, None = its pattern is not resolved yet.
        assignment: the partitions that the member owns.
        change: the change that the consumer carries out, None = none.
        identity: the member for commits; None = commits must fail, because the member has lost its partitions.
        needs_coordinator: the consumer must find the coordinator (again).
        error: fatal; the member has ended.
        left: the member has left the group, or is not in one.
        last_heartbeat: when a heartbeat succeeded last, None = never.
        reports_rebalances: a classic rebalance is a change also for a member without partitions.
    """

    def __init__(self, settings: MembershipSettings, random: RandomNumbers, view: ClusterView) -> None:
        self.settings = settings
        self.random = random
        self.topics = GroupTopics(view)
        self.subscription: Subscription = NO_SUBSCRIPTION
        self.wanted_topics: frozenset[str] | None = frozenset()
        self.assignment: Partitions = NO_PARTITIONS
        self.change: AssignmentChange | None = None
        self.identity: MemberIdentity | None = None
        self.needs_coordinator = False
        self.error: KafkaError | None = None
        self.left = True
        self.last_heartbeat: float | None = None
        self.reports_rebalances = False
        self.outgoing: list[GroupCall] = []
        self._open: set[GroupCall] = set()
        self._after_change: Then | None = None
        self._after_loss: Then | None = None

    # requests

    def send(
        self,
        request: Request,
        answered: Callable[[R, float], None],
        failed: Callable[[KafkaError, float], None],
        *,
        channel: str = "group",
        to_coordinator: bool = True,
        timeout_s: float | None = None,
    ) -> GroupCall:
        """Queue a request.

        Arguments:
            request: the request.
            answered, failed: receive its response or error, and the time.
            channel: of the connection, "group" or "join".
            to_coordinator: else any broker receives it.
            timeout_s: None = the usual one.
        """

        def on_answer(response: Response, now: float) -> None:
            answered(response, now)  # type: ignore[arg-type]  # the response of this request

        seconds = self.settings.request_timeout_s if timeout_s is None else timeout_s
        call = GroupCall(request, to_coordinator, channel, seconds, on_answer, failed)
        self._open.add(call)
        self.outgoing.append(call)
        return call

    def close_call(self, call: GroupCall) -> bool:
        """End a call; False = it was abandoned, and its result is ignored."""
        if call not in self._open:
            return False
        self._open.discard(call)
        return True

    def abandon_calls(self) -> None:
        """Ignore the results of all open calls."""
        self._open.clear()
        self.outgoing.clear()

    def retries(self) -> Retries:
        """The retries of a request, with the backoff of the settings."""
        return Retries(Backoff(self.settings.retry_backoff_s, self.settings.retry_backoff_max_s, self.random.random))

    def coordinator_lost(self) -> None:
        """The coordinator must be found again before the next request to it."""
        self.needs_coordinator = True

    # the assignment

    def begin_change(self, change: AssignmentChange, then: Then, now: float) -> None:
        """Have the consumer carry out a change; `then` is called when it is done, at once if it is empty."""
        if not change:
            then(now)
            return
        assert self.change is None
        self.change, self._after_change = change, then

    def lose_all(self, now: float, then: Then) -> None:
        """Give up all partitions as lost, then call `then`. A pending change is carried out before."""
        self.identity = None
        if self.change is not None:
            self._after_loss = then
            return
        self.begin_change(AssignmentChange(lost=self.assignment), then, now)

    def change_done(self, now: float) -> None:
        """The consumer has carried out `change`."""
        change, then = self.change, self._after_change
        if change is None or then is None:
            raise RuntimeError("there is no change; call change_done once for each change")
        self.change = self._after_change = None
        self.assignment = (self.assignment - change.lost - change.revoked) | change.assigned
        if self._after_loss is not None:
            then, self._after_loss = self._after_loss, None
            self.begin_change(AssignmentChange(lost=self.assignment), then, now)
            return
        then(now)

    # errors

    def fail(self, error: KafkaError, now: float) -> None:
        """End the member with an error; its partitions are lost."""
        if self.error is None:
            self.error = error
        self.abandon_calls()
        self.left = True
        self.lose_all(now, lambda now: None)

    def fail_with(self, code: int, now: float, reason: str | None = None) -> None:
        """End the member with the error of a response."""
        group = self.settings.group_id
        self.fail(error_for(code, reason and self.with_rights(code, f"group {group}: {reason}")), now)

    def with_rights(self, code: int, text: str) -> str:
        """Return the text of an error; that of a missing right names the command for the group and its topics.

        A member needs Read on both: after the group, the topics would be denied. A right on topics that is missing
        names them alone; those of a pattern are unknown.
        """
        subscribed = self.subscription.topics | {each.topic for each in self.subscription.claims}
        if code == KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED:
            name, *more = sorted(subscribed) or [""]
            return with_right(code, text, "read", name, more) if name else text
        return with_right(code, text, "read", self.settings.group_id, subscribed)


def is_retriable(error: KafkaError) -> bool:
    """Whether a request that has failed without a response is sent again."""
    return isinstance(error, RetriableError) and not isinstance(error, BrokerResponseError)
