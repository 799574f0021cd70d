"""CPU of a follower for a response: per partition and per byte: `pytest perf/micro/test_replica_response.py`.

The logs restart before each round, outside the measured time.
"""

from pathlib import Path
from typing import Any

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.cluster.fetchers.fetched_replica import FetchedReplica, PartitionKey
from kafkalite.cluster.fetchers.response_application import Divergence, Restart, apply_response
from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.partition.partition import Partition
from kafkalite.config.topic import TopicConfig
from kafkalite.protocol.messages.fetch import FetchResponse
from kafkalite.records import set_base_offset, set_leader_epoch
from kafkalite.slicing import finish
from kafkalite.state.follower.fetch_session import FetchSession
from kafkalite.state.follower.partition_fetch import FetchEvent
from tests.kit.logs import new_log
from tests.unit.cluster.partition.test_flush import Rig
from tests.unit.storage.damage import batch

TOPIC = bytes(15) + b"\x01"
Response = FetchResponse.FetchableTopicResponse


class Positions:
    """Uses the results of a response as a fetcher does: the next request gets the new positions."""

    leader = 2

    def __init__(self) -> None:
        self.session: FetchSession[PartitionKey] = FetchSession()

    def applied(self, replica: FetchedReplica) -> None:
        replica.fetch.apply(FetchEvent.RECORDS)
        assert not replica.must_flush
        self.session.set(replica.key, replica.position())

    def diverged(self, replica: FetchedReplica, divergence: Divergence) -> None:
        raise AssertionError(divergence)

    def must_restart(self, replica: FetchedReplica, restart: Restart, reason: str) -> None:
        raise AssertionError(reason)

    def failed(self, replica: FetchedReplica, event: FetchEvent, error: int, reason: str) -> None:
        raise AssertionError(reason)

    def broken(self, replica: FetchedReplica, error: Exception) -> None:
        raise error


def count_bytes(_replica: FetchedReplica, _size: int) -> None:
    """Count nothing."""


@pytest.mark.parametrize(
    ("partitions", "batches", "size"),
    [(1, 1, 1_000), (100, 1, 1_000), (1, 60, 16_000), (1, 600, 1_600)],
    ids=["1 partition of 1 kB", "100 partitions of 1 kB", "60 batches of 16 kB", "600 batches of 1.6 kB"],
)
def test_apply_response(benchmark: Any, tmp_path: Path, partitions: int, batches: int, size: int) -> None:
    rig = Rig(tmp_path, TopicConfig())
    replicas: dict[PartitionKey, FetchedReplica] = {}
    for index in range(partitions):
        partition = Partition("t", TOPIC, index, TopicConfig(), rig, -1, (2,), 3)
        partition.close(6)
        partition.adopt(new_log(Disk(), str(tmp_path / f"t-{index}"), "t", index, TopicConfig()))
        partition.follow(PartitionImage((1, 2, 3), (1, 2, 3), 2, 1))
        replicas[TOPIC, index] = FetchedReplica(partition, flush_first=False)
    one, positions, offset = batch(1, size=size), Positions(), 0
    set_leader_epoch(one, 1)

    def next_response() -> tuple[tuple[FetchResponse], dict[str, Any]]:
        nonlocal offset
        records = bytearray()
        for _ in range(batches):
            set_base_offset(one, offset)
            records += one
            offset += 1
        parts = [
            Response.PartitionData(
                partition_index=index,
                high_watermark=offset,
                log_start_offset=0,
                aborted_transactions=None,
                records=memoryview(records),
            )
            for index in range(partitions)
        ]
        return (FetchResponse(responses=[Response(topic_id=TOPIC, partitions=parts)]),), {}

    def apply(response: FetchResponse) -> None:
        finish(apply_response(response, 0, replicas.get, positions, count_bytes))

    benchmark.pedantic(apply, setup=next_response, rounds=200)
    assert all(replica.log.log_end_offset == offset for replica in replicas.values())
