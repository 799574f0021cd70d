"""Which requests of controllers a broker accepts, from whom, and how many of them wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafkalite.cluster.controller.fence import ControllerFence
from kafkalite.errors import KafkaConnectionError
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.extensions.create_group import CreateGroupRequest
from kafkalite.protocol.extensions.list_groups_plus import ListGroupsPlusRequest
from kafkalite.protocol.schema import Request
from kafkalite.server.hosting.controller_requests import WAITING_MAX
from tests.kit.controlled import Cluster
from tests.story.server.test_cluster_partitions import apply, error_of, hosted


@pytest.mark.parametrize("kind", ["update_metadata", "leader_and_isr", "stop_replica"])
async def test_request_for_an_earlier_registration_is_rejected_until_the_broker_has_registered(
    tmp_path: Path, kind: str
) -> None:
    """A controller repeats a request of before a power failure while the restarted broker is not registered yet."""
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1})
        cluster[1].controller_requests.fence = ControllerFence()
        late = getattr(cluster, kind)(1, *(("t", 0) if kind == "stop_replica" else ()))
        for late.broker_epoch in (cluster.brokers[1].epoch - 1, cluster.brokers[1].epoch, -1):
            assert (await apply(cluster, 1, late)).error_code == Error.STALE_BROKER_EPOCH
        assert not list(cluster[1].replicas) and not cluster[1].image.topics


async def test_controller_epoch_above_that_of_the_tree_is_rejected_and_does_not_fence_the_controller(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        tree = cluster.brokers[1].controller_epochs
        tree.epoch = 1
        cluster.assign("t", {0: 1})
        await cluster.send()
        assert tree.reads == 1, "only a new epoch is compared with the tree"
        cluster.controller_epoch = 2**31 - 1
        stop = cluster.stop_replica(1, "t", 0, delete=True)
        assert (await apply(cluster, 1, stop)).error_code == Error.STALE_CONTROLLER_EPOCH
        assert error_of(cluster, 1, "t") == 0
        cluster.controller_epoch = tree.epoch = 2
        cluster.assign("t", {0: 1})
        await cluster.send()
        assert hosted(cluster, 1, "t").leader_epoch == 1


async def test_repeats_of_a_request_that_waits_for_configs_are_bounded(tmp_path: Path) -> None:
    """While the coordination service does not answer, the controller gives up each request, and repeats it."""
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1})
        cluster.brokers[1].configs.held = True
        answers = [asyncio.ensure_future(apply(cluster, 1, cluster.leader_and_isr(1))) for _ in range(WAITING_MAX + 6)]
        refused = [(await answers.pop()).error_code for _ in range(5)]
        assert refused == [Error.REQUEST_TIMED_OUT] * 5
        assert not any(each.done() for each in answers)
        cluster.brokers[1].configs.release()
        assert {(await each).error_code for each in answers} == {0}
        assert error_of(cluster, 1, "t") == 0


# Listeners.

PROTOCOLS = "EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT"
TWO_LISTENERS = {
    "listeners": "EXTERNAL://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    "listener_security_protocol_map": PROTOCOLS,
    "inter_broker_listener_name": "INTERNAL",
}


@asynccontextmanager
async def connection(cluster: Cluster, listener: str) -> AsyncIterator[ClientConnection]:
    (endpoint,) = (each for each in cluster[1].addresses if each.listener == listener)
    async with ClientConnection(endpoint.host, endpoint.port, timeout_s=10.0) as opened:
        yield opened


def of_brokers(cluster: Cluster) -> list[Request]:
    """A valid request of each type that only brokers send."""
    return [
        cluster.stop_replica(1, "t", 0, delete=True),
        cluster.leader_and_isr(1),
        cluster.update_metadata(1),
        ListGroupsPlusRequest(groups=[], coordinator_only=True),
        CreateGroupRequest(group_id="g", session_timeout_ms=10_000, topics=["t"], coordinator_only=True),
    ]


async def test_requests_of_brokers_are_unknown_on_the_listeners_of_clients(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1, **TWO_LISTENERS) as cluster:
        cluster.assign("t", {0: 1})
        await cluster.send()
        cluster.assign("t", {0: 1})
        for attempt in range(2):  # before and after their first use on the other listener
            for request in of_brokers(cluster):
                async with connection(cluster, "EXTERNAL") as client:
                    await client.connect()
                    client.api_versions[request.api_key] = (0, 9)
                    with pytest.raises(KafkaConnectionError):
                        await client.call(request)
            assert hosted(cluster, 1, "t").leader_epoch == attempt
            async with connection(cluster, "INTERNAL") as broker:
                for request in (cluster.leader_and_isr(1), cluster.update_metadata(1)):
                    assert (await broker.call(request)).error_code == 0
        assert error_of(cluster, 1, "t") == 0


async def test_keys_of_the_controller_are_advertised_on_the_listener_between_brokers_alone(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1, **TWO_LISTENERS) as cluster:
        for listener, advertised in (("EXTERNAL", set()), ("INTERNAL", {4, 5, 6})):
            async with connection(cluster, listener) as client:
                await client.connect()
                assert client.api_versions.keys() & {4, 5, 6} == advertised
                assert client.api_versions.keys() >= {0, 1, 10007}
