"""A partition that the controller moves: what happens to requests in progress, and what is readable afterwards."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.partition.append import Append
from kafkalite.cluster.partition.delayed_fetch import DelayedFetch
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import Builder
from tests.unit.cluster.partition.test_flush import EVERY, STORAGE, Rig

NOT_LEADER = KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
PLAIN = TopicConfig()


def nothing() -> None: ...


def state(leader: int, epoch: int, replicas: tuple[int, ...] = (1,), isr: tuple[int, ...] = (1,)) -> PartitionImage:
    return PartitionImage(replicas, isr, leader, epoch)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, PLAIN)


def test_appends_of_the_iteration_are_written_before_the_partition_is_left(rig: Rig) -> None:
    rig.append("before")
    rig.partition.follow(state(2, 1))
    rig.append("after")
    assert rig.answers() == [("before", 0, 0), ("after", NOT_LEADER, -1)]
    assert rig.partition.check_leader_epoch(1) == rig.partition.check_leader_epoch(-1) == NOT_LEADER
    assert (rig.partition.leader, rig.partition.leader_epoch, rig.partition.defect) == (2, 1, 0)


def test_delayed_fetch_completes_when_the_leadership_ends(rig: Rig) -> None:
    woken: list[int] = []
    DelayedFetch([rig.partition], 1, lambda: woken.append(rig.partition.error)).watch(rig.clock, 60)
    rig.partition.resign()
    assert woken == [NOT_LEADER]
    assert rig.partition.leader == -1


def test_append_in_a_job_is_rejected_when_the_leadership_has_ended(rig: Rig) -> None:
    builder = Builder()
    builder.append(0, None, bytes(500_000))
    large = builder.build(1)
    rig.replicas.loop_budget.renew()
    outcomes: list[tuple[int, int]] = []

    for _ in range(2):
        rig.partition.append(
            Append(memoryview(bytearray(large)), -1, lambda done: outcomes.append((done.error, done.base_offset)))
        )
    assert rig.jobs.waiting == 1, "decompressed by a job"
    rig.partition.follow(state(2, 1))
    rig.sync()
    assert outcomes == [(NOT_LEADER, -1)] * 2


def test_led_again_continues_in_the_new_epoch(rig: Rig) -> None:
    rig.append("old")
    rig.replicas.write_pending()
    rig.partition.follow(state(-1, 1))
    ready: list[int] = []
    rig.partition.lead(state(1, 2), lambda: ready.append(rig.partition.high_watermark))
    assert ready == [1], "at once"
    rig.append("new")
    rig.replicas.write_pending()
    assert rig.answers() == [("old", 0, 0), ("new", 0, 1)]
    assert rig.partition.high_watermark == 2
    assert rig.partition.log is not None
    assert rig.partition.log.epochs.entries == [(0, 0), (2, 1)]
    assert rig.partition.check_leader_epoch(2) == 0
    assert rig.partition.check_leader_epoch(1) == KafkaErrorCode.FENCED_LEADER_EPOCH


def test_new_epoch_of_the_same_leader_does_not_change_written_batches(rig: Rig) -> None:
    rig.append("old")
    rig.partition.lead(state(1, 5), nothing)
    rig.append("new")
    rig.replicas.write_pending()
    assert [error for _, error, _ in rig.answers()] == [0, 0]
    assert rig.partition.log is not None
    assert rig.partition.log.epochs.entries == [(0, 0), (5, 1)]


def test_records_without_a_flush_are_readable_after_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path, EVERY)
    rig.append("held")
    rig.replicas.write_pending()
    rig.partition.follow(state(2, 1))
    assert rig.answers() == [("held", NOT_LEADER, -1)]
    ready: list[int] = []
    rig.partition.lead(state(1, 2), lambda: ready.append(rig.partition.high_watermark))
    rig.append("next")
    rig.replicas.write_pending()
    assert (rig.answers(), rig.partition.high_watermark, ready) == ([], 0, []), "nothing is flushed yet"
    assert rig.sync() == [("next", 0, 1)]
    assert (rig.partition.high_watermark, ready) == (2, [2]), "one flush had both"


def test_leadership_that_ends_before_the_flush_is_never_ready(tmp_path: Path) -> None:
    rig = Rig(tmp_path, EVERY)
    rig.append("held")
    rig.replicas.write_pending()
    rig.partition.follow(state(2, 1))
    ready: list[int] = []
    rig.partition.lead(state(1, 2), lambda: ready.append(2))
    rig.partition.follow(state(2, 3))
    rig.partition.lead(state(1, 4), lambda: ready.append(4))
    rig.replicas.write_pending()
    rig.sync()
    assert ready == [4]


def test_leading_again_without_pending_records_needs_no_flush(tmp_path: Path) -> None:
    rig = Rig(tmp_path, EVERY)
    rig.append("a")
    rig.replicas.write_pending()
    rig.sync()
    rig.partition.follow(state(2, 1))
    rig.partition.lead(state(1, 2), nothing)
    rig.replicas.write_pending()
    assert (rig.jobs.waiting, rig.partition.high_watermark) == (0, 1)


def test_offline_partition_stays_offline_when_it_is_left(rig: Rig) -> None:
    rig.partition.close(STORAGE)
    rig.partition.follow(state(2, 1))
    rig.partition.resign()
    assert rig.partition.error == rig.partition.defect == STORAGE


def test_minimum_of_in_sync_replicas_follows_the_assignment(tmp_path: Path) -> None:
    rig = Rig(tmp_path, replace(PLAIN, min_insync_replicas=2))
    rig.partition.lead(state(1, 1, (1,), (1,)), nothing)
    rig.append("one replica")
    rig.partition.lead(state(1, 2, (1, 2), (1,)), nothing)
    rig.append("one of two")
    rig.replicas.write_pending()
    assert [error for _, error, _ in rig.answers()] == [0, KafkaErrorCode.NOT_ENOUGH_REPLICAS]
