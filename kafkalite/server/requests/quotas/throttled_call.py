"""Calls of clients with quotas: they charge their requests, and throttle the clients (KIP-219)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kafkalite._speedups.codec import RequestHeader
from kafkalite._speedups.net.framing import Reply
from kafkalite.cluster.changes import Refusal
from kafkalite.errors import KafkaErrorCode
from kafkalite.server.requests.authorization.authorized_call import AuthorizedCall, authorize
from kafkalite.server.requests.call import Call, Context
from kafkalite.server.requests.quotas.broker_quotas import BrokerQuotas
from kafkalite.server.requests.quotas.charge import FETCH_KEY, Charge
from kafkalite.slicing import Steps

Arguments = ParamSpec("Arguments")
Item = TypeVar("Item")
SIZE_BYTES = 4

if TYPE_CHECKING:
    Base = Call[Any]
else:
    Base = object
EXCEEDED = Refusal(KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


class Throttling(Base):
    """Charges a request when it is answered, and its time whenever it is continued."""

    __slots__ = ()
    charge: Charge

    def answer(self, response: Any) -> None:
        """Send the response with its throttle time; then nothing is received from the client for that time."""
        charge, connection = self.charge, self.reply.connection
        throttle_ms = 0 if self.reply.done else charge.charge_request()
        reported = throttle_ms > 0 and hasattr(response, "throttle_time_ms")
        if reported:
            response.throttle_time_ms = throttle_ms
        before = connection.unsent
        try:
            super().answer(response)
        finally:
            if reported:
                response.throttle_time_ms = 0  # it may be a part of a cache
        if self.header.api_key == FETCH_KEY and connection.unsent > before:
            charge.charge_fetched(connection.unsent - before - SIZE_BYTES)
        charge.mute(throttle_ms)

    def answer_packed(self, encode: Callable[[int], bytes]) -> None:
        """Send a response that is encoded with its throttle time."""
        throttle_ms = 0 if self.reply.done else self.charge.charge_request()
        self.reply.send(encode(throttle_ms))
        self.charge.mute(throttle_ms)

    def no_response(self) -> None:
        """End a request without a response; only its bytes throttle the client."""
        throttle_ms = 0 if self.reply.done else self.charge.charge_request(with_time=False)
        super().no_response()
        self.charge.mute(throttle_ms)

    def guard(self, callback: Callable[Arguments, object]) -> Callable[Arguments, None]:
        """As `Call.guard`; the time of the callback is charged."""
        guarded = super().guard(callback)

        def charged(*args: Arguments.args, **named: Arguments.kwargs) -> None:
            self.charge.resume()
            guarded(*args, **named)
            self.charge.pause()

        return charged

    def charge_steps(self, steps: Steps) -> Steps:
        """Charge the time of each step of a generator."""
        charge = self.charge
        try:
            while True:
                charge.resume()
                try:
                    next(steps)
                finally:
                    charge.pause()
                yield
        except StopIteration as end:
            return end.value
        finally:
            steps.close()

    def admit_mutations(
        self, asked: list[Item], count: Callable[[Item], int], strict_since: int | None
    ) -> tuple[list[Item], list[tuple[Item, Refusal]]]:
        """As `Call.admit_mutations`."""
        admitted: list[Item] = []
        refused: list[tuple[Item, Refusal]] = []
        strict = strict_since is not None and self.version >= strict_since
        for item in asked:
            partitions = count(item)
            if not partitions or self.charge.admits_mutations(partitions, strict=strict):
                admitted.append(item)
            else:
                refused.append((item, EXCEEDED))
        return admitted, refused


class ThrottledCall(Throttling, Call[Context]):
    """A call of a broker with quotas and without an authorizer. `throttled_call` makes it."""

    __slots__ = ("charge",)


class ThrottledAuthorizedCall(Throttling, AuthorizedCall[Context]):
    """A call of a broker with quotas and an authorizer. `throttled_call` makes it."""

    __slots__ = ("charge",)


def throttled_call(
    quotas: BrokerQuotas, context: Any, reply: Reply, response_type: type[Any], version: int, header: RequestHeader
) -> Call[Any]:
    """Return the call of a request.

    Arguments:
        quotas: of the broker.
        context, reply, response_type, version, header: as for `Call`.
    """
    call: ThrottledCall[Any] | ThrottledAuthorizedCall[Any]
    if context.authorizer is None:
        call = ThrottledCall(context, reply, response_type, version, header)
    else:
        call = ThrottledAuthorizedCall(context, reply, response_type, version, header)
        authorize(call)
    call.charge = Charge(quotas, reply, header.client_id or "")
    return call
