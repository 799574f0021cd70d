"""Groups of a broker that has only just begun."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.cli.failure import Failure
from kafkalite.cli.group import client
from kafkalite.cli.group.client import BEGINNING, GroupClient
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkalite.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


class StartingBroker:
    """Answers with each of these errors, then without one."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)

    async def call(self, request: Any) -> Any:
        error = self.errors.pop(0) if self.errors else 0
        if isinstance(request, FindCoordinatorRequest):
            coordinator = FindCoordinatorResponse.Coordinator(key="g", node_id=1, host="h", port=1, error_code=error)
            return FindCoordinatorResponse(coordinators=[coordinator])
        if isinstance(request, DescribeGroupsRequest):
            return DescribeGroupsResponse(groups=[DescribeGroupsResponse.DescribedGroup(error_code=error)])
        assert isinstance(request, ListGroupsRequest)
        return ListGroupsResponse(error_code=error, groups=[])


def of(broker: StartingBroker) -> GroupClient:
    async def brokers() -> dict[int, StartingBroker]:
        return {1: broker}

    async def only(*_: object) -> StartingBroker:
        return broker

    leaders: Any = SimpleNamespace(first=broker, brokers=brokers, broker=only)
    return GroupClient(leaders)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSE_S", 0)


async def test_request_is_retried_until_the_coordinator_has_loaded() -> None:
    broker = StartingBroker(*BEGINNING, 0, *BEGINNING, *BEGINNING)
    assert await of(broker).coordinator("g") is broker
    assert broker.errors == []
    broker.errors = list(BEGINNING)
    assert await of(broker).listed((), ()) == []


async def test_wait_for_the_coordinator_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BEGINNING_S", 0)
    with pytest.raises(Failure, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await of(StartingBroker(Error.COORDINATOR_LOAD_IN_PROGRESS)).listed((), ())
