"""What the requests of delegation tokens have in common: which connections may send them, and who sends them."""

from kafkalite._speedups.net.framing import Connection
from kafkalite.cluster.tokens.store import DelegationTokens
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ANONYMOUS, Principal


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
