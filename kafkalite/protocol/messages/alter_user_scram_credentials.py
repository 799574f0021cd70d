"""AlterUserScramCredentials, key 51, v0. Sets and deletes the SCRAM credentials of users (KIP-554).

Version notes: v0 only.
Source: AlterUserScramCredentialsRequest.json, AlterUserScramCredentialsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, binary, int8, int16, int32, string


class AlterUserScramCredentialsRequest(Request, key=51, versions=(0, 0), flexible=0):
    """The deletions and the new credentials."""

    class ScramCredentialDeletion(Struct):
        name: string
        mechanism: int8

    class ScramCredentialUpsertion(Struct):
        name: string
        mechanism: int8
        iterations: int32
        salt: binary
        salted_password: binary

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


class AlterUserScramCredentialsResponse(Response, key=51, versions=(0, 0), flexible=0):
    """An error per user."""

    class AlterUserScramCredentialsResult(Struct):
        user: string
        error_code: int16 = 0
        error_message: string | None

    throttle_time_ms: int32 = 0
    results: list[AlterUserScramCredentialsResult]
