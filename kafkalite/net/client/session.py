"""The authenticated session of a connection: SaslHandshake, SaslAuthenticate, and both again before it expires.

Invariants (KIP-152, KIP-368):
1. Credentials are obtained before requests are held, so a slow token delays no request.
2. While the connection authenticates again, requests keep their order and leave afterwards; the responses of earlier
   ones arrive first.
3. A session is renewed at 85 to 95 % of its lifetime, also on an idle connection. Retriable errors of the credentials
   are repeated while half of the remaining time is at least `RETRY_S_MIN`. Any other failure ends the connection, and
   its requests may be retried: a fatal error is raised by the next attempt to connect.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from kafkalite.errors import (
    AuthenticationError,
    KafkaConnectionError,
    KafkaError,
    KafkaErrorCode,
    UnsupportedVersionError,
    error_for,
)
from kafkalite.net.sasl.steps import ClientMechanism, ClientSteps, Job, check_size
from kafkalite.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkalite.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafkalite.protocol.schema import Request

LOGGER = logging.getLogger("kafkalite.client")
RENEW_FROM = 0.85
RENEW_JITTER = 0.1
RETRY_S_MIN = 0.1


class AuthenticatedConnection(Protocol):
    """The part of a `ClientConnection` that its session uses."""

    host: str

    def call(self, request: Request, *, ahead: bool) -> Awaitable[Any]: ...
    def hold(self) -> None: ...
    def release(self) -> None: ...
    def abort(self, reason: KafkaError | None) -> None: ...


class SaslSession:
    """Authenticates one connection.

    Arguments:
        connection: of the session.
        mechanism: with the credentials.
        name: of the broker in error texts.
        random: returns a number from 0 to below 1; spreads renewals.
    """

    def __init__(
        self, connection: AuthenticatedConnection, mechanism: ClientMechanism, name: str, random: Callable[[], float]
    ) -> None:
        self._connection = connection
        self._mechanism = mechanism
        self._name = name
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> ClientSteps:
        """Obtain the credentials, before the connection is opened.

        Raises:
            AuthenticationError: they are not usable. KafkaConnectionError: they cannot be obtained at the moment.
        """
        try:
            return await self._mechanism.begin(self._connection.host)
        except KafkaError:
            raise
        except OSError as error:  # also TimeoutError
            raise KafkaConnectionError(self._failed("the credentials cannot be obtained", error)) from error
        except Exception as error:
            raise AuthenticationError(self._failed("the credentials cannot be obtained", error)) from error

    def _failed(self, what: str, error: Exception) -> str:
        """Return a text without that of the exception, which may contain a secret."""
        return f"{self._name}, {self._mechanism.name}: {what}: {type(error).__name__}, see the cause of this error"

    async def authenticate(self, steps: ClientSteps) -> None:
        """Authenticate with the steps of `begin`.

        Raises:
            AuthenticationError: the broker rejects the credentials, or does not offer the mechanism.
            KafkaConnectionError: the connection ends.
        """
        try:
            await self._select_mechanism()
            lifetime_ms = await self._exchange(steps)
        finally:
            steps.close()
        if lifetime_ms > 0:
            lifetime_s = lifetime_ms / 1000
            delay_s = lifetime_s * (RENEW_FROM + RENEW_JITTER * self._random())
            self._set_timer(delay_s, self._loop.time() + lifetime_s)

    def _set_timer(self, delay_s: float, expires_at: float) -> None:
        self._timer = self._loop.call_later(delay_s, self._start_renewal, expires_at)

    def close(self) -> None:
        """Renew the session no more: the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    async def _select_mechanism(self) -> None:
        name = self._mechanism.name
        try:
            response: SaslHandshakeResponse = await self._connection.call(
                SaslHandshakeRequest(mechanism=name), ahead=True
            )
        except UnsupportedVersionError as error:
            raise AuthenticationError(f"{self._name}: the broker does not serve SASL; {_USES_NO_SASL}") from error
        if response.error_code == KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(sorted(response.mechanisms)) or "none"
            raise error_for(
                response.error_code,
                f"{self._name} does not offer the SASL mechanism {name}, it offers {offered}; change sasl_mechanism",
            )
        if response.error_code == KafkaErrorCode.ILLEGAL_SASL_STATE:
            raise error_for(response.error_code, f"{self._name}: the listener does not use SASL; {_USES_NO_SASL}")
        if response.error_code:
            raise error_for(response.error_code, f"{self._name}, SASL handshake for {name}")

    async def _exchange(self, steps: ClientSteps) -> int:
        """Exchange the messages of the mechanism; return the lifetime of the session in ms, 0 = unlimited."""
        message = await self._next_message(steps, None)
        lifetime_ms = 0
        while message is not None:
            check_size(message, "client")
            response: SaslAuthenticateResponse = await self._connection.call(
                SaslAuthenticateRequest(auth_bytes=message), ahead=True
            )
            if response.error_code:
                raise self._rejected(response)
            check_size(response.auth_bytes, "broker")
            lifetime_ms = response.session_lifetime_ms
            message = await self._next_message(steps, bytes(response.auth_bytes))
        return lifetime_ms

    async def _next_message(self, steps: ClientSteps, answer: bytes | None) -> bytes | None:
        """Return the next message of the client; None = the authentication is complete."""
        value: Any = answer
        try:
            while isinstance(step := steps.send(value), Job):
                value = await self._loop.run_in_executor(None, step.run)
        except StopIteration:
            return None
        except AuthenticationError as error:
            raise AuthenticationError(f"{self._name}: {error}") from error.__cause__
        except Exception as error:
            raise AuthenticationError(self._failed("the mechanism failed", error)) from error
        return step

    def _rejected(self, response: SaslAuthenticateResponse) -> KafkaError:
        reason = response.error_message or "no reason given"
        mechanism = self._mechanism.name
        text = f"{self._name} rejected the credentials of {mechanism}: {reason}; check the sasl_* settings"
        return error_for(response.error_code, text)

    # the next session

    def _start_renewal(self, expires_at: float) -> None:
        self._timer = None
        self._task = self._loop.create_task(self._renew(expires_at), name=f"kafkalite: authenticate to {self._name}")
        self._task.add_done_callback(self._renewed)

    async def _renew(self, expires_at: float) -> None:
        try:
            steps = await self.begin()
        except KafkaError as error:
            pause_s = (expires_at - self._loop.time()) / 2
            if not error.retriable or pause_s < RETRY_S_MIN:
                raise
            LOGGER.warning("%s: no credentials to authenticate again, next attempt in %.1f s", self._name, pause_s)
            self._set_timer(pause_s, expires_at)
            return
        self._connection.hold()
        try:
            await self.authenticate(steps)
        finally:
            self._connection.release()

    def _renewed(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            reason = str(error) if isinstance(error, KafkaError) else type(error).__name__
            failure = KafkaConnectionError(f"{self._name}: authenticating again failed: {reason}")
            failure.__cause__ = error
            self._connection.abort(failure)


_USES_NO_SASL = 'set security_protocol to "PLAINTEXT" or "SSL", or use the port of a SASL listener'
