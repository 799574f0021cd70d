"""DescribeConfigs, key 32, v1-4. The configuration of topics, brokers and other resources.

Version notes: v1 synonyms (KIP-226); v3 types and documentation (KIP-569); v4 flexible.
Source: DescribeConfigsRequest.json, DescribeConfigsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, field, int8, int16, int32, string


class DescribeConfigsRequest(Request, key=32, versions=(1, 4), flexible=4):
    """Resources and the requested keys."""

    class DescribeConfigsResource(Struct):
        resource_type: int8
        resource_name: string
        configuration_keys: list[string] | None

    resources: list[DescribeConfigsResource]
    include_synonyms: boolean = False
    include_documentation: boolean = field(since=3, default=False)


class DescribeConfigsResponse(Response, key=32, versions=(1, 4), flexible=4):
    """Values with their sources."""

    class DescribeConfigsResult(Struct):
        class DescribeConfigsResourceResult(Struct):
            class DescribeConfigsSynonym(Struct):
                name: string
                value: string | None
                source: int8

            name: string
            value: string | None
            read_only: boolean
            config_source: int8 = -1
            is_sensitive: boolean
            synonyms: list[DescribeConfigsSynonym]
            config_type: int8 = field(since=3, default=0)
            documentation: string | None = field(since=3, default="")

        error_code: int16 = 0
        error_message: string | None
        resource_type: int8
        resource_name: string
        configs: list[DescribeConfigsResourceResult]

    throttle_time_ms: int32 = 0
    results: list[DescribeConfigsResult]
