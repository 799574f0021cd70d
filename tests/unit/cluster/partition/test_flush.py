"""Appends that wait for the disk: held in order, readable when they are synced, and always answered."""

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import File
from kafkalite.clock import Clock, Offload
from kafkalite.cluster.isr.isr_requests import IsrRequests
from kafkalite.cluster.partition.append import Append
from kafkalite.cluster.partition.delayed_fetch import DelayedFetch
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.verification import TransactionChecks
from kafkalite.cluster.replicas import HostedTopic, Replicas
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage.flush.flusher import Flusher
from kafkalite.storage.log.flush_job import JobSyncer
from kafkalite.storage.log.log import Log
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import InlineOffload, VirtualClock
from tests.kit.logs import new_log
from tests.unit.storage.damage import batch

STORAGE, GONE = KafkaErrorCode.KAFKA_STORAGE_ERROR, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
EVERY = replace(TopicConfig(), flush_messages=1)


class Rig:
    """A partition with a log; rounds wait until the test lets them run."""

    clock: Clock
    offload: Offload

    def __init__(self, path: Path, config: TopicConfig = EVERY) -> None:
        self.path = path
        self.disk = FaultyDisk()
        self.clock = VirtualClock()
        self.offload = self.jobs = InlineOffload()
        self.jobs.held = True
        self.flusher = Flusher(self.disk, self.clock, JobSyncer(self.disk, self.offload), self.fail)
        self.replicas = Replicas()
        self.replicas.flusher = self.flusher
        self.mark_dirty = self.replicas.mark_dirty
        self.report = self.replicas.report
        self.loop_budget = self.replicas.loop_budget
        self.live: set[int] = set()
        self.outcomes: list[tuple[str, int, int]] = []
        topic = HostedTopic("t", bytes(16), config)
        topic.partitions = {index: Partition("t", bytes(16), index, config, self, 0, (1,)) for index in range(3)}
        self.replicas.add(topic)
        self.partitions = list(topic.partitions.values())
        for partition in self.partitions:
            log = new_log(self.disk, str(path / "data" / f"t-{partition.index}"), "t", partition.index, config)
            partition.adopt(log)
        self.partition = self.partitions[0]

    def fail(self, _path: str, _error: OSError) -> None:
        for partition in self.partitions:
            assert partition.log is not None
            partition.log.fail()
            partition.close(STORAGE)

    replica_lag_max_ms = 30_000
    isr_requests: IsrRequests | None = None

    @property
    def transaction_checks(self) -> TransactionChecks:
        return self.replicas.transaction_checks

    def is_live(self, broker_id: int, broker_epoch: int) -> bool:
        return broker_id in self.live

    def open_log(self, partition: Partition, opened: Callable[[Log | int], None]) -> None:
        raise AssertionError("every partition has a log")

    def append(self, name: str, partition: Partition | None = None, acks: int = -1, count: int = 1) -> None:
        def done(append: Append) -> None:
            self.outcomes.append((name, append.error, append.base_offset))

        (partition or self.partition).append(Append(memoryview(batch(count)), acks, done))

    def sync(self) -> list[tuple[str, int, int]]:
        """Let the rounds run; what was answered since the last time."""
        self.jobs.release()
        self.jobs.drain()
        self.jobs.held = True
        return self.answers()

    def answers(self) -> list[tuple[str, int, int]]:
        outcomes, self.outcomes = self.outcomes, []
        return outcomes


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    yield Rig(tmp_path)


def test_response_and_high_watermark_wait_for_the_flush(rig: Rig) -> None:
    rig.append("one", acks=1)
    rig.append("all", acks=-1)
    rig.replicas.write_pending()
    assert rig.answers() == [] and rig.partition.high_watermark == 0
    assert rig.jobs.waiting == 1
    assert rig.sync() == [("one", 0, 0), ("all", 0, 1)]
    assert rig.partition.high_watermark == 2


def test_acks_0_does_not_wait_for_the_flush_but_readers_do(rig: Rig) -> None:
    rig.append("none", acks=0)
    rig.replicas.write_pending()
    assert rig.answers() == [("none", 0, 0)] and rig.partition.high_watermark == 0
    rig.sync()
    assert rig.partition.high_watermark == 1


def test_responses_keep_their_order_over_many_flushes(rig: Rig) -> None:
    for number in range(6):
        rig.append(str(number))
        rig.replicas.write_pending()
    assert [name for name, *_ in rig.sync()] == list("012345")
    assert rig.flusher.batches == 2, "the first, and one for all that came meanwhile"
    assert rig.partition.high_watermark == 6


def test_partitions_of_a_loop_iteration_share_a_flush(rig: Rig) -> None:
    for partition in rig.partitions:
        rig.append(str(partition.index), partition)
    rig.replicas.write_pending()
    assert rig.jobs.waiting == 1
    assert [name for name, *_ in rig.sync()] == ["0", "1", "2"]


