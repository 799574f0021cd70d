"""ExpireDelegationToken, key 40, v1-2. Sets the expiry of a delegation token, or removes it (KIP-48).

Version notes: v2 flexible.
Source: ExpireDelegationTokenRequest.json, ExpireDelegationTokenResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, binary, int16, int32, int64


class ExpireDelegationTokenRequest(Request, key=40, versions=(1, 2), flexible=2):
    """The HMAC of the token, and the period from now on; a negative one removes the token."""

    hmac: binary
    expiry_time_period_ms: int64


class ExpireDelegationTokenResponse(Response, key=40, versions=(1, 2), flexible=2):
    """When the token expires; -1 after an error."""

    error_code: int16 = 0
    expiry_timestamp_ms: int64 = -1
    throttle_time_ms: int32 = 0
