"""Brokers of a cluster and their partitions: LeaderAndIsr, StopReplica, UpdateMetadata, and what clients learn."""

import asyncio
import dataclasses
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.cluster.metadata.update import FULL
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkalite.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.stop_replica import StopReplicaRequest
from kafkalite.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkalite.server.hosting.assigned_partitions import AssignedPartitions
from kafkalite.server.requests.api import CLUSTER_ROWS, ROWS
from kafkalite.storage import checkpoints
from tests.kit.controlled import Cluster, errors
from tests.kit.record_engines import seed
from tests.kit.server import batch, fetch_request, fetched, outcomes, produce_request, running

NOT_LEADER = Error.NOT_LEADER_OR_FOLLOWER


def hosted(cluster: Cluster, broker: int, topic: str, index: int = 0) -> Partition:
    found = cluster[broker].replicas.partition(topic, b"", index, by_id=False)
    assert isinstance(found, Partition), found
    return found


def error_of(cluster: Cluster, broker: int, topic: str, index: int = 0) -> int:
    """The error of requests for a partition, 0 if it is led here."""
    found = cluster[broker].replicas.partition(topic, b"", index, by_id=False)
    return found.error if isinstance(found, Partition) else found


def directories(path: Path) -> list[str]:
    return sorted(entry for entry in os.listdir(path) if os.path.isdir(path / entry))


async def apply(cluster: Cluster, broker: int, request: Any) -> Any:
    return await cluster.brokers[broker].apply(request)


async def test_each_broker_serves_the_partitions_that_it_leads(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1, 2) as cluster:
        topic = cluster.assign("t", {0: 1, 1: 2})
        await cluster.send()
        async with cluster.client(1) as one, cluster.client(2) as two:
            assert (await one.produce("t", batch(b"a"), partition=0)).error_code == 0
            assert (await two.produce("t", batch(b"b"), partition=1)).error_code == 0
            assert await one.read("t", 0) == [b"a"]
            answer = await one.call(produce_request("t", (1, batch(b"c"))), 10)
            (refused,) = outcomes(answer)
            assert refused.error_code == NOT_LEADER
            assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (2, 0)
            assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(2, cluster[2].addresses[0].port)]
            found = await one.call(fetch_request(topic.topic_id, (1, 0)), 16)
            part = fetched(found)[topic.topic_id, 1]
            assert (part.error_code, part.current_leader.leader_id) == (NOT_LEADER, 2)
            assert [each.node_id for each in found.node_endpoints] == [2]
            assert (await one.offset("t", -1, partition=1)).error_code == NOT_LEADER
            assert (await one.offset("t", -1, partition=7)).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


