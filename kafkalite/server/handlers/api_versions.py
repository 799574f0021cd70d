"""ApiVersions, key 18, v0-4: returns the served API keys and versions, which come from the dispatch table.

- An unknown version is answered in v0 with UNSUPPORTED_VERSION and the range of this key (KIP-511); see `dispatch`.
- v0-3 omit features whose minimum is 0 (KAFKA-17492); this broker reports no features.
- From v3 on a client sends the name and version of its software. Characters that Kafka rejects, because metrics are
  named after them, are rejected with INVALID_REQUEST (KIP-511, ApiVersionsRequest.isValid).
"""

import re

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.server.requests.call import PlainCall

SOFTWARE_SINCE = 3
SOFTWARE = re.compile("[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")  # of a name and of a version

ApiVersion = ApiVersionsResponse.ApiVersion


def api_versions(call: PlainCall, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Return every served key with its advertised versions."""
    if call.version >= SOFTWARE_SINCE and not all(
        map(SOFTWARE.fullmatch, (request.client_software_name, request.client_software_version))
    ):
        return ApiVersionsResponse(error_code=KafkaErrorCode.INVALID_REQUEST, api_keys=[])
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=row.api_key, min_version=row.advertised_min, max_version=row.version_max)
            for row in call.context.dispatcher.rows_on(call.connection.listener)
        ]
    )
