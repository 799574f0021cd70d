"""Reads tokens from their nodes, and converts both."""

from collections.abc import Callable
from functools import partial

from kafkalite.callbacks import gather
from kafkalite.clock import Outcome, Then
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.bulk_reads import ensure_nodes
from kafkalite.coordination.errors import NoNodeError
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

# A token, None without a node, or why it cannot be read.
Stored = Token | ZnodeError | None


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
    """Read a token; the value is `Stored`."""
    path = token_path(token_id)

    def read(outcome: Outcome) -> None:
        if isinstance(outcome.error, NoNodeError):
            then(Outcome(None))
        elif outcome.error is not None:
            then(outcome)
        else:
            then(Outcome(_stored(path, outcome.value[0])))

    session.get(path, read)


def _stored(path: str, data: bytes) -> Stored:
    try:
        return decode(path, data)
    except ZnodeError as error:
        return error


def read_all(session: Coordination, then: Then) -> None:
    """Read all tokens; creates missing parents. The value is a dictionary from ids to `Stored`."""

    def ensured(outcome: Outcome) -> None:
        if outcome.error is not None:
            then(outcome)
        else:
            session.children(TOKENS, listed)

    def listed(outcome: Outcome) -> None:
        if outcome.error is not None:
            then(outcome)
            return
        names: list[str] = outcome.value[0]
        calls: list[Callable[[Then], object]] = [partial(read_token, session, name) for name in names]
        gather(calls, partial(all_read, names))

    def all_read(names: list[str], outcomes: list[Outcome]) -> None:
        failed = next((each for each in outcomes if each.error is not None), None)
        stored = {name: outcome.value for name, outcome in zip(names, outcomes, strict=True)}
        then(Outcome(stored) if failed is None else failed)

    ensure_nodes(session, PERSISTENT, ensured)
