"""CreateDelegationToken, key 38, v1-3: creates a delegation token, for the requester or for another user (KIP-373).

Any broker writes it. Renewers are users. The HMAC in the response is the password of logins with the token.

Source: KafkaApis.handleCreateTokenRequest of Apache Kafka 3.9. Deviation: the number of renewers and the length of
names are limited (INVALID_REQUEST), as a token is encoded at once; in Kafka only the size of the node is limited.
"""

from functools import partial

from kafkalite.cluster.tokens.store import DelegationTokens
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import USER, Principal, uuid_text
from kafkalite.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kafkalite.server.requests.call import TokenCall
from kafkalite.server.requests.token_requests import refusal_of_connection, requester_of
from kafkalite.state.authorizer.acls import AclOperation, AclResourceType
from kafkalite.state.delegation_tokens import Change, Token, create

RENEWERS_MAX = 1_000
NAMES_CHARACTERS_MAX = 100_000  # of a token; 10 ms to encode


def create_delegation_token(call: TokenCall, request: CreateDelegationTokenRequest) -> None:
    """Create a token; the response is sent when it is durable."""
    requester = requester_of(call.connection)
    owner = owner_of(request) or requester
    refusal = refusal_of(call, owner, request)
    if refusal is not None:
        call.answer(response_of(owner, requester, refusal))
        return
    tokens, context = call.context.tokens, call.context
    assert tokens is not None
    renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
    token_id = uuid_text(context.random.uuid())
    lifetime_ms, now_ms = request.max_lifetime_ms, context.clock.wall_ms()
    token = create(token_id, owner, requester, renewers, lifetime_ms, tokens.times, now_ms)
    tokens.create(token, call.guard(partial(answer, call, tokens, token)))


def owner_of(request: CreateDelegationTokenRequest) -> Principal | None:
    """Return the owner that a request names."""
    if not request.owner_principal_name:
        return None
    return Principal(request.owner_principal_type or USER, request.owner_principal_name)


def refusal_of(call: TokenCall, owner: Principal, request: CreateDelegationTokenRequest) -> KafkaErrorCode | None:
    """Return why a token is not created, in the order of Kafka's checks."""
    refusal = refusal_of_connection(call.connection)
    if refusal is not None:
        return refusal
    if is_too_large(request):
        return KafkaErrorCode.INVALID_REQUEST
    if owner != requester_of(call.connection) and not may_create_for(call, owner):
        return KafkaErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if any(each.principal_type != USER for each in request.renewers):
        return KafkaErrorCode.INVALID_PRINCIPAL_TYPE
    return KafkaErrorCode.DELEGATION_TOKEN_AUTH_DISABLED if call.context.tokens is None else None


def is_too_large(request: CreateDelegationTokenRequest) -> bool:
    """Return whether a token would have too many renewers, or too long names."""
    if len(request.renewers) > RENEWERS_MAX:
        return True
    owner = len(request.owner_principal_type or "") + len(request.owner_principal_name or "")
    return owner + sum(len(each.principal_name) for each in request.renewers) > NAMES_CHARACTERS_MAX


def may_create_for(call: TokenCall, owner: Principal) -> bool:
    """Return whether the requester may create tokens of another owner."""
    authorization = call.authorization
    if authorization is None:
        return True
    return authorization.allows(AclOperation.CREATE_TOKENS, AclResourceType.USER, str(owner))


def answer(call: TokenCall, tokens: DelegationTokens, token: Token, change: Change) -> None:
    """Send the token, or the error."""
    response = response_of(token.owner, token.requester, change.error)
    if not change.error:
        response.issue_timestamp_ms, response.max_timestamp_ms = token.issued_ms, token.max_ms
        response.expiry_timestamp_ms = token.expiry_ms
        response.token_id, response.hmac = token.token_id, tokens.hmac_of(token)
    call.answer(response)


def response_of(owner: Principal, requester: Principal, error: int) -> CreateDelegationTokenResponse:
    """Return a response without a token."""
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
    )
