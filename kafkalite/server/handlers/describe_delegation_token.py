"""DescribeDelegationToken, key 41, v1-3: the delegation tokens that the requester may see, with their HMACs.

A principal sees the tokens that it owns or renews, and those that ACLs show it: by Describe on the token, or by
DescribeTokens on the owner (KIP-373).

Source: KafkaApis.handleDescribeTokensRequest of Apache Kafka 3.9.
"""

from collections.abc import Generator

from kafkalite.cluster.tokens.store import DelegationTokens
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Principal
from kafkalite.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kafkalite.server.requests.call import TokenCall
from kafkalite.server.requests.token_requests import requester_of, tokens_for
from kafkalite.state.authorizer.acls import AclOperation, AclResourceType
from kafkalite.state.delegation_tokens import Token, may_see

Response = DescribeDelegationTokenResponse
Described = Response.DescribedDelegationToken
Named = list[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None
DESCRIBE, DESCRIBE_TOKENS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_TOKENS


def describe_delegation_token(call: TokenCall, request: DescribeDelegationTokenRequest) -> None:
    """Describe the tokens of all or of some owners; an empty list of owners has no token."""
    tokens = tokens_for(call.connection, call.context.tokens)
    if isinstance(tokens, KafkaErrorCode):
        call.answer(Response(error_code=tokens, tokens=[]))
        return
    call.answer_from(build_response(call, tokens, request.owners), len(request.owners or ()) + len(tokens.all()))


def build_response(call: TokenCall, tokens: DelegationTokens, named: Named) -> Generator[None, None, Response]:
    authorization, requester = call.authorization, requester_of(call.connection)
    owners: set[Principal] | None = None if named is None else set()
    for owner in named or ():
        assert owners is not None
        owners.add(Principal(owner.principal_type, owner.principal_name))
        yield

    def is_allowed(token: Token) -> bool:
        return authorization is None or (
            authorization.allows(DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id, log_denied=False)
            or authorization.allows(DESCRIBE_TOKENS, AclResourceType.USER, str(token.owner), log_denied=False)
        )

    described = call.elements()
    for token in list(tokens.all()):
        if may_see(token, requester, owners, is_allowed):
            described.add(description(token, tokens.hmac_of(token)), 1 + len(token.renewers))
        yield
    return Response(tokens=described.finish())


def description(token: Token, token_hmac: bytes) -> Described:
    """Describe one token."""
    renewer = Described.DescribedDelegationTokenRenewer
    return Described(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=token_hmac,
        renewers=[renewer(principal_type=each.type, principal_name=each.name) for each in token.renewers],
    )
