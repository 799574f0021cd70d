"""DescribeConfigs, key 32, v1-4. The settings of topics and brokers, with where each value comes from (KIP-226,
KIP-569).
"""

from kafkalite.cluster.topics import RefusedError
from kafkalite.config.dynamic import Setting
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kafkalite.server.call import Call

Resource = DescribeConfigsRequest.DescribeConfigsResource
Result = DescribeConfigsResponse.DescribeConfigsResult
Config = Result.DescribeConfigsResourceResult
Synonym = Config.DescribeConfigsSynonym


def describe_configs(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe every resource by itself."""
    # Each once: an answer may be thousands of times as long as the name that asks for it.
    asked = {
        (resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ())): resource
        for resource in request.resources
    }
    return DescribeConfigsResponse(results=[describe(call, request, resource) for resource in asked.values()])


def describe(call: Call, request: DescribeConfigsRequest, resource: Resource) -> Result:
    keys = resource.configuration_keys or None  # Kafka takes an empty list for all, too
    try:
        settings = call.broker.configs.describe(resource.resource_type, resource.resource_name, keys)
    except RefusedError as error:
        return Result(
            error_code=error.refusal.error,
            error_message=error.refusal.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
    return Result(
        error_code=0,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[config(setting, request.include_synonyms, request.include_documentation) for setting in settings],
    )


def config(setting: Setting, with_synonyms: bool, with_documentation: bool) -> Config:
    synonyms = setting.synonyms if with_synonyms else ()
    return Config(
        name=setting.name,
        value=setting.value,
        read_only=setting.read_only,
        config_source=setting.source,
        is_sensitive=setting.sensitive,
        synonyms=[Synonym(name=name, value=value, source=source) for name, value, source in synonyms],
        config_type=setting.type,
        documentation=setting.doc if with_documentation else None,
    )
