"""The authentication of one connection on the broker's side: handshake and messages (KIP-152, KIP-368), without I/O.

`login` receives the requests, runs the jobs and ends the sessions; the mechanisms are in `net/sasl`.

Invariants:
1. Principal and mechanism of a connection never change: later authentications must be of the same user, with the same
   mechanism.
2. After a failure the connection accepts nothing more; its owner sends the answer and closes it.
3. Error texts contain no bytes of the client but the name of a mechanism.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kafkalite.errors import AuthenticationError, KafkaErrorCode
from kafkalite.net.sasl.steps import (
    MESSAGE_BYTES_MAX,
    Authenticated,
    Job,
    ServerMechanism,
    ServerSteps,
    UserRejectedError,
    check_size,
)


class Answer(NamedTuple):
    """The fields of a SaslAuthenticateResponse."""

    error_code: int = 0
    error_message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0


class SaslServer:
    """The authentication of a connection.

    Arguments:
        mechanisms: those of the listener.
        now: the time in seconds of the epoch.

    Attributes:
        name: of the user; None = not authenticated.
        expires_at: end of the credential's validity in seconds of the epoch; None = it does not end.
        by_token: whether the last authentication was that of a delegation token.
        failed: an authentication has failed; the connection must be closed.
        rejected_user: the name that the client has claimed in the login that failed; None = it has named none.
    """

    def __init__(self, mechanisms: Iterable[ServerMechanism], now: Callable[[], float]) -> None:
        self.name: str | None = None
        self.expires_at: float | None = None
        self.failed = self.by_token = False
        self.rejected_user: str | None = None
        self._mechanisms = {each.name: each for each in mechanisms}
        self._now = now
        self._selected: ServerMechanism | None = None
        self._mechanism: str | None = None  # of the first authentication
        self._steps: ServerSteps | None = None

    @property
    def authenticating(self) -> bool:
        """Whether the next request must be SaslAuthenticate."""
        return self._selected is not None

    def handshake(self, mechanism: str) -> tuple[int, list[str]]:
        """Select a mechanism; return error code and mechanisms of a SaslHandshakeResponse."""
        offered = sorted(self._mechanisms)
        if self.failed or self._selected is not None:
            self.failed = True
            return KafkaErrorCode.ILLEGAL_SASL_STATE, offered
        self._selected = self._mechanisms.get(mechanism)
        if self._selected is None:
            self.failed = True
            return KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM, offered
        return 0, offered

    def authenticate(self, message: bytes) -> Answer | Job:
        """Apply the bytes of a SaslAuthenticateRequest.

        Returns:
            The answer, or a job; run it and pass its result to `job_done`.
        """
        if self._selected is None or self.failed:
            self.failed = True
            return Answer(KafkaErrorCode.ILLEGAL_SASL_STATE, "send a SaslHandshakeRequest first")
        if len(message) > MESSAGE_BYTES_MAX:
            return self._reject(f"a SASL message of {len(message)} bytes, limit {MESSAGE_BYTES_MAX}")
        if self._mechanism not in (None, self._selected.name):
            return self._reject("the mechanism of a connection cannot change")
        if self._steps is None:
            self._steps = self._selected.begin(message)
            return self._advance(None)
        return self._advance(message)

    def job_done(self, result: object) -> Answer | Job:
        """Continue with the result of a job."""
        return self._advance(result)

    def _advance(self, value: object) -> Answer | Job:
        assert self._steps is not None
        try:
            step = self._steps.send(value)
            if isinstance(step, Job):
                return step
            check_size(step, "broker")
        except StopIteration as end:
            return self._accept(end.value)
        except AuthenticationError as error:
            return self._reject(str(error), error.user if isinstance(error, UserRejectedError) else None)
        return Answer(auth_bytes=step)

    def _accept(self, authenticated: Authenticated) -> Answer:
        if self.name not in (None, authenticated.name):
            return self._reject("the principal of a connection cannot change", authenticated.name)
        now, expires_at = self._now(), authenticated.expires_at
        if expires_at is not None and expires_at <= now:
            return self._reject("the credential has expired", authenticated.name)
        self._mechanism = None if self._selected is None else self._selected.name
        self.name, self._selected, self._steps = authenticated.name, None, None
        self.expires_at, self.by_token = expires_at, authenticated.by_token
        lifetime_ms = 0 if expires_at is None else max(1, int((expires_at - now) * 1000))
        return Answer(auth_bytes=authenticated.answer, session_lifetime_ms=lifetime_ms)

    def _reject(self, reason: str, user: str | None = None) -> Answer:
        self.failed, self._steps, self.rejected_user = True, None, user
        return Answer(KafkaErrorCode.SASL_AUTHENTICATION_FAILED, f"authentication failed: {reason}")
