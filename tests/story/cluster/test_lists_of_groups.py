"""Lists of groups that other brokers take long to answer delay neither other clients nor other requests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.extensions.list_groups_plus import ListGroupsPlusRequest
from kafkalite.server.requests.api import ROWS
from kafkalite.server.requests.call import GroupCall
from kafkalite.testing.simulated_cluster import PORT, SimulatedCluster, host_of
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.members import create
from tests.story.cluster.test_groups_of_any_broker import all_created, simulate
from tests.story.cluster.test_three_brokers import BROKERS, Client

LISTS = 40
BUSY = 1  # the broker that does not answer lists


class HeldLists:
    """The lists that the busy broker has received from others and not answered."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.waiting: list[tuple[GroupCall, ListGroupsPlusRequest]] = []
        self.most = self.received = 0
        row = next(row for row in ROWS if row.api_key == ListGroupsPlusRequest.api_key).load()
        self._answer = row.handler
        patch.setattr(row, "handler", self._hold)

    def _hold(self, call: GroupCall, request: ListGroupsPlusRequest) -> Any:
        if call.context.broker_id != BUSY or not request.coordinator_only:
            return self._answer(call, request)
        self.waiting.append((call, request))
        self.received += 1
        self.most = max(self.most, len(self.waiting))
        return None

    def answer_one(self) -> None:
        """Answer the list that has waited longest."""
        self._answer(*self.waiting.pop(0))


def test_pipelined_lists_of_one_client_do_not_delay_a_group_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        coordinators = await all_created(client, cluster)
        other = next(each for each in range(1, BROKERS + 1) if each != BUSY)
        group = next(name for name, broker_id in coordinators.items() if broker_id == BUSY)
        held = HeldLists(monkeypatch)
        async with ClientConnection(host_of(other), PORT, timeout_s=60.0, dial=client.network.dial) as lister:
            lists = [asyncio.ensure_future(lister.call(ListGroupsPlusRequest(groups=[]))) for _ in range(LISTS)]
            while not held.waiting:
                await pass_time(0.01)
            began = asyncio.get_running_loop().time()
            assert (await client.call(other, create(group, "orders"), 0)).error_code == 0
            assert asyncio.get_running_loop().time() - began < 0.1, "virtual seconds: it waits for no list"
            assert held.received == held.most == 1, "the connection of the client is paused"
            while held.waiting:
                held.answer_one()
                await pass_time(0.1)
            for response in await asyncio.gather(*lists):
                assert [each.error_code for each in response.groups] == [0] * len(coordinators)
            assert (held.received, held.most) == (LISTS, 1)

    simulate(tmp_path, scenario)


def test_lists_of_many_clients_reach_a_broker_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await all_created(client, cluster)
        other = next(each for each in range(1, BROKERS + 1) if each != BUSY)
        held = HeldLists(monkeypatch)
        lists = [asyncio.ensure_future(client.call(other, ListGroupsPlusRequest(groups=[]), 0)) for _ in range(5)]
        while not held.waiting:
            await pass_time(0.01)
        await pass_time(1.0)
        assert held.received == 1
        held.answer_one()
        await pass_time(0.1)
        assert held.received == 2
        missing = [
            [each.error_code for each in one.groups if not each.group_id] for one in await asyncio.gather(*lists)
        ]
        assert sorted(missing) == [[], *[[Error.REQUEST_TIMED_OUT]] * 4], "the limit includes the wait"

    simulate(tmp_path, scenario)
