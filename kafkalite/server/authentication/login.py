"""The SASL login of one connection: which requests it may send, and when (SaslServerAuthenticator.java of Kafka 4.3).

1. Before the login only ApiVersions and SaslHandshake are served; after the handshake only SaslAuthenticate, or frames
   without a Kafka header for a handshake of version 0. Any other request closes the connection without a response.
2. A failure is answered after `connection.failed.authentication.delay.ms`, then the connection is closed. Meanwhile
   nothing is received, and only the small response is kept. All reasons have the same text; the log has the reason and,
   where the client has named it, the user, escaped and bounded. Each reason has one line a minute in each of
   `USER_GROUPS` groups of user names, so that a guesser of one user hides few others, and cannot fill the disk.
3. After the end of a session only SaslHandshake is served. Times are monotonic: steps of the clock move no session.
4. Hashes and signatures are computed by jobs; no request of the connection is served meanwhile.
5. A connection above the limit of its principal is closed without a response.

`exchange` applies the messages of the mechanism, and rejects a change of user or mechanism.
"""

import logging
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kafkalite._speedups.net.framing import Connection, Reply
from kafkalite.clock import Clock, Offload, Outcome, Timer
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import USER, Principal
from kafkalite.net.sasl.steps import Job, ServerMechanism
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.server.authentication.exchange import Answer, SaslServer
from kafkalite.server.authentication.principals import PrincipalError, Principals

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
LOGGER = logging.getLogger("kafkalite.authentication")
NUMBER = re.compile("[0-9]+")
QUOTED = re.compile("['\"].*", re.DOTALL)
USER_CHARACTERS_MAX = 80  # of a name in the log
USER_GROUPS = 16

Serve = Callable[[Reply, memoryview], None]
Respond = Callable[[Answer], object]


class ListenerLogin(NamedTuple):
    """What all connections of a listener share.

    Attributes:
        name: of the listener.
        mechanisms: those that it offers.
        reauthentication_ms: the longest session by mechanism, 0 = unlimited.
        delay_s: between a failure and its response.
        clock, offload, log: of the broker.
        serve: serves an allowed request.
        admits: whether the limits of its principal admit a connection that is authenticated now.
        principals: builds principals; None: that of a user is `User:` and its name.
    """

    name: str
    mechanisms: Sequence[ServerMechanism]
    reauthentication_ms: Mapping[str, int]
    delay_s: float
    clock: Clock
    offload: Offload
    log: RateLimitedLog
    serve: Serve
    admits: Callable[[Connection], bool]
    principals: Principals | None = None

    def now(self) -> float:
        """The wall clock in seconds of the epoch, which the expiry of a token is compared with."""
        return self.clock.wall_ms() / 1000


class ClosedLogin:
    """The login of a closed connection: it serves no request.

    It does not refer to the connection, unlike `Login`: the memory of both is freed at once, not by the garbage
    collector, which would stop the loop for 20 ms after 4,000 connections.

    Arguments:
        by_token: as of `Login`.
    """

    __slots__ = ("by_token",)
    is_open = False

    def __init__(self, by_token: bool) -> None:
        self.by_token = by_token

    def request(self, reply: Reply, _frame: memoryview) -> None:
        """Close the connection."""
        reply.close("the connection is closed")

    def end(self) -> "ClosedLogin":
        """Return itself."""
        return self


