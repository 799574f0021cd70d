"""PLAIN (RFC 4616): user name and password in clear text, for connections with TLS."""

from collections.abc import Callable

from kafkalite.errors import AuthenticationError
from kafkalite.net.sasl.steps import Authenticated, ClientSteps, Job, ServerSteps, login_of

NUL = "\0"


class PlainClient:
    """PLAIN on the client.

    Arguments:
        username, password: the credentials.

    Raises:
        ValueError: one of them is empty or contains NUL.
    """

    name = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        check_credentials(username, password)
        self._username = username
        self._password = password

    def __repr__(self) -> str:
        return f"PlainClient({self._username!r})"

    async def begin(self, host: str) -> ClientSteps:
        return self._steps()

    def _steps(self) -> ClientSteps:
        answer = yield f"{NUL}{self._username}{NUL}{self._password}".encode()
        if answer:
            raise AuthenticationError("the broker answered PLAIN with another message; is it a Kafka broker?")


def check_credentials(username: str, password: str) -> None:
    """Raise ValueError unless both can be credentials; the text does not contain the password."""
    for name, value in (("sasl_username", username), ("sasl_password", password)):
        if not value:
            raise ValueError(f"{name} is empty")
        if NUL in value:
            raise ValueError(f"{name} contains a NUL character, which SASL does not allow")


class PlainServer:
    """PLAIN on the broker. An authorization id is only accepted if it is the user name (CVE-2017-12610).

    Arguments:
        verify: whether a user has this password; it runs as a job, as it may hash, and compares in constant time.
    """

    name = "PLAIN"

    def __init__(self, verify: Callable[[str, str], bool]) -> None:
        self._verify = verify

    def begin(self, message: bytes) -> ServerSteps:
        authorization_id, username, password = _parse(message)
        with login_of(username):
            if authorization_id not in ("", username):
                raise AuthenticationError("the authorization id differs from the user name")
            if not (yield Job(lambda: self._verify(username, password))):
                raise AuthenticationError("invalid user name or password")
        return Authenticated(username)


def _parse(message: bytes) -> tuple[str, str, str]:
    """Return authorization id, user name and password. Raises AuthenticationError."""
    try:
        parts = message.decode().split(NUL)
    except UnicodeDecodeError:
        raise AuthenticationError("the message of PLAIN is not UTF-8") from None
    if len(parts) != 3:
        raise AuthenticationError(f"the message of PLAIN has {len(parts)} fields, expected 3")
    authorization_id, username, password = parts
    if not username or not password:
        raise AuthenticationError("the message of PLAIN has no user name or no password")
    return authorization_id, username, password