async def test_fenced_clients_get_the_current_leader(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        topic = cluster.assign("t", {0: 1})
        await cluster.send()
        cluster.assign("t", {0: 1})
        await cluster.send()
        async with cluster.client(1) as client:
            found = await client.call(fetch_request(topic.topic_id, (0, 0), current_leader_epoch=0), 16)
            part = fetched(found)[topic.topic_id, 0]
            assert (part.error_code, part.current_leader.leader_epoch) == (Error.FENCED_LEADER_EPOCH, 1)


async def test_metadata_is_the_same_on_every_broker(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1, 2) as cluster:
        cluster.assign("t", {0: 1, 1: 2, 2: -1})
        await cluster.send()
        answers = []
        for broker in (1, 2):
            async with cluster.client(broker) as client:
                answers.append(await client.call(MetadataRequest(topics=None), 12))
                found = await client.call(DescribeClusterRequest())
                assert [each.broker_id for each in found.brokers] == [1, 2] and found.controller_id == 1
        one, two = answers
        assert (one.controller_id, [each.node_id for each in one.brokers]) == (1, [1, 2])
        assert one.brokers[1].port == two.brokers[1].port == cluster[2].addresses[0].port
        for answer in answers:
            parts = [(each.leader_id, each.error_code, each.offline_replicas) for each in answer.topics[0].partitions]
            assert parts == [(1, 0, []), (2, 0, []), (-1, Error.LEADER_NOT_AVAILABLE, [1])]


async def test_nothing_is_served_before_the_controller_assigns_it(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        topic = cluster.assign("t", {0: 1})
        await cluster.send()
        async with cluster.client(1) as client:
            await client.produce("t", batch(b"a"))
        await cluster.brokers[1].stop()
        await cluster.brokers[1].start()
        assert error_of(cluster, 1, "t") == Error.UNKNOWN_TOPIC_OR_PARTITION
        await apply(cluster, 1, cluster.update_metadata(1))
        assert error_of(cluster, 1, "t") == NOT_LEADER
        cluster.assign("t", {0: 1})
        await cluster.send()
        async with cluster.client(1) as client:
            assert await client.read("t") == [b"a"]
        partition = hosted(cluster, 1, "t")
        assert partition.topic_id == topic.topic_id and partition.log is not None
        assert partition.log.epochs.entries == [(0, 0), (1, 1)], "written when the leadership began"


async def test_requests_in_progress_complete_when_the_leader_moves(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        topic = cluster.assign("t", {0: 1})
        await cluster.send()
        async with cluster.client(1) as client:
            waiting = asyncio.ensure_future(client.call(fetch_request("t", (0, 0), max_wait_ms=60_000), 12))
            while not hosted(cluster, 1, "t").delayed_fetches:
                await asyncio.sleep(0)
            cluster.assign("t", {0: -1})
            await cluster.send()
            assert fetched(await waiting)["t", 0].error_code == NOT_LEADER
            assert (await client.produce("t", batch(b"x"))).error_code == NOT_LEADER
            cluster.assign("t", {0: 1})
            await cluster.send()
            assert (await client.produce("t", batch(b"y"))).base_offset == 0
            assert topic.partitions[0].epoch == hosted(cluster, 1, "t").leader_epoch == 2


async def test_stale_duplicate_and_reordered_requests_change_nothing(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1})
        old = cluster.leader_and_isr(1)
        cluster.assign("t", {0: 1})
        new = cluster.leader_and_isr(1)
        assert errors(await apply(cluster, 1, new)) == {0}
        for late in (new, old):
            assert errors(await apply(cluster, 1, late)) == {Error.STALE_CONTROLLER_EPOCH}
        assert hosted(cluster, 1, "t").leader_epoch == 1
        stop = cluster.stop_replica(1, "t", 0, epoch=0)
        assert errors(await apply(cluster, 1, stop)) == {Error.FENCED_LEADER_EPOCH}
        assert error_of(cluster, 1, "t") == 0


@pytest.mark.parametrize("kind", ["update_metadata", "leader_and_isr", "stop_replica"])
async def test_requests_of_old_controllers_and_registrations_are_rejected(tmp_path: Path, kind: str) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1})

        def request() -> Any:
            more = ("t", 0) if kind == "stop_replica" else ()
            return getattr(cluster, kind)(1, *more)

        stale_epoch = request()
        stale_epoch.broker_epoch -= 1
        zombie = request()
        cluster.controller_epoch = 2
        await cluster.send()
        other = request()
        other.controller_id = 9
        for asked, error in (
            (stale_epoch, Error.STALE_BROKER_EPOCH),
            (zombie, Error.STALE_CONTROLLER_EPOCH),
            (other, Error.STALE_CONTROLLER_EPOCH),
        ):
            async with cluster.client(1) as client:
                assert (await client.call(asked)).error_code == error
        assert error_of(cluster, 1, "t") == 0
        assert cluster[1].image.controller_id == 1


async def test_impossible_assignments_are_rejected_whole(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1})
        cluster.assign("../up", {0: 1})
        assert (await apply(cluster, 1, cluster.leader_and_isr(1))).error_code == Error.INVALID_REQUEST
        assert not list(cluster[1].replicas)
        without_id = cluster.leader_and_isr(1, "t")
        without_id.topic_states[0].topic_id = bytes(16)
        assert (await apply(cluster, 1, without_id)).error_code == Error.INVALID_REQUEST
        foreign = cluster.leader_and_isr(1, "t")
        foreign.topic_states[0].partition_states[0].replicas = [2]
        assert errors(await apply(cluster, 1, foreign)) == {Error.UNKNOWN_TOPIC_OR_PARTITION}


async def test_another_topic_id_is_refused(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1})
        await cluster.send()
        cluster.assign("t", {0: 1})
        wrong = cluster.leader_and_isr(1)
        wrong.topic_states[0].topic_id = b"\7" * 16
        assert errors(await apply(cluster, 1, wrong)) == {Error.INCONSISTENT_TOPIC_ID}
        assert hosted(cluster, 1, "t").leader_epoch == 0


