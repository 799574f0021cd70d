"""A scripted cluster whose listener uses SASL as Kafka's does.

A connection serves no other request before it is authenticated, while it authenticates again, or after its session has
expired: it is reset, and the request is kept in `forbidden`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from kafkalite._speedups.codec import read_request_header
from kafkalite.net.sasl.steps import Job, ServerMechanism
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkalite.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafkalite.server.authentication.exchange import Answer, SaslServer
from tests.kit.scripted_broker import Connection, ScriptedBroker, ScriptedCall

SASL_KEYS = (SaslHandshakeRequest.api_key, SaslAuthenticateRequest.api_key)


class ScriptedSaslBroker(ScriptedBroker):
    """A scripted cluster with SASL.

    Arguments:
        mechanisms: of the listener; tests may change the list.
        reauthenticate_s: longest session, in seconds; None = unlimited.

    Attributes:
        forbidden: API keys of requests that were not allowed.
        authenticated: user names of all authentications, in their order.
    """

    def __init__(
        self,
        mechanisms: Iterable[ServerMechanism],
        nodes: int = 1,
        network: Any = None,
        reauthenticate_s: float | None = None,
    ) -> None:
        super().__init__(nodes, network)
        self.mechanisms = list(mechanisms)
        self.reauthenticate_s = reauthenticate_s
        self.forbidden: list[int] = []
        self.authenticated: list[str | None] = []
        self._sessions: dict[Connection, SaslServer] = {}
        self.handle(SaslHandshakeRequest, self._handshake)
        self.handle(SaslAuthenticateRequest, self._authenticate)

    def session(self, connection: Connection) -> SaslServer:
        """The authentication of a connection."""
        found = self._sessions.get(connection)
        if found is None:
            now = asyncio.get_running_loop().time
            found = self._sessions[connection] = SaslServer(self.mechanisms, now)
        return found

    def forget_sessions(self) -> None:
        """Connections use the current mechanisms from their next handshake on."""
        now = asyncio.get_running_loop().time
        for connection, session in self._sessions.items():
            name, expires_at = session.name, session.expires_at
            renewed = self._sessions[connection] = SaslServer(self.mechanisms, now)
            renewed.name, renewed.expires_at = name, expires_at

    def serve_frame(self, connection: Connection, frame: bytes) -> None:
        key, session = read_request_header(frame).api_key, self.session(connection)
        allowed = (
            key == SaslAuthenticateRequest.api_key
            if session.authenticating
            else key in (*SASL_KEYS, ApiVersionsRequest.api_key)
            or (session.name is not None and not has_expired(session))
        )
        if session.failed or not allowed:
            self.forbidden.append(key)
            connection.abort()
            return
        super().serve_frame(connection, frame)

    def _handshake(self, call: ScriptedCall) -> SaslHandshakeResponse:
        code, mechanisms = self.session(call.connection).handshake(call.request.mechanism)
        return SaslHandshakeResponse(error_code=code, mechanisms=mechanisms)

    def _authenticate(self, call: ScriptedCall) -> SaslAuthenticateResponse:
        session = self.session(call.connection)
        answer = session.authenticate(bytes(call.request.auth_bytes))
        while isinstance(answer, Job):
            answer = session.job_done(answer.run())
        assert isinstance(answer, Answer)
        if not session.failed and not session.authenticating:
            self.authenticated.append(session.name)
            answer = self._limited(session, answer)
        return SaslAuthenticateResponse(**answer._asdict())

    def _limited(self, session: SaslServer, answer: Answer) -> Answer:
        """End the session after `reauthenticate_s`, if the credential does not expire before."""
        if self.reauthenticate_s is None:
            return answer
        limit_ms = int(self.reauthenticate_s * 1000)
        lifetime_ms = min(answer.session_lifetime_ms or limit_ms, limit_ms)
        session.expires_at = asyncio.get_running_loop().time() + lifetime_ms / 1000
        return answer._replace(session_lifetime_ms=lifetime_ms)


def has_expired(session: SaslServer) -> bool:
    """Whether a session has ended: only a handshake is served then."""
    return session.expires_at is not None and asyncio.get_running_loop().time() >= session.expires_at
