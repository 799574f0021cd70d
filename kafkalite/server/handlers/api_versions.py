"""ApiVersions, key 18, v0-4. Which requests this broker serves, in which versions; derived from the dispatch table.

An unknown version is answered in v0 with error 35 and the range of this key alone (KIP-511); `dispatch` sees to that.
In v0-3 features whose minimum is 0 are left out (KAFKA-17492); we announce none.
"""

from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.server.call import Call

ApiVersion = ApiVersionsResponse.ApiVersion


def api_versions(call: Call, _request: ApiVersionsRequest) -> ApiVersionsResponse:
    """List every served key with the range that is advertised for it."""
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=row.api_key, min_version=row.advertised_min, max_version=row.version_max)
            for row in call.broker.dispatcher.rows
        ]
    )
