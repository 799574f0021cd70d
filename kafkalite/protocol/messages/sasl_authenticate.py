"""SaslAuthenticate, key 36, v0-2. One step of a SASL exchange (KIP-152).

Version notes: v1 session lifetime (KIP-368); v2 flexible.
Source: SaslAuthenticateRequest.json, SaslAuthenticateResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, binary, field, int16, int64, string


class SaslAuthenticateRequest(Request, key=36, versions=(0, 2), flexible=2):
    """The bytes of the mechanism."""

    auth_bytes: binary


class SaslAuthenticateResponse(Response, key=36, versions=(0, 2), flexible=2):
    """The answer of the mechanism, and after the last step the lifetime of the session."""

    error_code: int16 = 0
    error_message: string | None
    auth_bytes: binary
    session_lifetime_ms: int64 = field(since=1, default=0)
