"""The sessions of brokers with their coordination service, which kafkalite describes."""

from collections.abc import Collection, Iterator

from kafkalite.protocol.extensions.describe_coordination import (
    DescribeCoordinationRequest,
    DescribeCoordinationResponse,
)
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import Operation, is_address
from kafkalite_sdk.admin.outcomes import Outcomes


async def describe_outages(
    driver: Driver, brokers: Collection[int], timeout_s: float | None
) -> Outcomes[int, float | None]:
    """Describe how long the coordination service has been out of reach of brokers.

    Arguments:
        driver: sends the requests.
        brokers: ids.
        timeout_s: deadline in seconds; None = `default_api_timeout_ms`.
    """
    operation: Operation[int, float | None] = Operation(
        DescribeCoordinationRequest, lambda _: DescribeCoordinationRequest(), _outage, is_address, single=True
    )
    return await driver.run(operation, brokers, timeout_s)


def _outage(response: DescribeCoordinationResponse, keys: list[int]) -> Iterator[tuple[int, float | None]]:
    yield keys[0], None if response.suspended_ms < 0 else response.suspended_ms / 1000
