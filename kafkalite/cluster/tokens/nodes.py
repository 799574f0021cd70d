"""Reads tokens from their nodes, and converts both."""

from functools import partial

from kafkalite.clock import Outcome, Then
from kafkalite.cluster.node_store import read_each, read_node
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.bulk_reads import ensure_nodes
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.coordination.znodes.tokens import (
    PERSISTENT,
    TOKENS,
    TokenNode,
    decode_token,
    encode_token,
    token_path,
)
from kafkalite.state.authorizer.acls import parse_principal
from kafkalite.state.delegation_tokens import Token


def encode(token: Token) -> bytes:
    """Return the contents of the node of a token."""
    renewers = [str(each) for each in token.renewers]
    times = (token.issued_ms, token.max_ms, token.expiry_ms)
    return encode_token(TokenNode(token.token_id, str(token.owner), str(token.requester), renewers, *times))


def decode(path: str, data: bytes) -> Token:
    """Return the token of a node. Raises ZnodeError, also if it has the id of another one."""
    node = decode_token(path, data)
    if path != token_path(node.token_id):
        raise ZnodeError(f"{path}: the field 'tokenId' is that of another token")
    try:
        owner, requester = parse_principal(node.owner), parse_principal(node.requester)
        renewers = tuple(map(parse_principal, node.renewers))
    except ValueError as error:
        raise ZnodeError(f"{path}: {error}") from error
    return Token(node.token_id, owner, requester, renewers, node.issued_ms, node.max_ms, node.expiry_ms)


def read_token(session: Coordination, token_id: str, then: Then) -> None:
    """Read a token; the value is a token, None without a node, or a ZnodeError."""
    read_node(session, token_path(token_id), decode, None, then)


def read_all(session: Coordination, then: Then) -> None:
    """Read all tokens; creates missing parents. The value is a dictionary from ids to those of `read_token`."""

    def ensured(outcome: Outcome) -> None:
        if outcome.error is not None:
            then(outcome)
        else:
            session.children(TOKENS, listed)

    def listed(outcome: Outcome) -> None:
        if outcome.error is not None:
            then(outcome)
        else:
            read_each(outcome.value[0], partial(read_token, session), then)

    ensure_nodes(session, PERSISTENT, ensured)
