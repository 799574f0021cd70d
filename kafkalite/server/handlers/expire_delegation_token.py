"""ExpireDelegationToken, key 40, v1-2: sets the expiry of a delegation token, or removes it.

The owner and the renewers may do it. Connections that have authenticated with the token stay open until the expiry that
they began with, as in Kafka.

Source: KafkaApis.handleExpireTokenRequest of Apache Kafka 3.9.
"""

from kafkalite.model import Principal
from kafkalite.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from kafkalite.server.requests.call import TokenCall
from kafkalite.server.requests.token_requests import change_token
from kafkalite.state.delegation_tokens import Change, Token, TokenTimes, expire


def expire_delegation_token(call: TokenCall, request: ExpireDelegationTokenRequest) -> None:
    """Expire the token with the HMAC of the request; the response is sent when it is durable."""
    period_ms = request.expiry_time_period_ms

    def decide(token: Token, principal: Principal, _times: TokenTimes, now_ms: int) -> Change:
        return expire(token, principal, period_ms, now_ms)

    change_token(call, request.hmac, decide, answer)


def answer(call: TokenCall, change: Change) -> None:
    """Send the new expiry, or the error."""
    call.answer(ExpireDelegationTokenResponse(error_code=change.error, expiry_timestamp_ms=change.expiry_ms))
