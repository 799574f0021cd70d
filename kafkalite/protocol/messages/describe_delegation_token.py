"""DescribeDelegationToken, key 41, v1-3. Lists the delegation tokens that a principal may see (KIP-48).

Version notes: v2 flexible; v3 requester (KIP-373).
Source: DescribeDelegationTokenRequest.json, DescribeDelegationTokenResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, binary, field, int16, int32, int64, string


class DescribeDelegationTokenRequest(Request, key=41, versions=(1, 3), flexible=2):
    """The owners, null = all."""

    class DescribeDelegationTokenOwner(Struct):
        principal_type: string
        principal_name: string

    owners: list[DescribeDelegationTokenOwner] | None


class DescribeDelegationTokenResponse(Response, key=41, versions=(1, 3), flexible=2):
    """The tokens with their HMACs."""

    class DescribedDelegationToken(Struct):
        class DescribedDelegationTokenRenewer(Struct):
            principal_type: string
            principal_name: string

        principal_type: string
        principal_name: string
        token_requester_principal_type: string = field(since=3, default="")
        token_requester_principal_name: string = field(since=3, default="")
        issue_timestamp: int64
        expiry_timestamp: int64
        max_timestamp: int64
        token_id: string
        hmac: binary
        renewers: list[DescribedDelegationTokenRenewer]

    error_code: int16 = 0
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: int32 = 0
