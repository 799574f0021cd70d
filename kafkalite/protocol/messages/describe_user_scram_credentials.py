"""DescribeUserScramCredentials, key 50, v0. Lists the SCRAM mechanisms and iterations of users (KIP-554).

Version notes: v0 only.
Source: DescribeUserScramCredentialsRequest.json, DescribeUserScramCredentialsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, int8, int16, int32, string


class DescribeUserScramCredentialsRequest(Request, key=50, versions=(0, 0), flexible=0):
    """The users; null or none = all."""

    class UserName(Struct):
        name: string

    users: list[UserName] | None


class DescribeUserScramCredentialsResponse(Response, key=50, versions=(0, 0), flexible=0):
    """The credentials of each user, without secrets."""

    class DescribeUserScramCredentialsResult(Struct):
        class CredentialInfo(Struct):
            mechanism: int8
            iterations: int32

        user: string
        error_code: int16 = 0
        error_message: string | None
        credential_infos: list[CredentialInfo]

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None
    results: list[DescribeUserScramCredentialsResult]
