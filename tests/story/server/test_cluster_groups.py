"""Groups in a cluster: their coordinators are the leaders of the partitions of __consumer_offsets."""

import asyncio
from pathlib import Path
from typing import Any

from kafkalite._speedups.wire.java_hash import java_hash
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.kit.controlled import Cluster
from tests.kit.server import Client

OFFSETS = "__consumer_offsets"
LOADING = (Error.COORDINATOR_LOAD_IN_PROGRESS,)


def group_of(shard: int, count: int = 2) -> str:
    """A group of this shard."""
    return next(name for name in map("group{}".format, range(100)) if abs(java_hash(name)) % count == shard)


async def commit(client: Client, group: str, offset: int) -> int:
    """The error of a commit, after the shard is loaded."""
    part = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[part])
    request = OffsetCommitRequest(group_id=group, member_id="", topics=[topic])
    while True:
        error = int((await client.call(request, 9)).topics[0].partitions[0].error_code)
        if error not in LOADING:
            return error
        await asyncio.sleep(0)


async def committed(client: Client, group: str) -> tuple[int, int]:
    """The error and the committed offset of a group."""
    topic = OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[topic])])
    while True:
        (found,) = (await client.call(request, 9)).groups
        if found.error_code not in LOADING:
            return found.error_code, found.topics[0].partitions[0].committed_offset if found.topics else -1
        await asyncio.sleep(0)


async def coordinators(client: Client, *groups: str) -> list[tuple[int, int]]:
    """The error and the coordinator of each group."""
    answer = await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=list(groups)), 4)
    return [(each.error_code, each.node_id) for each in answer.coordinators]


async def assigned(cluster: Cluster, leaders: dict[int, int]) -> None:
    cluster.assign(OFFSETS, leaders)
    await cluster.send()


async def test_coordinators_are_the_leaders_of_the_groups_partitions(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1, 2) as cluster:
        cluster.assign("t", {0: 1})
        await assigned(cluster, {0: 1, 1: 2})
        groups = [group_of(0), group_of(1)]
        async with cluster.client(1) as one, cluster.client(2) as two:
            for client in (one, two):
                assert await coordinators(client, *groups) == [(0, 1), (0, 2)]
                answer = await client.call(FindCoordinatorRequest(key=groups[1], key_type=0), 3)
                assert (answer.node_id, answer.port) == (2, cluster[2].addresses[0].port)
            assert [await commit(one, groups[0], 5), await commit(two, groups[1], 7)] == [0, 0]
            assert [await commit(two, groups[0], 9), await commit(one, groups[1], 9)] == [Error.NOT_COORDINATOR] * 2
            assert [await committed(one, groups[0]), await committed(two, groups[1])] == [(0, 5), (0, 7)]
            assert await committed(two, groups[0]) == (Error.NOT_COORDINATOR, -1)
            listed = [(await each.call(ListGroupsRequest())).groups for each in (one, two)]
            assert [[each.group_id for each in groups] for groups in listed] == [[groups[0]], [groups[1]]]


async def test_groups_without_a_leader_have_no_coordinator(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1})
        await cluster.send()
        async with cluster.client(1) as client:
            unavailable = (Error.COORDINATOR_NOT_AVAILABLE, -1)
            assert await coordinators(client, "g") == [unavailable], "the topic does not exist"
            await assigned(cluster, {0: 1, 1: -1})
            assert await coordinators(client, group_of(0), group_of(1)) == [(0, 1), unavailable]


async def test_shard_is_loaded_again_after_its_leadership_returns(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1})
        await assigned(cluster, {0: 1, 1: 1})
        groups = [group_of(0), group_of(1)]
        async with cluster.client(1) as client:
            assert [await commit(client, group, 5) for group in groups] == [0, 0]
            await assigned(cluster, {0: -1})
            assert await commit(client, groups[0], 6) == Error.NOT_COORDINATOR
            assert await commit(client, groups[1], 6) == 0
            await assigned(cluster, {0: 1})
            assert await committed(client, groups[0]) == (0, 5)
            assert await commit(client, groups[0], 8) == 0


async def test_shard_moves_with_a_restart_of_its_broker(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1})
        await assigned(cluster, {0: 1})
        async with cluster.client(1) as client:
            assert await commit(client, "g", 5) == 0
        await cluster.brokers[1].stop()
        await cluster.brokers[1].start()
        async with cluster.client(1) as client:
            assert await coordinators(client, "g") == [(Error.COORDINATOR_NOT_AVAILABLE, -1)]
            await assigned(cluster, {0: 1})
            assert await committed(client, "g") == (0, 5)


async def test_new_epoch_of_the_same_leader_keeps_the_shard(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1})
        await assigned(cluster, {0: 1})
        async with cluster.client(1) as client:
            assert await commit(client, "g", 5) == 0
            machine = cluster[1].group_coordinator._runtime.machine(0)
            await assigned(cluster, {0: 1})
            assert cluster[1].group_coordinator._runtime.machine(0) is machine is not None
            assert await commit(client, "g", 6) == 0


async def test_offsets_go_with_a_deleted_topic_and_stay_with_an_absent_one(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1})
        await assigned(cluster, {0: 1})
        async with cluster.client(1) as client:
            assert await commit(client, "g", 5) == 0
            requests: Any = cluster.brokers[1]
            await requests.apply(cluster.update_metadata(1, OFFSETS))
            assert "t" not in cluster[1].image.topics
            assert await committed(client, "g") == (0, 5), "another tree may have been restored"
            await requests.apply(cluster.update_metadata(1))
            await requests.apply(cluster.deletion(1, "t", 0))
            while (await committed(client, "g"))[1] != -1:
                await asyncio.sleep(0)


async def test_groups_keep_their_partition_while_the_image_lacks_partitions(tmp_path: Path) -> None:
    """UpdateMetadata has no partition without a leader; the number of partitions comes from the tree."""
    groups = [group_of(shard, count=4) for shard in range(4)]
    async with Cluster(tmp_path, 1) as cluster, cluster.client(1) as client:
        cluster.assign("t", {0: 1})
        cluster.assign(OFFSETS, {0: 1, 1: 1, 2: 1})
        cluster.brokers[1].configs.partitions[OFFSETS] = 4
        await cluster.send()
        assert await coordinators(client, *groups) == [(0, 1)] * 3 + [(Error.COORDINATOR_NOT_AVAILABLE, -1)]
        assert [await commit(client, group, 7) for group in groups] == [0, 0, 0, Error.NOT_COORDINATOR]
        await assigned(cluster, {3: 1})
        assert await commit(client, groups[3], 7) == 0
        assert [await committed(client, group) for group in groups] == [(0, 7)] * 4
