"""RenewDelegationToken, key 39, v1-2. Moves the expiry of a delegation token (KIP-48).

Version notes: v2 flexible.
Source: RenewDelegationTokenRequest.json, RenewDelegationTokenResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, binary, int16, int32, int64


class RenewDelegationTokenRequest(Request, key=39, versions=(1, 2), flexible=2):
    """The HMAC of the token, and the period from now on; a negative one is that of the broker."""

    hmac: binary
    renew_period_ms: int64


class RenewDelegationTokenResponse(Response, key=39, versions=(1, 2), flexible=2):
    """When the token expires; -1 after an error."""

    error_code: int16 = 0
    expiry_timestamp_ms: int64 = -1
    throttle_time_ms: int32 = 0