class Login:
    """The login of a connection.

    Arguments:
        listener: of the connection.
        connection: has neither a principal nor a login yet.

    Attributes:
        is_open: whether all requests are served now.
        by_token: whether the client has authenticated with a delegation token.
    """

    __slots__ = (
        "_connection",
        "_expired",
        "_expiry",
        "_listener",
        "_mechanism",
        "_raw",
        "_server",
        "by_token",
        "is_open",
    )

    def __init__(self, listener: ListenerLogin, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._server = SaslServer(listener.mechanisms, listener.now)
        self._mechanism = ""
        self._raw = False  # the tokens of a handshake of version 0 have no header
        self._expired = False
        self._expiry: Timer | None = None
        self.is_open = self.by_token = False
        connection.authenticated = False

    def request(self, reply: Reply, frame: memoryview) -> None:
        """Serve a frame while `is_open` is False, or close the connection."""
        server = self._server
        if self._raw and server.authenticating and not server.failed:
            self._step(reply, server.authenticate(bytes(frame)), partial(self._respond_raw, reply))
            return
        key = int.from_bytes(frame[:2], "big")
        if server.authenticating:
            allowed: tuple[int, ...] = (SASL_AUTHENTICATE,)
        else:
            allowed = (SASL_HANDSHAKE,) if self._expired else (API_VERSIONS, SASL_HANDSHAKE)
        if key in allowed and len(frame) >= 8 and not server.failed:
            self._listener.serve(reply, frame)
        else:
            when = "the session has expired" if self._expired else "the connection is not authenticated"
            self._report(f"{when}: request key %s is not served", key)
            reply.close("authentication is required")

    def handshake(self, mechanism: str, version: int, respond: Callable[[int, list[str]], object]) -> None:
        """Select a mechanism.

        Arguments:
            mechanism: that the client names.
            version: of the request; 0 = the messages that follow have no Kafka header.
            respond: called once with the error code and the offered mechanisms.
        """
        error, offered = self._server.handshake(mechanism)
        if error:
            self._fail(f"{KafkaErrorCode(error).name}, mechanism %r", mechanism[:40], partial(respond, error, offered))
            return
        self._raw, self._mechanism, self.is_open = version == 0, mechanism, False
        respond(0, offered)

    def authenticate(self, reply: Reply, message: bytes, respond: Respond) -> None:
        """Apply the message of a SaslAuthenticate request; `respond` is called once with the answer."""
        self._step(reply, self._server.authenticate(message), respond)

    def end(self) -> "ClosedLogin":
        """The connection is closed; returns what takes the place of this login."""
        self._cancel_expiry()
        return ClosedLogin(self.by_token)

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()

    def _step(self, reply: Reply, step: Answer | Job, respond: Respond) -> None:
        if isinstance(step, Job):
            reply.pause()
            self._listener.offload.run(step.run, done=partial(self._job_done, reply, respond))
        elif step.error_code:
            self._reject(step.error_code, step.error_message, respond)
        elif self._server.authenticating:
            respond(step)
        else:
            self._accepted(reply, step, respond)

    def _reject(self, error_code: int, reason: str | None, respond: Respond) -> None:
        """Fail with one text for all reasons."""
        message = f"Authentication failed due to invalid credentials with SASL mechanism {self._mechanism}"
        self._fail("%s", reason, partial(respond, Answer(error_code, message)))

    def _job_done(self, reply: Reply, respond: Respond, outcome: Outcome) -> None:
        reply.resume(pinned=False)
        if self._connection.closed:
            return
        if outcome.error is None:
            self._step(reply, self._server.job_done(outcome.value), respond)
            return
        self._server.failed = True
        self._listener.log(logging.ERROR, "sasl job", "a login by %s failed", self._mechanism, exc_info=outcome.error)
        reply.close("internal error")

    def _accepted(self, reply: Reply, answer: Answer, respond: Respond) -> None:
        name = self._server.name
        assert name is not None
        connection, again = self._connection, self._connection.principal is not None
        try:
            principal = self._principal(name)
        except PrincipalError as error:
            self._server.rejected_user = name
            self._reject(KafkaErrorCode.SASL_AUTHENTICATION_FAILED, str(error), respond)
            return
        lifetime_ms = answer.session_lifetime_ms
        longest_ms = self._listener.reauthentication_ms.get(self._mechanism, 0)
        if longest_ms:
            lifetime_ms = min(lifetime_ms or longest_ms, longest_ms)
        connection.principal = principal
        if not self._listener.admits(connection):
            self._server.failed = True
            reply.close("its principal has too many connections")
            return
        self.by_token = self._server.by_token
        self._begin_session(lifetime_ms)
        what = "has authenticated again" if again else "is authenticated"
        LOGGER.debug("%s:%d on %s %s by %s: %s", connection.peer_host, connection.peer_port, self._listener.name, what,
                     self._mechanism, connection.principal)  # fmt: skip
        respond(answer._replace(session_lifetime_ms=lifetime_ms))
        connection.authenticated = self.is_open = True
        connection.touch()

    def _principal(self, name: str) -> Principal:
        """Return the principal of a user. Raises PrincipalError."""
        principal, connection = Principal(USER, name), self._connection
        if self._listener.principals is None:
            return principal
        built = self._listener.principals.build(connection, principal, self._mechanism)
        if connection.principal not in (None, built):
            raise PrincipalError("the principal of a connection cannot change")
        return built

    def _begin_session(self, lifetime_ms: int) -> None:
        self._cancel_expiry()
        self._expired, self._expiry = False, None
        if lifetime_ms:
            clock = self._listener.clock
            self._expiry = clock.call_at(clock.monotonic() + lifetime_ms / 1000, self._expire)

    def _expire(self) -> None:
        """End the session: the next request must be a handshake."""
        self._expired, self._expiry = True, None
        self.is_open = self._connection.authenticated = False

    def _fail(self, reason: str, detail: object, respond: Callable[[], object]) -> None:
        """Answer a failure after the delay, and close the connection. `reason` is a format of `detail` for the log."""
        self._server.failed = True
        self.is_open = self._connection.authenticated = False
        self._cancel_expiry()
        self._report(reason, detail)
        clock = self._listener.clock
        clock.call_at(clock.monotonic() + self._listener.delay_s, self._respond_and_close, respond)

    def _respond_and_close(self, respond: Callable[[], object]) -> None:
        if not self._connection.closed:
            respond()
            self._connection.drain()

    def _respond_raw(self, reply: Reply, answer: Answer) -> None:
        if answer.error_code:
            reply.close("the authentication failed")
        else:
            reply.send(answer.auth_bytes)

    def _report(self, reason: str, detail: object) -> None:
        """Log why a request or a login is rejected, once a minute for each reason; `detail` may be of the client.

        Numbers in a reason, and what it quotes, are of the client, and make no other reason.
        """
        peer, listener = self._connection, self._listener
        site = f"login {listener.name} {kind_of(str(detail)) if reason == '%s' else reason}"
        text, user = f"%s:%d on %s: {reason}", self._server.rejected_user
        args = [peer.peer_host, peer.peer_port, listener.name, detail]
        if user is not None:
            site += f" {zlib.crc32(user.encode(errors='replace')) % USER_GROUPS}"
            text += ", user %r"
            args.append(user[:USER_CHARACTERS_MAX])
        listener.log(logging.WARNING, site, text, *args)


def kind_of(reason: str) -> str:
    """Return what all reasons of a kind have in common: a client must not choose the number of log lines."""
    return NUMBER.sub("0", QUOTED.sub("", reason))
