"""RenewDelegationToken, key 39, v1-2: moves the expiry of a delegation token, for its owner and its renewers.

Source: KafkaApis.handleRenewTokenRequest of Apache Kafka 3.9.
"""

from functools import partial

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from kafkalite.server.requests.call import TokenCall
from kafkalite.server.security.token_requests import requester_of, tokens_for
from kafkalite.state.delegation_tokens import Change, renew


def renew_delegation_token(call: TokenCall, request: RenewDelegationTokenRequest) -> None:
    """Renew the token with the HMAC of the request; the response is sent when it is durable."""
    answered = call.guard(partial(answer, call))
    tokens = tokens_for(call.connection, call.context.tokens)
    if isinstance(tokens, KafkaErrorCode):
        answered(Change(tokens))
        return
    decide = partial(
        renew,
        principal=requester_of(call.connection),
        period_ms=request.renew_period_ms,
        renewal_ms=tokens.times.renewal_ms,
        now_ms=call.context.clock.wall_ms(),
    )
    tokens.change(bytes(request.hmac), decide, answered)


def answer(call: TokenCall, change: Change) -> None:
    """Send the new expiry, or the error."""
    call.answer(RenewDelegationTokenResponse(error_code=change.error, expiry_timestamp_ms=change.expiry_ms))
