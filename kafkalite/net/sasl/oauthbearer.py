"""OAUTHBEARER (RFC 7628, KIP-255, KIP-342): a bearer token that the client obtains for each authentication."""

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from kafkalite.errors import AuthenticationError
from kafkalite.net.sasl.scram_messages import sasl_name
from kafkalite.net.sasl.steps import Authenticated, ClientSteps, Job, ServerSteps, login_of
from kafkalite.net.sasl.tokens import OAuthToken, check_token

SEPARATOR = "\x01"
REASON_CHARACTERS_MAX = 500
BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/-]+=*)")
INVALID_TOKEN = b'{"status":"invalid_token"}'

TokenResult = str | tuple[str, float] | OAuthToken
GetToken = Callable[[], Awaitable[TokenResult]]
"""Returns a token: a text, a text with its expiry in milliseconds of the epoch, or an `OAuthToken`."""


class OAuthBearerClient:
    """OAUTHBEARER on the client.

    Arguments:
        get_token: called for each authentication, before the connection is opened.
        now: the time in seconds of the epoch.
    """

    name = "OAUTHBEARER"

    def __init__(self, get_token: GetToken, now: Callable[[], float] = time.time) -> None:
        self._get_token = get_token
        self._now = now

    def __repr__(self) -> str:
        return "OAuthBearerClient()"

    async def begin(self, host: str) -> ClientSteps:
        return self._steps(check_token(await self._get_token(), self._now()))

    def _steps(self, token: OAuthToken) -> ClientSteps:
        fields = {"auth": f"Bearer {token.value}", **token.extensions}
        pairs = "".join(f"{name}={value}{SEPARATOR}" for name, value in fields.items())
        answer = yield f"n,,{SEPARATOR}{pairs}{SEPARATOR}".encode()
        if not answer:
            return
        reason = bytes(answer[:REASON_CHARACTERS_MAX]).decode(errors="replace")
        yield SEPARATOR.encode()  # the broker rejects the token; it answers with its error now
        raise AuthenticationError(f"the broker rejected the token: {reason!r}")


class TokenRejection(NamedTuple):
    """Why a token is not accepted; the log has the reason, the client does not receive it."""

    reason: str


ValidateToken = Callable[[str, Mapping[str, str]], Authenticated | TokenRejection | None]
"""Verifies a token and its extensions, and returns the user that presents it, or that the token is not accepted."""


class OAuthBearerServer:
    """OAUTHBEARER on the broker.

    Arguments:
        validate: runs as a job; it verifies signature, audience and expiry.
    """

    name = "OAUTHBEARER"

    def __init__(self, validate: ValidateToken) -> None:
        self._validate = validate

    def begin(self, message: bytes) -> ServerSteps:
        authorization_id, token, extensions = _parse(message)
        if not authorization_id:
            return (yield from self._exchange(authorization_id, token, extensions))
        with login_of(authorization_id):
            return (yield from self._exchange(authorization_id, token, extensions))

    def _exchange(self, authorization_id: str, token: str, extensions: Mapping[str, str]) -> ServerSteps:
        accepted: Authenticated | TokenRejection | None = yield Job(lambda: self._validate(token, extensions))
        if not isinstance(accepted, Authenticated):
            yield INVALID_TOKEN
            raise AuthenticationError(INVALID_TOKEN.decode() if accepted is None else accepted.reason)
        if authorization_id not in ("", sasl_name(accepted.name)):
            raise AuthenticationError("the authorization id differs from the name in the token")
        return accepted


def _parse(message: bytes) -> tuple[str, str, dict[str, str]]:
    """Return authorization id, token and extensions. An error text contains no part of the message."""
    try:
        header, *pairs = message.decode("ascii").split(SEPARATOR)
    except UnicodeDecodeError:
        raise AuthenticationError("the message of OAUTHBEARER is not ASCII") from None
    binding, _, rest = header.partition(",")
    authorization_id, comma, _ = rest.partition(",")
    if binding not in ("n", "y") or not comma or pairs[-2:] != ["", ""]:
        raise AuthenticationError("the message of OAUTHBEARER is malformed")
    fields = dict(_pair(each) for each in pairs[:-2])
    bearer = BEARER.fullmatch(fields.pop("auth", ""))
    if bearer is None:
        raise AuthenticationError("the message of OAUTHBEARER has no bearer token")
    return authorization_id.removeprefix("a="), bearer[1], fields


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.isalpha():
        raise AuthenticationError("the message of OAUTHBEARER has a malformed field")
    return name, value
