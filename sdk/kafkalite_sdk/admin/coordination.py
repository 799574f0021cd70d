"""The sessions of brokers with their coordination service, which kafkalite describes."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kafkalite.protocol.extensions.describe_coordination import (
    DescribeCoordinationRequest,
    DescribeCoordinationResponse,
)
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import Operation, is_address
from kafkalite_sdk.admin.outcomes import Outcomes


class InvalidTreeNode(NamedTuple):
    """A node of the coordination service that a broker leaves out, and what is wrong with it."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Coordination:
    """A broker and its coordination service.

    Attributes:
        outage_s: for how many seconds the service has been out of reach, None = it is connected.
        invalid_nodes: nodes of the tree whose contents or names are invalid, sorted by path, at most 1,000. The
            controller names all of them, any broker names `/controller_epoch` while it prevents an election.
        invalid_node_count: their number, at most 10,000.
        pending_isr_changes: number of changes of in-sync replicas that the broker has requested, without a result.
        replica_lag: the largest number of records that a replica of the broker is behind its leader's high watermark;
            None = unknown.
    """

    outage_s: float | None
    invalid_nodes: tuple[InvalidTreeNode, ...]
    invalid_node_count: int
    pending_isr_changes: int
    replica_lag: int | None


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
    lag = None if response.replica_lag < 0 else response.replica_lag
    yield keys[0], Coordination(outage_s, nodes, response.invalid_node_count, response.pending_isr_changes, lag)
