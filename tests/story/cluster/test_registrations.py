"""A broker leads only what the controller has assigned to its current registration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import KafkaConnectionError
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.server.hosting.controller_requests import ControllerRequests
from kafkalite.server.running.registered_broker import RegisteredBroker
from kafkalite.testing.simulated_cluster import SimulatedCluster
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.test_three_brokers import Client, led, run, until

TOPIC = "orders"


class HeldAssignments:
    """LeaderAndIsr requests to one broker, which are not applied before `release`."""

    def __init__(self, patch: pytest.MonkeyPatch, requests: ControllerRequests) -> None:
        self.held: list[tuple[Any, Any]] = []
        self._apply = requests.leader_and_isr
        self._patch = patch
        self._requests = requests
        patch.setattr(requests, "leader_and_isr", lambda request, then: self.held.append((request, then)))

    def release(self) -> None:
        self._patch.setattr(self._requests, "leader_and_isr", self._apply)
        for request, then in self.held:
            self._apply(request, then)


async def answered(client: Client, broker_id: int, partition: int, value: bytes) -> int:
    """The error code of a produce request, once the broker accepts connections."""

    async def produced() -> int | None:
        try:
            return await client.produce(broker_id, TOPIC, partition, value)
        except KafkaConnectionError:
            return None

    found: int = await until(produced)
    return found


def test_broker_that_registers_again_leads_nothing_before_it_is_assigned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        controller = await client.controller(1, 2, 3)
        await client.create(controller, TOPIC)
        leaders = await led(client, controller, TOPIC, 6)
        other = controller % 3 + 1
        partition = next(each for each, leader in leaders.items() if leader == other)
        assert await client.produce(other, TOPIC, partition, b"before") == 0
        running = cluster.brokers[other].running
        assert isinstance(running, RegisteredBroker)
        held = HeldAssignments(monkeypatch, running.controller_requests)
        cluster.expire(other)
        while not running.participant.session.lost:
            await pass_time(0.001)
        for _ in range(3):
            assert await answered(client, other, partition, b"refused") == Error.NOT_LEADER_OR_FOLLOWER
        held.release()

        async def accepted() -> bool | None:
            return await client.produce(other, TOPIC, partition, b"after") == 0 or None

        await until(accepted)
        assert await client.values(other, TOPIC, partition) == [b"before", b"after"]

    run(tmp_path, scenario)
