"""ListConfigResources, key 74, v0-1: returns the names of the resources that can have configs (KIP-1142).

v0 asks for client metrics (KIP-714), which this broker does not have. Topics, brokers and their loggers are listed
whether or not they have configs, as in Kafka, groups only if they have some.
"""

from collections.abc import Callable, Generator, Iterable

from kafkalite.config.resource_types import ResourceType
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from kafkalite.server.requests.call import AdminCall

TYPED_SINCE = 1

Resource = ListConfigResourcesResponse.ConfigResource


def list_config_resources(call: AdminCall, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse | None:
    """List the resources of the requested types, of all types if none is requested."""
    types = list(dict.fromkeys(request.resource_types)) or list(NAMES)
    if call.version < TYPED_SINCE:
        types = [ResourceType.CLIENT_METRICS]
    if any(each not in NAMES for each in types):
        return ListConfigResourcesResponse(error_code=KafkaErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    named = [(each, list(NAMES[each](call))) for each in types]
    call.answer_from(build_response(call, named), sum(len(names) for _, names in named))
    return None


def build_response(
    call: AdminCall, named: Iterable[tuple[int, list[str]]]
) -> Generator[None, None, ListConfigResourcesResponse]:
    resources = call.elements()
    for kind, names in named:
        for name in names:
            resources.add(Resource(resource_name=name, resource_type=kind))
            yield
    return ListConfigResourcesResponse(config_resources=resources.finish())


def brokers(call: AdminCall) -> list[str]:
    """The ids of the live brokers."""
    return [str(node.broker_id) for node in call.context.nodes(call.context.image, call.connection)]


NAMES: dict[int, Callable[[AdminCall], Iterable[str]]] = {
    ResourceType.TOPIC: lambda call: call.context.image.topics,
    ResourceType.BROKER: brokers,
    ResourceType.BROKER_LOGGER: brokers,
    ResourceType.CLIENT_METRICS: lambda _call: (),
    ResourceType.GROUP: lambda call: sorted(call.context.group_configs),
}
