"""Replicas that a topic names for follower.replication.throttled.rate (KIP-73)."""

import asyncio
from dataclasses import replace
from pathlib import Path

from kafkalite.cluster.partition.partition import Partition
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.topic import TopicConfig
from kafkalite.state.follower.partition_fetch import FetchState
from tests.story.fetchers.rig import OWN, FollowerRig, run

RATE = 100_000
SECONDS = 20
BATCH = 50_000
ALL = replace(TopicConfig(), follower_replication_throttled_replicas=("*",))
FIRST = replace(TopicConfig(), follower_replication_throttled_replicas=(f"0:{OWN}", "1:9"))
THROTTLED = {
    "follower_replication_throttled_rate": str(RATE),
    "replica_fetch_max_bytes": str(BATCH),
    "replica_fetch_response_max_bytes": str(BATCH),
}


async def behind(rig: FollowerRig, index: int, config: TopicConfig) -> Partition:
    """A partition whose leader has the bytes of `SECONDS` at the limit."""
    partition = await rig.partition(index, config=config)
    for _ in range(RATE * SECONDS // BATCH):
        rig.log_of(partition).append(1, BATCH - 100)
    return partition


def now() -> float:
    return asyncio.get_running_loop().time()


def test_throttled_replica_catches_up_at_the_rate_and_others_at_once(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partitions = [await behind(rig, index, FIRST) for index in range(2)]
        began = now()
        for partition in partitions:
            rig.follow(partition)
        await rig.caught_up(partitions[1])
        assert now() - began < 2.0
        await rig.caught_up(partitions[0])
        assert 0.9 * SECONDS < now() - began < 1.1 * SECONDS
        assert rig.fetchers.throttled_bytes_in < rig.fetchers.bytes_in == 2 * rig.fetchers.throttled_bytes_in

    run(tmp_path, story, **THROTTLED)


def test_all_throttled_replicas_share_the_rate(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partitions = [await behind(rig, index, ALL) for index in range(3)]
        began = now()
        for partition in partitions:
            rig.follow(partition)
        for partition in partitions:
            await rig.caught_up(partition)
        assert 3 * 0.9 * SECONDS < now() - began < 3 * 1.1 * SECONDS

    run(tmp_path, story, **THROTTLED)


def test_replica_in_sync_does_not_wait(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        lagging, in_sync = await behind(rig, 0, ALL), await rig.partition(1, config=ALL)
        for partition in (lagging, in_sync):
            rig.follow(partition)
        await rig.until(lambda: rig.state(lagging) is FetchState.DELAYED and rig.fetchers.lag_of(in_sync) == 0)
        for _ in range(5):
            began = now()
            rig.log_of(in_sync).append()
            rig.moved()
            await rig.caught_up(in_sync)
            assert now() - began < 0.1

    run(tmp_path, story, **THROTTLED)


def test_higher_rate_is_effective_within_a_window(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await behind(rig, 0, ALL)
        rig.follow(partition)
        await rig.until(lambda: rig.state(partition) is FetchState.DELAYED)
        rig.config = BrokerConfig(static={"follower.replication.throttled.rate": str(1 << 40)})
        began = now()
        await rig.caught_up(partition)
        assert now() - began < 2.0

    run(tmp_path, story, **THROTTLED)


def test_stop_ends_a_pause(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await behind(rig, 0, ALL)
        rig.follow(partition)
        await rig.until(lambda: rig.state(partition) is FetchState.DELAYED)
        rig.stop(partition)
        rig.follow(partition, epoch=2)
        rig.log_of(partition).lead(2)
        await rig.caught_up(partition)

    run(tmp_path, story, **THROTTLED)
