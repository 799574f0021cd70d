"""ApiVersions, key 18, v0-4: returns the served API keys and versions, which come from the dispatch table.

- An unknown version is answered in v0 with UNSUPPORTED_VERSION and the range of this key (KIP-511); see `dispatch`.
- v3-4 report the supported and the finalized features. v3 omits supported ones whose lowest level is 0, which clients
  before KAFKA-17492 reject; so does Kafka. A finalized level of 0 is that of a feature that is not finalized.
- From v3 on a client sends the name and version of its software. Characters that Kafka rejects, because metrics are
  named after them, are rejected with INVALID_REQUEST (KIP-511, ApiVersionsRequest.isValid).
"""

import re

from kafkalite.cluster.metadata.image import SUPPORTED_FEATURES
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.server.requests.call import PlainCall

SOFTWARE_SINCE = 3
SOFTWARE = re.compile("[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")  # of a name and of a version

ApiVersion = ApiVersionsResponse.ApiVersion
Supported = ApiVersionsResponse.SupportedFeatureKey
Finalized = ApiVersionsResponse.FinalizedFeatureKey
LEVEL_0_SINCE = 4


def api_versions(call: PlainCall, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Return every served key with its advertised versions."""
    if call.version >= SOFTWARE_SINCE and not all(
        map(SOFTWARE.fullmatch, (request.client_software_name, request.client_software_version))
    ):
        return ApiVersionsResponse(error_code=KafkaErrorCode.INVALID_REQUEST, api_keys=[])
    features = call.context.features
    return ApiVersionsResponse(
        supported_features=[
            Supported(name=name, min_version=first, max_version=last)
            for name, (first, last) in SUPPORTED_FEATURES.items()
            if first or call.version >= LEVEL_0_SINCE
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            Finalized(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.levels.items()
            if level and features.epoch >= 0
        ],
        api_keys=[
            ApiVersion(api_key=row.api_key, min_version=row.advertised_min, max_version=row.version_max)
            for row in call.context.dispatcher.rows_on(call.connection.listener)
        ],
    )
