"""Nodes of delegation tokens: `/delegation_token/tokens/ID`, and a notification of each change.

Principals are sanitized, as names in paths. The HMAC of a token is computed, never stored.
Source: DelegationTokenManagerZk.scala, DelegationTokenInfoZNode (ZkData.scala), Sanitizer.java of Apache Kafka 3.9.
"""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

from kafkalite.coordination.tree import Create
from kafkalite.coordination.znodes.fields import INT64_MAX, ZnodeError, ZnodeReader, dump, parse
from kafkalite.coordination.znodes.quotas import node_name

TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"
TOKEN_CHANGE = "token_change_"
PERSISTENT = (TOKEN_CHANGES, TOKENS)  # KafkaZkClient.createDelegationTokenPaths
VERSION = 3
REQUESTER_SINCE = 3  # before, the owner has requested the token


class TokenNode(NamedTuple):
    """A token as its node has it; principals as `User:alice`, times in ms of the epoch."""

    token_id: str
    owner: str
    requester: str
    renewers: Sequence[str]
    issued_ms: int
    max_ms: int
    expiry_ms: int


def token_path(token_id: str) -> str:
    """Node of a token."""
    return f"{TOKENS}/{token_id}"


def encode_token(node: TokenNode) -> bytes:
    """The node of a token."""
    return dump(
        {
            "version": VERSION,
            "owner": node_name(node.owner),
            "tokenRequester": node_name(node.requester),
            "renewers": [node_name(each) for each in node.renewers],
            "issueTimestamp": node.issued_ms,
            "maxTimestamp": node.max_ms,
            "expiryTimestamp": node.expiry_ms,
            "tokenId": node.token_id,
        }
    )


def decode_token(path: str, data: bytes) -> TokenNode:
    """The token of a node; raises ZnodeError."""
    fields = ZnodeReader(path, parse(path, data))
    version = fields.whole("version", minimum=1, maximum=VERSION)
    owner = unquote(fields.text("owner"))
    requester = unquote(fields.text("tokenRequester")) if version >= REQUESTER_SINCE else owner
    times = [
        fields.whole(name, minimum=0, maximum=INT64_MAX)
        for name in ("issueTimestamp", "maxTimestamp", "expiryTimestamp")
    ]
    renewers = [unquote(each) for each in fields.text_list("renewers")]
    return TokenNode(fields.text("tokenId"), owner, requester, renewers, *times)


def token_change(token_id: str) -> Create:
    """The notification of a change."""
    return Create(f"{TOKEN_CHANGES}/{TOKEN_CHANGE}", token_id.encode(), sequence=True)


def decode_token_change(path: str, data: bytes) -> tuple[str]:
    """The id of the token that has changed; raises ZnodeError."""
    try:
        token_id = data.decode()
    except UnicodeDecodeError as error:
        raise ZnodeError(f"{path}: not UTF-8") from error
    if not token_id or "/" in token_id or not token_id.isprintable():
        raise ZnodeError(f"{path}: no id of a token")
    return (token_id,)
