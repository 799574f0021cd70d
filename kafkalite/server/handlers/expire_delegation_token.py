"""ExpireDelegationToken, key 40, v1-2: sets the expiry of a delegation token, or removes it.

The owner and the renewers may do it. Connections that have authenticated with the token stay open until the expiry that
they began with, as in Kafka.

Source: KafkaApis.handleExpireTokenRequest of Apache Kafka 3.9.
"""

from functools import partial

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from kafkalite.server.requests.call import TokenCall
from kafkalite.server.security.token_requests import requester_of, tokens_for
from kafkalite.state.delegation_tokens import Change, expire


def expire_delegation_token(call: TokenCall, request: ExpireDelegationTokenRequest) -> None:
    """Expire the token with the HMAC of the request; the response is sent when it is durable."""
    answered = call.guard(partial(answer, call))
    tokens = tokens_for(call.connection, call.context.tokens)
    if isinstance(tokens, KafkaErrorCode):
        answered(Change(tokens))
        return
    decide = partial(
        expire,
        principal=requester_of(call.connection),
        period_ms=request.expiry_time_period_ms,
        now_ms=call.context.clock.wall_ms(),
    )
    tokens.change(bytes(request.hmac), decide, answered)


def answer(call: TokenCall, change: Change) -> None:
    """Send the new expiry, or the error."""
    call.answer(ExpireDelegationTokenResponse(error_code=change.error, expiry_timestamp_ms=change.expiry_ms))
