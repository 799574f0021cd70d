"""Tests ACLs in a cluster of three brokers: each applies a change that another one has made."""

import asyncio
from pathlib import Path
from typing import Any

from kafkalite.coordination.tree import Create, Set
from kafkalite.model import Principal
from kafkalite.protocol.messages.create_acls import CreateAclsRequest
from kafkalite.protocol.messages.delete_acls import DeleteAclsRequest
from kafkalite.state.authorizer.acls import AclOperation, AclResourceType, PatternType
from kafkalite.testing.simulated_cluster import SimulatedCluster
from tests.story.cluster.test_three_brokers import Client, run, until
from tests.story.server.test_acls import SECURED, Creation, Filter, creation, filters

ALICE = Principal("User", "alice")
EFFECTIVE_S = 1.0  # after the response, on each broker


def allowing(cluster: SimulatedCluster, name: str) -> set[int]:
    """The brokers at which alice may read a topic."""
    found = set()
    for broker_id, each in cluster.brokers.items():
        if each.running is None:
            continue
        audited = each.running.authorizer
        assert audited is not None
        decision = audited.authorizer.decide(ALICE, "h", AclOperation.READ, AclResourceType.TOPIC, name)
        if decision.allowed:
            found.add(broker_id)
    return found


async def effective(cluster: SimulatedCluster, name: str, brokers: set[int]) -> None:
    """Wait until exactly these brokers allow to read a topic, for at most `EFFECTIVE_S`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + EFFECTIVE_S

    async def look() -> Any:
        assert loop.time() <= end, f"{name}: {allowing(cluster, name)}"
        return True if allowing(cluster, name) == brokers else None

    await until(look)


async def create(client: Client, broker_id: int, *creations: Creation) -> None:
    response = await client.call(broker_id, CreateAclsRequest(creations=list(creations)), 3)
    assert [each.error_code for each in response.results] == [0] * len(creations), response


async def delete(client: Client, broker_id: int, **fields: Any) -> int:
    response = await client.call(broker_id, DeleteAclsRequest(filters=[filters(Filter, **fields)]), 3)
    return len(response.filter_results[0].matching_acls)


def test_each_broker_applies_changes_of_the_others(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.controller(1, 2, 3)
        await create(client, 1, creation())
        await effective(cluster, "orders", {1, 2, 3})
        await create(client, 2, creation("pay", resource_pattern_type=PatternType.PREFIXED))
        await effective(cluster, "payments", {1, 2, 3})
        assert await delete(client, 3, resource_name_filter="orders") == 1
        await effective(cluster, "orders", set())
        assert await delete(client, 1, resource_type_filter=AclResourceType.TOPIC) == 1
        await effective(cluster, "payments", set())

    run(tmp_path, scenario, settings=SECURED)


def test_concurrent_changes_of_one_resource_are_all_stored(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.controller(1, 2, 3)
        await asyncio.gather(
            *(
                create(client, 1 + index % 3, creation(principal=f"User:{index}", operation=AclOperation.WRITE))
                for index in range(12)
            ),
            create(client, 2, creation()),
        )
        await effective(cluster, "orders", {1, 2, 3})
        assert await delete(client, 2) == 13

    run(tmp_path, scenario, settings=SECURED)


def test_changes_of_another_program_and_invalid_nodes_are_followed(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.controller(1, 2, 3)
        await create(client, 1, creation())
        await effective(cluster, "orders", {1, 2, 3})
        running = cluster.brokers[1].running
        assert running is not None
        notice = Create("/kafka-acl-changes/acl_changes_", b"Topic:orders", sequence=True)
        running.metadata.multi([Set("/kafka-acl/Topic/orders", b"{"), notice], lambda outcome: outcome.result())
        await effective(cluster, "orders", set())
        garbage = Create("/kafka-acl-changes/acl_changes_", b"garbage", sequence=True)
        valid = b'{"version":1,"acls":[{"principal":"User:*","permissionType":"Allow","operation":"All","host":"*"}]}'
        running.metadata.multi([Set("/kafka-acl/Topic/orders", valid), garbage], lambda outcome: outcome.result())
        await effective(cluster, "orders", {1, 2, 3})

    run(tmp_path, scenario, settings=SECURED)


def test_a_broker_that_starts_has_all_acls_before_its_first_request(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.controller(1, 2, 3)
        cluster.kill(3)
        await create(client, 1, creation())
        await cluster.start(3)
        assert 3 in allowing(cluster, "orders")

    run(tmp_path, scenario, settings=SECURED)


def test_a_broker_reads_the_acls_of_a_new_session_before_it_accepts_connections(tmp_path: Path) -> None:
    """What was revoked while the session was lost is refused from the first request on."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.controller(1, 2, 3)
        await create(client, 1, creation())
        await effective(cluster, "orders", {1, 2, 3})
        running = cluster.brokers[3].running
        assert running is not None
        listening, allowed_at_resume = running.listening, []
        resume = listening.resume

        def resumed() -> None:
            allowed_at_resume.append(3 in allowing(cluster, "orders"))
            resume()

        listening.resume = resumed  # type: ignore[method-assign]
        client.network.disconnect("broker3", "zookeeper")
        cluster.expire(3)
        assert await delete(client, 1, resource_name_filter="orders") == 1
        client.network.reconnect("broker3", "zookeeper")

        async def look() -> Any:
            return allowed_at_resume or None

        assert await until(look) == [False]

    run(tmp_path, scenario, settings=SECURED)
