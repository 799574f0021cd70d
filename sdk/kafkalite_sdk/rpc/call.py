"""A request with its address, and its end.

Pure.
"""

from dataclasses import dataclass
from typing import Any

from kafkalite.errors import KafkaError
from kafkalite.protocol.schema import Request
from kafkalite_sdk.client.routes import ROUTES, Route


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A request and the broker that it is sent to: `broker`, the coordinator of `group` or of `transactional_id`.

    Without an address a request that any broker or the controller serves is sent to one of them.

    Attributes:
        request: any message of `kafkalite.protocol.messages` or `kafkalite.protocol.extensions`.
        broker: id.
        group: the request is sent to the coordinator of this group.
        transactional_id: the request is sent to the coordinator of this transactional id.
        version_max: the highest version to use; None = the highest that both sides know.

    Raises:
        ValueError: it has several addresses, or none and needs one.
    """

    request: Request
    broker: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    version_max: int | None = None

    def __post_init__(self) -> None:
        name = type(self.request).__name__
        addresses = [each for each in (self.broker, self.group, self.transactional_id) if each is not None]
        if len(addresses) > 1:
            raise ValueError(f"{name}: pass one of broker, group and transactional_id")
        if not addresses and self.route not in (Route.ANY, Route.CONTROLLER):
            raise ValueError(f"{name} is served by {self.route.value}: pass broker, group or transactional_id")

    @property
    def route(self) -> Route:
        """The broker that serves the request."""
        row = ROUTES.get(self.request.api_key)
        return Route.BROKER if row is None else row.route


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """The end of a call: a response or an error.

    Attributes:
        call: that `poll` has received.
        response: of the broker, None with an error. Its error codes are those of the broker.
        error: why there is no response: KafkaConnectionError, KafkaTimeoutError, UnsupportedVersionError, EncodeError,
            DecodeError, or the error of the coordinator lookup.
    """

    call: Call
    response: Any = None
    error: KafkaError | None = None

    def result(self) -> Any:
        """Return the response. Raises the error."""
        if self.error is not None:
            raise self.error
        return self.response
