"""UpdateFeatures, key 57, v0-2. Changes the finalized versions of cluster features (KIP-584).

Version notes: v1 upgrade type and validate only (KIP-778); v2 no result per feature.
Source: UpdateFeaturesRequest.json, UpdateFeaturesResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, field, int8, int16, int32, string


class UpdateFeaturesRequest(Request, key=57, versions=(0, 2), flexible=0):
    """The new version of each feature."""

    class FeatureUpdateKey(Struct):
        feature: string
        max_version_level: int16
        allow_downgrade: boolean = field(until=0)
        upgrade_type: int8 = field(since=1, default=1)

    timeout_ms: int32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: boolean = field(since=1, default=False)


class UpdateFeaturesResponse(Response, key=57, versions=(0, 2), flexible=0):
    """The error; in v0-1 also per feature."""

    class UpdatableFeatureResult(Struct):
        feature: string
        error_code: int16 = 0
        error_message: string | None

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None
    results: list[UpdatableFeatureResult] = field(until=1)
