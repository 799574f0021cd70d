"""SaslHandshake, key 17, v0-1: selects the SASL mechanism of a connection (KIP-43, KIP-152).

A listener without SASL, and a connection that cannot begin a login now, get ILLEGAL_SASL_STATE.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafkalite.server.requests.call import PlainCall


def sasl_handshake(call: PlainCall, request: SaslHandshakeRequest) -> SaslHandshakeResponse | None:
    """Select the mechanism, or answer with those that the listener offers."""
    login = call.connection.state
    if login is None:
        return SaslHandshakeResponse(error_code=KafkaErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])

    def respond(error: int, mechanisms: list[str]) -> None:
        call.answer(SaslHandshakeResponse(error_code=error, mechanisms=mechanisms))

    login.handshake(request.mechanism, call.version, respond)
    return None
