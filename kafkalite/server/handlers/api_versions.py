"""ApiVersions, key 18, v0-4. Which requests this broker serves, in which versions; derived from the dispatch table.

An unknown version is answered in v0 with error 35 and the range of this key alone (KIP-511); `dispatch` sees to that.
In v0-3 features whose minimum is 0 are left out (KAFKA-17492); we announce none.
From v3 on a client names its software and that one's version; names that Kafka would not take (metrics are named
after them) are INVALID_REQUEST (KIP-511, ApiVersionsRequest.isValid).
"""

import re

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.server.call import PlainCall

SOFTWARE_SINCE = 3
SOFTWARE = re.compile("[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")  # of a name and of a version

ApiVersion = ApiVersionsResponse.ApiVersion


def api_versions(call: PlainCall, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """List every served key with the range that is advertised for it."""
    if call.version >= SOFTWARE_SINCE and not all(
        map(SOFTWARE.fullmatch, (request.client_software_name, request.client_software_version))
    ):
        return ApiVersionsResponse(error_code=KafkaErrorCode.INVALID_REQUEST, api_keys=[])
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=row.api_key, min_version=row.advertised_min, max_version=row.version_max)
            for row in call.context.dispatcher.rows
        ]
    )
