"""ApiVersions, key 18, v0-4. Lists the requests that a broker serves, with their versions.

Version notes: v3 client software and features (KIP-511, KIP-584); v4 features may have minimum 0 (KIP-1022). The
response header always has version 0, as the client does not know the versions yet.
Source: ApiVersionsRequest.json, ApiVersionsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import NEVER, Request, Response, Struct, boolean, field, int16, int32, int64, string


class ApiVersionsRequest(Request, key=18, versions=(0, 4), flexible=3):
    """The first request of a connection."""

    client_software_name: string = field(since=3, default="")
    client_software_version: string = field(since=3, default="")


class ApiVersionsResponse(Response, key=18, versions=(0, 4), flexible=3, header_flexible=NEVER):
    """The served keys with their ranges; an unknown request version is answered by v0 with UNSUPPORTED_VERSION."""

    class ApiVersion(Struct):
        api_key: int16
        min_version: int16
        max_version: int16

    class SupportedFeatureKey(Struct):
        name: string
        min_version: int16
        max_version: int16

    class FinalizedFeatureKey(Struct):
        name: string
        max_version_level: int16
        min_version_level: int16

    error_code: int16 = 0
    api_keys: list[ApiVersion]
    throttle_time_ms: int32 = field(since=1, default=0)
    supported_features: list[SupportedFeatureKey] = field(since=3, tag=0, factory=list)
    finalized_features_epoch: int64 = field(since=3, tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(since=3, tag=2, factory=list)
    zk_migration_ready: boolean = field(since=3, tag=3, default=False)
