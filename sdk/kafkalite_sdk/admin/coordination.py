"""The sessions of brokers with their coordination service, which kafkalite describes."""

from collections.abc import Collection, Iterator

from kafkalite.protocol.extensions.describe_coordination import (
    DescribeCoordinationRequest,
    DescribeCoordinationResponse,
)
from kafkalite_sdk.admin.cluster import Coordination, InvalidTreeNode
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import Operation, is_address
from kafkalite_sdk.admin.outcomes import Outcomes


async def describe_coordination(
    driver: Driver, brokers: Collection[int], timeout_s: float | None
) -> Outcomes[int, Coordination]:
    """Describe the sessions of brokers, and the nodes that they leave out.

    Arguments:
        driver: sends the requests.
        brokers: ids.
        timeout_s: deadline in seconds; None = `default_api_timeout_ms`.
    """
    operation: Operation[int, Coordination] = Operation(
        DescribeCoordinationRequest, lambda _: DescribeCoordinationRequest(), _described, is_address, single=True
    )
    return await driver.run(operation, brokers, timeout_s)


def _described(response: DescribeCoordinationResponse, keys: list[int]) -> Iterator[tuple[int, Coordination]]:
    outage_s = None if response.suspended_ms < 0 else response.suspended_ms / 1000
    nodes = tuple(InvalidTreeNode(each.path, each.reason) for each in response.invalid_nodes)
    yield keys[0], Coordination(outage_s, nodes, response.invalid_node_count)
