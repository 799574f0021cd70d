"""Delegation tokens: create, renew, expire, describe (KIP-48, KIP-373)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kafkalite.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kafkalite.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kafkalite.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafkalite.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import Operation, require

NO_PERIOD = -1


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token.

    Attributes:
        token_id: `sasl_username` of a client that authenticates with the token.
        owner: that such a client is, such as "User:alice".
        requester: has created the token; "" = the broker does not say.
        renewers: may renew and expire it, besides the owner.
        issued_ms, expiry_ms, max_ms: creation, present expiry and the end of the longest lifetime, in ms of the epoch.
        hmac: the secret of the token; in base64 it is `sasl_password`.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expiry_ms: int
    max_ms: int
    hmac: bytes = field(repr=False)


class Tokens:
    """The delegation tokens of a cluster. The connection must be authenticated, and not with a token.

    Every method takes `timeout`, a deadline in seconds; None = `default_api_timeout_ms`.

    Arguments:
        driver: sends the requests.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def create(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        lifetime_ms: int | None = None,
        timeout: float | None = None,
    ) -> DelegationToken:
        """Create a token.

        Arguments:
            owner: such as "User:alice", for which the right CreateTokens is needed; None = this client.
            renewers: users that may renew it, besides the owner.
            lifetime_ms: the longest lifetime; None = that of the broker.

        Raises:
            ValueError: a principal is no TYPE:NAME. KafkaError: it cannot be created.
        """
        owner_type, owner_name = (None, None) if owner is None else _principal(owner)
        who = tuple(renewers)
        request = CreateDelegationTokenRequest(
            owner_principal_type=owner_type,
            owner_principal_name=owner_name,
            renewers=[
                CreateDelegationTokenRequest.CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, name in map(_principal, who)
            ],
            max_lifetime_ms=NO_PERIOD if lifetime_ms is None else lifetime_ms,
        )
        operation: Operation[None, DelegationToken] = Operation(
            CreateDelegationTokenRequest, lambda _: request, lambda response, _: [(None, _created(response, who))]
        )
        return (await self._driver.run(operation, [None], timeout))[None]

    async def renew(self, hmac: bytes, *, period_ms: int | None = None, timeout: float | None = None) -> int:
        """Move the expiry of a token; returns it in ms of the epoch.

        Arguments:
            hmac: of the token.
            period_ms: from now on; None = that of the broker. The longest lifetime of the token is the limit.

        Raises:
            KafkaError: it cannot be renewed.
        """
        period = NO_PERIOD if period_ms is None else period_ms
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period)
        return await self._moved(RenewDelegationTokenRequest, request, timeout)

    async def expire(self, hmac: bytes, *, period_ms: int | None = None, timeout: float | None = None) -> int:
        """Set the expiry of a token, or remove it; returns it in ms of the epoch.

        Arguments:
            hmac: of the token.
            period_ms: from now on; None = the token is removed.

        Raises:
            KafkaError: it cannot be changed.
        """
        period = NO_PERIOD if period_ms is None else period_ms
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period)
        return await self._moved(ExpireDelegationTokenRequest, request, timeout)

    async def describe(self, *owners: str, timeout: float | None = None) -> tuple[DelegationToken, ...]:
        """Describe the tokens that this client may see, in the order of their creation.

        Arguments:
            owners: only tokens that these principals own or renew; none = all.

        Raises:
            ValueError: a principal is no TYPE:NAME. KafkaError: they cannot be described.
        """
        named = [
            DescribeDelegationTokenRequest.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in map(_principal, owners)
        ]
        request = DescribeDelegationTokenRequest(owners=named or None)
        operation: Operation[None, tuple[DelegationToken, ...]] = Operation(
            DescribeDelegationTokenRequest, lambda _: request, _described
        )
        return (await self._driver.run(operation, [None], timeout))[None]

    async def _moved(self, request_type: Any, request: Any, timeout: float | None) -> int:
        operation: Operation[None, int] = Operation(request_type, lambda _: request, _expiry)
        return (await self._driver.run(operation, [None], timeout))[None]


def _principal(text: str) -> tuple[str, str]:
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"the principal is {text!r}, expected TYPE:NAME, such as User:alice")
    return kind, name


def _created(response: CreateDelegationTokenResponse, renewers: tuple[str, ...]) -> DelegationToken:
    require(response.error_code)
    return DelegationToken(
        response.token_id,
        f"{response.principal_type}:{response.principal_name}",
        _requester(response),
        renewers,
        response.issue_timestamp_ms,
        response.expiry_timestamp_ms,
        response.max_timestamp_ms,
        bytes(response.hmac),
    )


def _requester(message: Any) -> str:
    name = message.token_requester_principal_name
    return f"{message.token_requester_principal_type}:{name}" if name else ""


def _expiry(response: Any, _: object) -> Iterator[tuple[None, int]]:
    require(response.error_code)
    yield None, response.expiry_timestamp_ms


def _described(
    response: DescribeDelegationTokenResponse, _: object
) -> Iterator[tuple[None, tuple[DelegationToken, ...]]]:
    require(response.error_code)
    found = (
        DelegationToken(
            each.token_id,
            f"{each.principal_type}:{each.principal_name}",
            _requester(each),
            tuple(f"{one.principal_type}:{one.principal_name}" for one in each.renewers),
            each.issue_timestamp,
            each.expiry_timestamp,
            each.max_timestamp,
            bytes(each.hmac),
        )
        for each in response.tokens
    )
    yield None, tuple(sorted(found, key=lambda token: (token.issued_ms, token.token_id)))
