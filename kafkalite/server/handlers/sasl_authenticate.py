"""SaslAuthenticate, key 36, v0-2: one message of a SASL login (KIP-152); v1 returns the lifetime (KIP-368).

A connection that is not in a login gets ILLEGAL_SASL_STATE.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkalite.server.authentication.exchange import Answer
from kafkalite.server.requests.call import PlainCall

AFTER_LOGIN = "SaslAuthenticate request received after successful authentication"


def sasl_authenticate(call: PlainCall, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse | None:
    """Apply the message to the login of the connection."""
    login = call.connection.state
    if login is None or login.is_open:
        code = KafkaErrorCode.ILLEGAL_SASL_STATE
        return SaslAuthenticateResponse(error_code=code, error_message=AFTER_LOGIN, auth_bytes=b"")

    def respond(answer: Answer) -> None:
        call.answer(SaslAuthenticateResponse(**answer._asdict()))

    login.authenticate(call.reply, bytes(request.auth_bytes), respond)
    return None
