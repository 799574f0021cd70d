"""Changes configs for AlterConfigs (key 33) and IncrementalAlterConfigs (key 44): each resource independently.

A resource that occurs twice in a request is not changed. Source: ConfigAdminManager.preprocess.
"""

from collections import defaultdict
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

from kafkalite.callbacks import FanIn
from kafkalite.cluster.changes import Refusal
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.alter_configs import AlterConfigsResponse
from kafkalite.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from kafkalite.server.requests.call import PlainCall

Response = TypeVar("Response", AlterConfigsResponse, IncrementalAlterConfigsResponse)
OBJECTS_EACH = 10  # an alteration takes some 100 us
Alter = Callable[[Any, Callable[[Refusal | None], None]], None]


def alter_each(call: PlainCall, response: type[Response], resources: list[Any], alter: Alter) -> None:
    """Change each resource; the response is sent when all changes are durable.

    Arguments:
        call: the request.
        response: the class of the response.
        resources: of the request, in the order of the response.
        alter: changes one resource and calls back with the result.
    """
    outcomes = FanIn(len(resources), call.guard(partial(answer, call, response, resources)))
    call.in_slices(
        alter_steps(resources, alter, outcomes), OBJECTS_EACH * len(resources), lambda _none: None, changes=True
    )


def alter_steps(resources: list[Any], alter: Alter, outcomes: FanIn[Refusal | None]) -> Generator[None, None, None]:
    times: dict[tuple[int, str], int] = defaultdict(int)
    for resource in resources:
        times[identity(resource)] += 1
        yield
    for at, resource in enumerate(resources):
        if times[identity(resource)] > 1:
            outcomes.put(at, Refusal(KafkaErrorCode.INVALID_REQUEST, "Each resource must appear at most once."))
        else:
            alter(resource, partial(outcomes.put, at))
        yield


def identity(resource: Any) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def answer(call: PlainCall, response: type[Response], resources: list[Any], outcomes: list[Refusal | None]) -> None:
    """Send the result of each resource."""
    call.answer_from(build_response(call, response, resources, outcomes), len(resources))


def build_response(
    call: PlainCall, response: type[Response], resources: list[Any], outcomes: list[Refusal | None]
) -> Generator[None, None, Response]:
    responses = call.elements()
    for resource, refusal in zip(resources, outcomes, strict=True):
        responses.add(
            response.AlterConfigsResourceResponse(
                error_code=refusal.error if refusal else 0,
                error_message=refusal.message if refusal else None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
        yield
    return response(responses=responses.finish())