def test_delayed_fetch_completes_after_the_flush(rig: Rig) -> None:
    woken: list[int] = []
    waiter = DelayedFetch([rig.partition], 1, lambda: woken.append(rig.partition.high_watermark))
    waiter.watch(rig.clock, 60)
    rig.append("a")
    rig.replicas.write_pending()
    assert woken == []
    rig.sync()
    assert woken == [1]


def test_flush_messages_10_waits_for_every_tenth_record(tmp_path: Path) -> None:
    rig = Rig(tmp_path, replace(EVERY, flush_messages=10))
    for number in range(9):
        rig.append(str(number))
        rig.replicas.write_pending()
    assert len(rig.answers()) == 9 and rig.partition.high_watermark == 9 and rig.flusher.batches == 0
    rig.append("tenth")
    rig.replicas.write_pending()
    rig.append("behind it")
    rig.replicas.write_pending()
    assert rig.answers() == [] and rig.jobs.waiting == 1
    assert [name for name, *_ in rig.sync()] == ["tenth", "behind it"]
    assert rig.partition.high_watermark == 11 and rig.flusher.batches == 1
    for number in range(8):
        rig.append(str(number))
        rig.replicas.write_pending()
    assert len(rig.answers()) == 8, "counted from what was synced"
    rig.append("twentieth")
    rig.replicas.write_pending()
    assert rig.answers() == []
    assert [name for name, *_ in rig.sync()] == ["twentieth"]


def test_flush_for_another_reason_finishes_appends(tmp_path: Path) -> None:
    rig = Rig(tmp_path, replace(EVERY, flush_messages=10))
    rig.append("nine", count=9)
    rig.replicas.write_pending()
    log = rig.partition.log
    assert log is not None
    log.apply_flush(log.plan_flush())
    rig.append("ten")
    rig.replicas.write_pending()
    assert [name for name, *_ in rig.answers()] == ["nine", "ten"] and rig.partition.high_watermark == 10


def test_failed_flush_rejects_waiting_and_later_appends(rig: Rig) -> None:
    rig.append("first")
    rig.replicas.write_pending()
    rig.append("gathers")
    rig.append("elsewhere", rig.partitions[1])
    rig.replicas.write_pending()
    rig.disk.fail("sync", errno.EIO, path=".log")
    assert rig.sync() == [("first", STORAGE, -1), ("gathers", STORAGE, -1), ("elsewhere", STORAGE, -1)]
    assert rig.partition.high_watermark == 0
    rig.append("later")
    rig.replicas.write_pending()
    assert rig.answers() == [("later", STORAGE, -1)]
    assert rig.jobs.waiting == 0


def test_deleted_partition_rejects_appends_that_wait_for_a_flush(rig: Rig) -> None:
    rig.append("held")
    rig.replicas.write_pending()
    rig.append("unwritten")
    rig.replicas.remove("t")
    assert rig.answers() == [("held", GONE, -1), ("unwritten", GONE, -1)]
    assert rig.sync() == [], "once"


def test_settings_change_while_appends_wait_for_a_flush(rig: Rig) -> None:
    rig.append("held")
    rig.replicas.write_pending()
    rig.partition.configure(replace(EVERY, flush_messages=2**63 - 1))
    rig.append("behind")
    rig.replicas.write_pending()
    assert rig.answers() == []
    assert [name for name, *_ in rig.sync()] == ["held", "behind"]
    rig.append("free")
    rig.replicas.write_pending()
    assert rig.answers() == [("free", 0, 2)] and rig.jobs.waiting == 0


def test_duplicate_batch_waits_for_the_flush_of_the_first(rig: Rig) -> None:
    def send(name: str) -> None:
        def done(append: Append) -> None:
            rig.outcomes.append((name, append.error, append.base_offset))

        data = batch(1, producer_id=5, producer_epoch=0, base_sequence=0)
        rig.partition.append(Append(memoryview(data), -1, done))
        rig.replicas.write_pending()

    send("first")
    send("again")
    assert rig.answers() == []
    assert rig.sync() == [("first", 0, 0), ("again", 0, 0)]
    assert rig.partition.high_watermark == 1


def test_reads_never_go_beyond_the_flushed_offset(rig: Rig) -> None:
    """Over many passes and rounds: the high watermark stays at or below what the twin saw synced."""
    log = rig.partition.log
    assert log is not None
    synced = 0

    def watch(operation: str, path: str) -> None:
        nonlocal synced
        if operation == "sync" and path == log.active.path(".log"):
            synced = int(log.log_end_offset)

    rig.disk.hook = watch
    for number in range(50):
        rig.append(str(number))
        rig.replicas.write_pending()
        if number % 7 == 3:
            rig.sync()
        assert rig.partition.high_watermark <= synced
    rig.sync()
    assert isinstance(log.active.opened, File) and rig.partition.high_watermark == synced == 50
