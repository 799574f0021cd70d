"""Defines what a SASL mechanism is, on both sides of a connection, without I/O.

An authentication is a generator of its *steps*. A client yields the bytes that it sends and receives the broker's
answer; a broker yields its answer and receives the next bytes of the client. Either may yield a `Job` instead, a
function that takes long and runs outside the event loop; it receives the result. A generator that is refused by, or
refuses, the other side raises `AuthenticationError`. The broker runs the steps in `server/authentication/exchange`.

Sources: RFC 4422; SaslClientAuthenticator.java and SaslServerAuthenticator.java of Apache Kafka 4.3.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from kafkalite.errors import AuthenticationError

MESSAGE_BYTES_MAX = 524_288
"""Largest message of either side, in bytes (`sasl.server.max.receive.size`)."""


class UserRejectedError(AuthenticationError):
    """A login is rejected whose user is known.

    Arguments:
        reason: for the log of the broker.
        user: the name that the client claims, which is not verified.
    """

    def __init__(self, reason: str, user: str) -> None:
        super().__init__(reason)
        self.user = user


@contextmanager
def login_of(user: str) -> Iterator[None]:
    """Name the user in each AuthenticationError of the block: a mechanism knows it after a message of the client."""
    try:
        yield
    except AuthenticationError as error:
        raise UserRejectedError(str(error), user) from error


class Job(NamedTuple):
    """A function without arguments that takes long; the step receives its result."""

    run: Callable[[], Any]


ClientSteps = Generator[bytes | Job, Any, None]
"""Yields the messages of a client; receives the bytes that the broker answers. It ends when the broker is accepted."""


class Authenticated(NamedTuple):
    """The end of an authentication on the broker's side.

    Attributes:
        name: of the user; the principal is `User:name`.
        answer: the last bytes for the client.
        expires_at: end of the credential's validity in seconds of the epoch; None = it does not end.
        by_token: whether the credential is a delegation token.
    """

    name: str
    answer: bytes = b""
    expires_at: float | None = None
    by_token: bool = False

    def __repr__(self) -> str:
        return f"Authenticated(name={self.name!r}, expires_at={self.expires_at!r})"


ServerSteps = Generator[bytes | Job, Any, Authenticated]
"""Yields the answers to a client; receives its next message. It returns who has been authenticated."""


class ClientMechanism(Protocol):
    """A SASL mechanism of a client with its credentials. User-defined mechanisms have the same two members."""

    @property
    def name(self) -> str:
        """The name that the broker knows, such as "SCRAM-SHA-512"."""
        ...

    async def begin(self, host: str) -> ClientSteps:
        """Obtain the credentials for one authentication, and return its steps.

        Arguments:
            host: of the broker.

        Raises:
            AuthenticationError: the credentials are not usable. OSError, or a KafkaError that is retriable: not at the
                moment. Any other exception is the cause of an AuthenticationError.
        """
        ...


class ServerMechanism(Protocol):
    """A SASL mechanism of a broker."""

    @property
    def name(self) -> str:
        """The name that clients select."""
        ...

    def begin(self, message: bytes) -> ServerSteps:
        """Return the steps of one authentication.

        Arguments:
            message: the first one of the client.
        """
        ...


def check_size(message: bytes, sender: str) -> None:
    """Raise AuthenticationError: a message is larger than `MESSAGE_BYTES_MAX`; `sender` is for the error text."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise AuthenticationError(f"a SASL message of the {sender} has {len(message)} bytes, limit {MESSAGE_BYTES_MAX}")
