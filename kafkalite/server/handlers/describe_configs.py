"""DescribeConfigs, key 32, v1-4: returns the configs of resources and the source of each value (KIP-226, KIP-569)."""

from collections.abc import Generator
from functools import partial

from kafkalite.cluster.changes import RefusedError
from kafkalite.config.describe_and_alter import Setting
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kafkalite.server.configs.config_resources import TOPIC, TopicOverrides
from kafkalite.server.requests.call import ConfigCall

Resource = DescribeConfigsRequest.DescribeConfigsResource
Result = DescribeConfigsResponse.DescribeConfigsResult
Config = Result.DescribeConfigsResourceResult
ALL_KEYS = range(40)  # a resource has some 40 settings

Synonym = Config.DescribeConfigsSynonym


def describe_configs(call: ConfigCall, request: DescribeConfigsRequest) -> None:
    """Describe each resource independently; in a cluster, the configs of topics are read first."""
    topics = [resource.resource_name for resource in request.resources if resource.resource_type == TOPIC]
    call.context.configs.read_topics(topics, call.guard(partial(answer, call, request)))


def answer(call: ConfigCall, request: DescribeConfigsRequest, topics: TopicOverrides) -> None:
    """Send the configs; `topics`: those that are set on topics."""
    call.answer_from(build_response(call, request, topics), objects_of(request))


def objects_of(request: DescribeConfigsRequest) -> int:
    """Estimate the number of requested configs."""
    return sum(len(resource.configuration_keys or ALL_KEYS) for resource in request.resources)


def build_response(
    call: ConfigCall, request: DescribeConfigsRequest, topics: TopicOverrides
) -> Generator[None, None, DescribeConfigsResponse]:
    results, seen = call.elements(), set()
    for resource in request.resources:
        keys = yield from once(resource.configuration_keys)
        # Each once: a response may be thousands of times as long as the name in the request.
        key = resource.resource_type, resource.resource_name, tuple(keys)
        if key not in seen:
            seen.add(key)
            result = yield from describe(
                call, request, topics, resource, keys or None
            )  # an empty list means all, as in Kafka
            results.add(result, 1 + len(result.configs))
        yield
    return DescribeConfigsResponse(results=results.finish())


def once(keys: list[str] | None) -> Generator[None, None, list[str]]:
    """Return the keys without duplicates."""
    found: dict[str, None] = {}
    for key in keys or ():
        found[key] = None
        yield
    return list(found)


def describe(
    call: ConfigCall,
    request: DescribeConfigsRequest,
    topics: TopicOverrides,
    resource: Resource,
    keys: list[str] | None,
) -> Generator[None, None, Result]:
    """Describe the configs of one resource, one config per step.

    Arguments:
        call, request: of the client.
        topics: the configs set for topics, as stored when the request arrived.
        resource: its type and name.
        keys: names of the configs; None = all.
    """
    result = Result(
        error_code=0,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
    try:
        settings = call.context.configs.describe(resource.resource_type, resource.resource_name, keys, topics)
    except RefusedError as error:
        result.error_code, result.error_message = error.refusal.error, error.refusal.message
        return result
    for setting in settings:
        yield
        result.configs.append(config(setting, request.include_synonyms, request.include_documentation))
    return result


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