async def test_stop_without_deletion_keeps_the_log(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1})
        await cluster.send()
        async with cluster.client(1) as client:
            await client.produce("t", batch(b"a"))
            assert errors(await apply(cluster, 1, cluster.stop_replica(1, "t", 0))) == {0}
            assert error_of(cluster, 1, "t") == NOT_LEADER
            cluster.assign("t", {0: 1})
            await cluster.send()
            assert await client.read("t") == [b"a"]


async def test_stop_with_deletion_removes_the_partition(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1, 1: 1})
        await cluster.send()
        async with cluster.client(1) as client:
            for index in (0, 1):
                await client.produce("t", batch(b"a"), partition=index)
            await apply(cluster, 1, cluster.deletion(1, "t", 0))
            assert errors(await apply(cluster, 1, cluster.stop_replica(1, "t", 0, delete=True))) == {0}
            assert error_of(cluster, 1, "t", 0) == Error.UNKNOWN_TOPIC_OR_PARTITION
            assert "t-0" not in directories(tmp_path / "1") and "t-1" in directories(tmp_path / "1")
            assert await client.read("t", 1) == [b"a"]
            assert errors(await apply(cluster, 1, cluster.stop_replica(1, "t", 0, delete=True))) == {0}, "again"


async def test_log_without_assignment_is_deleted_only_with_its_topic_id(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        topic = cluster.assign("t", {0: 1})
        await cluster.send()
        async with cluster.client(1) as client:
            await client.produce("t", batch(b"a"))
        await cluster.brokers[1].stop()
        await cluster.brokers[1].start()
        stop = cluster.stop_replica(1, "t", 0, delete=True)
        assert errors(await apply(cluster, 1, stop)) == {0}
        assert "t-0" in directories(tmp_path / "1"), "the deletion of its id was not announced"
        own_id, topic.topic_id = topic.topic_id, b"\7" * 16
        await apply(cluster, 1, cluster.deletion(1, "t", 0))
        assert errors(await apply(cluster, 1, stop)) == {0}
        assert "t-0" in directories(tmp_path / "1"), "another topic of this name was deleted"
        topic.topic_id = own_id
        await apply(cluster, 1, cluster.deletion(1, "t", 0))
        assert errors(await apply(cluster, 1, stop)) == {0}
        assert "t-0" not in directories(tmp_path / "1")


async def test_full_assignment_makes_strays_of_other_logs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        for name in ("kept", "gone", "replaced"):
            cluster.assign(name, {0: 1})
        await cluster.send()
        async with cluster.client(1) as client:
            for name in cluster.topics:
                await client.produce(name, batch(name.encode()))
            await cluster.brokers[1].stop()
        await cluster.brokers[1].start()
        del cluster.topics["gone"]
        cluster.topics["replaced"].topic_id = b"\7" * 16
        cluster.assign("kept", {0: 1})
        answer = await apply(cluster, 1, cluster.leader_and_isr(1, kind=FULL))
        assert errors(answer) == {0}
        await apply(cluster, 1, cluster.update_metadata(1))
        found = directories(tmp_path / "1")
        assert sorted(name.partition(".")[0] for name in found if name.endswith("-stray")) == ["gone-0", "replaced-0"]
        assert "2 stray partitions" in caplog.text and "does not assign" in caplog.text
        async with cluster.client(1) as client:
            assert await client.read("kept") == [b"kept"]
            assert (await client.produce("replaced", batch(b"new"))).base_offset == 0


async def test_files_of_an_interrupted_creation_are_created_again(tmp_path: Path) -> None:
    """A power failure may leave the directory alone. Where `partition.metadata` is left, records may have been lost."""
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1, 1: 1})
        await cluster.send()
        await cluster.brokers[1].stop()
        for name in ("t-0", "t-1"):
            directory = tmp_path / "1" / name
            shutil.rmtree(directory, ignore_errors=True)  # created in the background, perhaps not yet
            directory.mkdir()
        checkpoints.write_topic_id(Disk(), str(directory), cluster.topics["t"].topic_id)
        await cluster.brokers[1].start()
        cluster.assign("t", {0: 1, 1: 1})
        await apply(cluster, 1, cluster.leader_and_isr(1, kind=FULL))
        await apply(cluster, 1, cluster.update_metadata(1))
        assert error_of(cluster, 1, "t", 1) == Error.KAFKA_STORAGE_ERROR
        async with cluster.client(1) as client:
            assert (await client.produce("t", batch(b"a"))).base_offset == 0
        strays = [name.partition(".")[0] for name in directories(tmp_path / "1") if name.endswith("-stray")]
        assert strays == ["t-0"]


