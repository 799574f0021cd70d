"""The common part of the requests of delegation tokens: connections that may send them, rights to change a token."""

from collections.abc import Callable
from functools import partial

from kafkalite._speedups.net.framing import Connection
from kafkalite.cluster.tokens.store import DelegationTokens
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ANONYMOUS, Principal
from kafkalite.server.requests.call import TokenCall
from kafkalite.state.delegation_tokens import Change, Token, TokenTimes


def requester_of(connection: Connection) -> Principal:
    """Return the principal of a connection."""
    principal: Principal = connection.principal or ANONYMOUS
    return principal


def tokens_for(connection: Connection, tokens: DelegationTokens | None) -> DelegationTokens | KafkaErrorCode:
    """Return the tokens of a broker, or why a connection may not use them."""
    refusal = refusal_of_connection(connection)
    if refusal is not None:
        return refusal
    return KafkaErrorCode.DELEGATION_TOKEN_AUTH_DISABLED if tokens is None else tokens


def refusal_of_connection(connection: Connection) -> KafkaErrorCode | None:
    """Return the error of a connection over which no token is administered (KafkaApis.allowTokenRequests).

    These are connections without an authentication: in plaintext, and with TLS without a certificate of the client; and
    those that have authenticated with a token, as it could extend its own lifetime.
    """
    login = connection.state  # of a listener with SASL
    authenticated = connection.principal not in (None, ANONYMOUS) if login is None else not login.by_token
    return None if authenticated else KafkaErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def change_token(
    call: TokenCall,
    token_hmac: bytes,
    change: Callable[[Token, Principal, TokenTimes, int], Change],
    answer: Callable[[TokenCall, Change], None],
) -> None:
    """Change a token, or answer why the connection may not do it.

    Arguments:
        call: of the request.
        token_hmac: names the token.
        change: returns the change of the token for the principal of the connection; further arguments are the times of
            the broker's tokens, and the wall clock time in ms.
        answer: sends the response; called once, when the change is durable.
    """
    answered = call.guard(partial(answer, call))
    tokens = tokens_for(call.connection, call.context.tokens)
    if isinstance(tokens, KafkaErrorCode):
        answered(Change(tokens))
        return
    principal, times, now_ms = requester_of(call.connection), tokens.times, call.context.clock.wall_ms()
    tokens.change(bytes(token_hmac), lambda token: change(token, principal, times, now_ms), answered)
