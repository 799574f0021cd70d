"""CreateDelegationToken, key 38, v1-3. Creates a delegation token (KIP-48).

Version notes: v2 flexible; v3 owner and requester (KIP-373).
Source: CreateDelegationTokenRequest.json, CreateDelegationTokenResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, binary, field, int16, int32, int64, string


class CreateDelegationTokenRequest(Request, key=38, versions=(1, 3), flexible=2):
    """The owner, null = the requester; the renewers and the longest lifetime, -1 = that of the broker."""

    class CreatableRenewers(Struct):
        principal_type: string
        principal_name: string

    owner_principal_type: string | None = field(since=3, default=None)
    owner_principal_name: string | None = field(since=3, default=None)
    renewers: list[CreatableRenewers]
    max_lifetime_ms: int64


class CreateDelegationTokenResponse(Response, key=38, versions=(1, 3), flexible=2):
    """The token with its HMAC, which is the password of logins; times are -1 after an error."""

    error_code: int16 = 0
    principal_type: string
    principal_name: string
    token_requester_principal_type: string = field(since=3, default="")
    token_requester_principal_name: string = field(since=3, default="")
    issue_timestamp_ms: int64 = -1
    expiry_timestamp_ms: int64 = -1
    max_timestamp_ms: int64 = -1
    token_id: string = ""
    hmac: binary = b""
    throttle_time_ms: int32 = 0