async def test_full_assignment_stops_partitions_that_it_does_not_name(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("a", {0: 1})
        cluster.assign("b", {0: 1})
        await cluster.send()
        async with cluster.client(1) as client:
            await client.produce("b", batch(b"b"))
            cluster.assign("a", {0: 1})
            await apply(cluster, 1, cluster.leader_and_isr(1, "a", kind=FULL))
            await apply(cluster, 1, cluster.update_metadata(1, "a"))
            assert error_of(cluster, 1, "b") == Error.UNKNOWN_TOPIC_OR_PARTITION
            assert error_of(cluster, 1, "a") == 0
            assert any(name.startswith("b-0.") and name.endswith("-stray") for name in directories(tmp_path / "1"))


async def test_topic_configs_are_read_before_a_topic_is_hosted(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        configs = cluster.brokers[1].configs
        configs.configs = {"t": {"max.message.bytes": "5000"}, "bad": {"retention.ms": "abc"}}
        configs.held = True
        cluster.assign("t", {0: 1})
        cluster.assign("bad", {0: 1})
        waiting = asyncio.ensure_future(apply(cluster, 1, cluster.leader_and_isr(1)))
        behind = asyncio.ensure_future(apply(cluster, 1, cluster.update_metadata(1)))
        await asyncio.sleep(0)
        assert not waiting.done() and not behind.done(), "requests keep their order"
        configs.release()
        assert errors(await waiting) == {0}
        assert (await behind).error_code == 0
        assert hosted(cluster, 1, "t").config.max_message_bytes == 5000
        bad, defaults = hosted(cluster, 1, "bad").config, cluster[1].config.topic_defaults
        assert bad == dataclasses.replace(defaults, unreadable=("retention.ms",)), "nothing of it is deleted"
        cluster[1].hosting.configure_topic("t", {})  # type: ignore[attr-defined]
        assert hosted(cluster, 1, "t").config == cluster[1].config.topic_defaults


async def test_configs_that_change_while_a_topic_is_hosted_are_read_again(tmp_path: Path) -> None:
    """The notification comes after the read of the configs and before the first partition is hosted."""
    async with Cluster(tmp_path, 1) as cluster:
        configs = cluster.brokers[1].configs
        configs.held = True
        cluster.assign("t", {0: 1})
        waiting = asyncio.ensure_future(apply(cluster, 1, cluster.leader_and_isr(1)))
        await asyncio.sleep(0)
        hosting = cluster[1].hosting
        assert isinstance(hosting, AssignedPartitions) and list(hosting.initializing) == ["t"]
        hosting.configure_topic("t", {"retention.ms": "-1"})
        configs.release()
        assert errors(await waiting) == {0} and hosted(cluster, 1, "t").config.retention_ms > 0
        configs.configs = {"t": {"retention.ms": "-1"}}
        configs.release()
        assert hosted(cluster, 1, "t").config.retention_ms == -1 and not hosting.initializing


async def test_versions_of_requests_of_apache_kafka(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1})
        await cluster.send()
        async with cluster.client(1) as client:
            for version in range(9):  # before version 5 it has no broker epoch
                error = 0 if version >= 5 else Error.STALE_BROKER_EPOCH
                assert (await client.call(cluster.update_metadata(1), version)).error_code == error
            cluster.assign("t", {0: 1})
            for version in range(5, 8):
                cluster.assign("t", {0: 1})
                assert errors(await client.call(cluster.leader_and_isr(1), version)) == {0}
            assert (await client.call(LeaderAndIsrRequest(**vars_of(cluster), live_leaders=[]), 4)).error_code == 0
            for version in (1, 2):
                named = StopReplicaRequest.StopReplicaTopicV1(name="t", partition_indexes=[0])
                stop = StopReplicaRequest(**vars_of(cluster), topics=[named])
                assert errors(await client.call(stop, version)) == {0}


def vars_of(cluster: Cluster) -> dict[str, Any]:
    return {"controller_id": 1, "controller_epoch": 1, "broker_epoch": cluster.brokers[1].epoch}


async def test_broker_that_is_alone_does_not_serve_the_keys_of_clusters(tmp_path: Path) -> None:
    keys = {row.api_key for row in CLUSTER_ROWS}
    assert keys == {4, 5, 6, 7, 56, 10007} and not keys & {row.api_key for row in ROWS}
    async with running(str(tmp_path)) as client:
        assert keys.isdisjoint(row.api_key for row in client.broker.dispatcher.rows)


class Oracle:
    """What a broker should host, as a dict: (topic, index) -> (leader epoch, led here)."""

    def __init__(self) -> None:
        self.hosted: dict[tuple[str, int], tuple[int, bool]] = {}

    def lead(self, request: LeaderAndIsrRequest) -> None:
        if request.type == FULL:
            named = {(t.topic_name, s.partition_index) for t in request.topic_states for s in t.partition_states}
            self.hosted = {key: value for key, value in self.hosted.items() if key in named}
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = topic.topic_name, state.partition_index
                if state.leader_epoch > self.hosted.get(key, (-1, False))[0]:
                    self.hosted[key] = state.leader_epoch, state.leader == 1

    def stop(self, request: StopReplicaRequest) -> None:
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = topic.topic_name, state.partition_index
                if key not in self.hosted or 0 <= state.leader_epoch < self.hosted[key][0]:
                    continue
                if state.delete_partition:
                    del self.hosted[key]
                else:
                    self.hosted[key] = self.hosted[key][0], False


async def test_random_requests_agree_with_the_oracle(tmp_path: Path) -> None:
    random, oracle = Random(seed()), Oracle()
    async with Cluster(tmp_path, 1) as cluster:
        kept: list[Any] = []
        for _ in range(150):
            name = random.choice("ab")
            cluster.assign(name, {random.randrange(4): random.choice((1, 1, -1))})
            for part in cluster.topics[name].partitions.values():
                part.replica = 1
            choice = random.random()
            request: Any
            if choice < 0.15 and kept:
                request = random.choice(kept)  # a duplicate or a late one
            elif choice < 0.3:
                known = list(cluster.topics[name].partitions)
                request = cluster.stop_replica(1, name, random.choice(known), delete=random.random() < 0.5)
            elif choice < 0.4:
                request = cluster.update_metadata(1, kind=random.choice((1, FULL)))
            else:
                request = cluster.leader_and_isr(1, kind=FULL if random.random() < 0.1 else 1)
            kept.append(request)
            assert (await apply(cluster, 1, request)).error_code == 0
            if isinstance(request, LeaderAndIsrRequest):
                oracle.lead(request)
            elif not isinstance(request, UpdateMetadataRequest):
                oracle.stop(request)
            found = {
                (topic.name, part.index): (part.leader_epoch, not part.error)
                for topic in cluster[1].replicas
                for part in topic.partitions.values()
            }
            assert found == oracle.hosted


async def test_large_requests_are_applied_over_several_loop_iterations(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", dict.fromkeys(range(10_000), 1))
        iterations, applied = list[int](), asyncio.Event()

        async def count() -> None:
            while not applied.is_set():
                iterations[-1] += 1
                await asyncio.sleep(0)

        requests = (
            cluster.leader_and_isr(1, kind=FULL),
            cluster.update_metadata(1),
            cluster.stop_replica(1, "t", *range(10_000)),
        )
        for request in requests:
            iterations.append(0)
            applied.clear()
            counting = asyncio.ensure_future(count())
            assert (await apply(cluster, 1, request)).error_code == 0
            applied.set()
            await counting
        assert min(iterations) >= 2, f"{iterations}: 0 in one go"
        assert len(cluster[1].image.topics["t"].partitions) == 10_000
        assert {part.error for part in next(iter(cluster[1].replicas)).partitions.values()} == {NOT_LEADER}


async def test_partition_has_the_version_of_its_state(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        cluster.assign("t", {0: 1})
        request = cluster.leader_and_isr(1)
        request.topic_states[0].partition_states[0].partition_epoch = 7
        assert errors(await apply(cluster, 1, request)) == {0}
        assert hosted(cluster, 1, "t").partition_epoch == 7


async def test_brokers_of_the_image_are_live(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1, 2) as cluster:
        hosting = cluster[1].hosting
        assert not hosting.is_live(2, 1), "no image yet"
        await cluster.send()
        assert hosting.is_live(2, 1)
        await cluster.brokers[2].stop()
        await cluster.send()
        assert not hosting.is_live(2, 1)
