"""RenewDelegationToken, key 39, v1-2: moves the expiry of a delegation token, for its owner and its renewers.

Source: KafkaApis.handleRenewTokenRequest of Apache Kafka 3.9.
"""

from kafkalite.model import Principal
from kafkalite.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from kafkalite.server.requests.call import TokenCall
from kafkalite.server.requests.token_requests import change_token
from kafkalite.state.delegation_tokens import Change, Token, TokenTimes, renew


def renew_delegation_token(call: TokenCall, request: RenewDelegationTokenRequest) -> None:
    """Renew the token with the HMAC of the request; the response is sent when it is durable."""
    period_ms = request.renew_period_ms

    def decide(token: Token, principal: Principal, times: TokenTimes, now_ms: int) -> Change:
        return renew(token, principal, period_ms, times.renewal_ms, now_ms)

    change_token(call, request.hmac, decide, answer)


def answer(call: TokenCall, change: Change) -> None:
    """Send the new expiry, or the error."""
    call.answer(RenewDelegationTokenResponse(error_code=change.error, expiry_timestamp_ms=change.expiry_ms))
