"""Brokers of a cluster and their partitions: who serves what, and what clients of the others learn."""

from pathlib import Path

from kafkalite.errors import KafkaErrorCode as Error
from tests.kit.controlled import Cluster
from tests.kit.server import batch, fetch_request, fetched, outcomes, produce_request


async def test_each_broker_serves_the_partitions_that_it_leads(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1, 2) as cluster:
        cluster.assign("t", {0: 1, 1: 2})
        await cluster.send()
        async with cluster.client(1) as one, cluster.client(2) as two:
            assert (await one.produce("t", batch(b"a"), partition=0)).error_code == 0
            assert (await two.produce("t", batch(b"b"), partition=1)).error_code == 0
            assert await one.read("t", 0) == [b"a"]
            answer = await one.call(produce_request("t", (1, batch(b"c"))), 10)
            (refused,) = outcomes(answer)
            assert refused.error_code == Error.NOT_LEADER_OR_FOLLOWER
            assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (2, 0)
            assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(2, cluster[2].addresses[0].port)]
            found = await one.call(fetch_request(cluster.topics["t"].topic_id, (1, 0)), 16)
            part = fetched(found)[cluster.topics["t"].topic_id, 1]
            assert (part.error_code, part.current_leader.leader_id) == (Error.NOT_LEADER_OR_FOLLOWER, 2)
            assert [each.node_id for each in found.node_endpoints] == [2]
