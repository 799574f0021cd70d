"""Tests partitions on a failing disk and with slow jobs: which appends fail, and which are delayed."""

import errno
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.cluster.metadata.image import PartitionImage, TopicImage
from kafkalite.cluster.partition.append import Append
from kafkalite.cluster.partition.delayed_fetch import DelayedFetch
from kafkalite.cluster.partition.partition import REFUSED_MAX, Partition
from kafkalite.cluster.partition.reads import read
from kafkalite.cluster.partition.validation import append_to_log
from kafkalite.cluster.replicas import Replicas
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.server.hosting.hosted_partitions import HostedPartitions
from kafkalite.slicing import Slicer
from kafkalite.storage.manager import LogManager
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import InlineOffload, SeededRandom, VirtualClock
from tests.kit.costly_clock import CostlyClock
from tests.kit.server import LZ4, batch, compressible, idempotent

STORAGE = KafkaErrorCode.KAFKA_STORAGE_ERROR


def reraise(callback: object, error: BaseException) -> None:
    raise error


class Notes:
    """A store of notes that answers at once, or when the test releases it."""

    keeps = True

    def __init__(self) -> None:
        self.error = 0
        self.held: list[Callable[[int], None]] | None = None
        self.noted: list[tuple[bytes, int]] = []

    def note_directories(
        self, partitions: Iterable[tuple[bytes, int]], directory: str, then: Callable[[int], None]
    ) -> None:
        self.noted += partitions
        if self.held is None:
            then(self.error)
        else:
            self.held.append(then)


class Rig:
    """One hosted topic `t` with one partition."""

    def __init__(self, data: Path) -> None:
        self.clock, self.offload, self.disk = VirtualClock(), InlineOffload(), FaultyDisk()
        self.replicas, self.notes = Replicas(), Notes()
        self.offline: list[object] = []
        self.logs = LogManager(
            self.disk, [str(data)], self.clock, self.offload, SeededRandom(1), on_offline=self.offline.extend
        )
        self.logs.lock()
        self.hosting = HostedPartitions(
            BrokerConfig(), self.clock, self.offload, Slicer(self.clock, reraise), self.replicas, self.logs, self.notes
        )
        self.outcomes: list[tuple[int, int]] = []
        self.partition = self.host()

    def host(self, topic_id: int = 1) -> Partition:
        image = PartitionImage((1,), (1,), 1, 0)
        self.hosting.apply(TopicImage("t", bytes(15) + bytes([topic_id]), (image,), {}))
        found = self.replicas.partition("t", b"", 0, by_id=False)
        assert isinstance(found, Partition)
        return found

    def append(self, records: bytes, partition: Partition | None = None) -> Append:
        append = Append(
            memoryview(bytearray(records)), -1, lambda done: self.outcomes.append((done.error, done.base_offset))
        )
        (partition or self.partition).append(append)
        return append

    def run_until_idle(self) -> list[tuple[int, int]]:
        """Wait for all work in progress; returns the responses since the last call, as (error, base offset)."""
        self.clock.advance(0)  # a creation begins in the next loop iteration
        self.offload.drain()
        self.replicas.write_pending()
        outcomes, self.outcomes = self.outcomes, []
        return outcomes


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.logs.unlock()


def test_append_is_answered_after_its_directory_is_recorded(rig: Rig) -> None:
    rig.notes.held = []
    rig.append(batch(b"a"))
    assert rig.run_until_idle() == []
    rig.append(batch(b"b"))
    (then,) = rig.notes.held
    then(0)
    assert rig.run_until_idle() == [(0, 0), (0, 1)]


def test_failed_directory_creation_rejects_the_append_and_is_retried(rig: Rig) -> None:
    rig.disk.fail("open", errno.ENOSPC)
    rig.append(batch(b"a"))
    rig.append(batch(b"b"))
    assert rig.run_until_idle() == [(STORAGE, -1), (STORAGE, -1)]
    rig.append(batch(b"c"))
    assert rig.run_until_idle() == [(0, 0)]


def test_failed_directory_record_rejects_the_append_and_is_retried(rig: Rig) -> None:
    rig.notes.error = STORAGE
    rig.append(batch(b"a"))
    assert rig.run_until_idle() == [(STORAGE, -1)]
    rig.notes.error = 0
    rig.append(batch(b"b"))
    assert rig.run_until_idle() == [(0, 0)]


def test_topic_deleted_while_its_log_is_opened(rig: Rig) -> None:
    rig.notes.held = []
    rig.append(batch(b"old"))
    rig.clock.advance(0)
    rig.offload.drain()
    rig.hosting.drop("t")
    new = rig.host(topic_id=2)
    rig.append(batch(b"new"), new)
    (then,) = rig.notes.held
    then(0)
    assert rig.run_until_idle() == [(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    rig.notes.held[1](0)
    assert rig.run_until_idle() == [(0, 0)]
    assert new.log is not None and new.log.log_end_offset == 1


def test_full_disk_fails_the_iteration_and_leaves_no_partial_batch(rig: Rig) -> None:
    rig.append(idempotent(b"a", sequence=0))
    assert rig.run_until_idle() == [(0, 0)]
    rig.disk.fail("write", errno.ENOSPC, allowed=10, path=".log")
    for sequence in (1, 2):
        rig.append(idempotent(b"lost", sequence=sequence))
    assert rig.run_until_idle() == [(STORAGE, -1), (STORAGE, -1)]
    assert rig.partition.high_watermark == 1
    rig.append(idempotent(b"b", sequence=1))
    assert rig.run_until_idle() == [(0, 1)]


def test_failed_write_completes_no_delayed_fetch(rig: Rig) -> None:
    rig.append(batch(b"a"))
    rig.run_until_idle()
    woken: list[int] = []
    DelayedFetch([rig.partition], 1, lambda: woken.append(1)).watch(rig.clock, 60.0)
    rig.disk.fail("write", errno.ENOSPC, path=".log")
    rig.append(batch(b"b"))
    assert rig.run_until_idle() == [(STORAGE, -1)] and woken == []
    rig.append(batch(b"b"))
    assert rig.run_until_idle() == [(0, 1)] and woken == [1]


def test_read_error_is_an_error_of_the_partition(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.append(batch(b"a"))
    rig.run_until_idle()
    rig.disk.fail("read", errno.EIO, repeat=True)
    found = read(rig.partition, 0, 1000, committed_only=False)
    assert found.error == STORAGE and "cannot read at offset 0" in caplog.text


def test_batches_behind_a_validation_job_keep_their_order(rig: Rig) -> None:
    rig.append(batch(b"open"))
    rig.run_until_idle()
    rig.offload.held = True
    rig.append(compressible(600_000, LZ4))
    for value in (b"1", b"2"):
        rig.append(batch(value))
    assert rig.run_until_idle() == []
    rig.offload.release()
    assert rig.run_until_idle() == [(0, 1), (0, 2), (0, 3)]


def test_queued_batches_are_copied_before_the_buffer_is_reused(rig: Rig) -> None:
    received = bytearray(batch(b"mine"))
    append = Append(memoryview(received), 1, lambda done: rig.outcomes.append((done.error, done.base_offset)))
    rig.partition.append(append)  # opens the log
    received[:] = bytes(len(received))
    assert rig.run_until_idle() == [(0, 0)]


def test_topic_deletion_rejects_appends_in_validation_jobs(rig: Rig) -> None:
    rig.append(batch(b"open"))
    rig.run_until_idle()
    rig.offload.held = True
    rig.append(compressible(600_000, LZ4))
    rig.append(batch(b"behind"))
    rig.hosting.drop("t")
    rig.offload.release()
    assert rig.run_until_idle() == [(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)] * 2


def test_exception_in_a_job_fails_only_its_batch(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.append(batch(b"open"))
    rig.run_until_idle()
    monkeypatch.setattr("kafkalite.cluster.partition.partition.validate_now", lambda *_: 1 // 0)
    rig.append(compressible(600_000, LZ4))
    rig.append(batch(b"behind"))
    with pytest.raises(ZeroDivisionError):
        rig.run_until_idle()
    assert rig.run_until_idle() == [(KafkaErrorCode.KAFKA_STORAGE_ERROR, -1), (0, 1)]


def test_validated_batch_that_is_rejected_does_not_delay_the_others(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.append(batch(b"open"))
    rig.run_until_idle()
    bugs = [1]
    monkeypatch.setattr(
        "kafkalite.cluster.partition.partition.append_to_log",
        lambda *args: 1 // 0 if bugs and bugs.pop() else append_to_log(*args),
    )
    rig.append(compressible(600_000, LZ4))
    rig.append(batch(b"behind"))
    with pytest.raises(ZeroDivisionError):
        rig.run_until_idle()
    assert rig.run_until_idle() == [(KafkaErrorCode.KAFKA_STORAGE_ERROR, -1), (0, 1)]
    rig.append(batch(b"later"))
    assert rig.run_until_idle() == [(0, 2)]


def test_exception_of_a_queued_batch_does_not_delay_the_others(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.append(batch(b"open"))
    for value in (b"bug", b"behind"):
        rig.append(batch(value))
    results: list[Callable[[], None]] = [lambda: None, lambda: 1 // 0 and None]
    monkeypatch.setattr(
        "kafkalite.cluster.partition.partition.append_to_log",
        lambda *args: (results.pop(0)() if results else None) or append_to_log(*args),
    )
    with pytest.raises(ZeroDivisionError):
        rig.run_until_idle()
    assert sorted(rig.run_until_idle()) == [(0, 0), (0, 1), (KafkaErrorCode.KAFKA_STORAGE_ERROR, -1)]


def test_job_that_cannot_start_fails_only_its_batch(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.append(batch(b"open"))
    rig.run_until_idle()
    with monkeypatch.context() as patched:
        patched.setattr(rig.offload, "run", lambda *_, **__: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            rig.append(compressible(600_000, LZ4))
    rig.append(batch(b"later"))
    assert rig.run_until_idle() == [(KafkaErrorCode.KAFKA_STORAGE_ERROR, -1), (0, 1)]


@pytest.mark.parametrize("disk_fails", [False, True])
def test_exception_in_a_completion_does_not_stop_the_others(rig: Rig, disk_fails: bool) -> None:
    rig.append(batch(b"open"))
    rig.run_until_idle()
    woken: list[str] = []
    for name, wake in (("bug", lambda: 1 // 0), ("waiter", lambda: None)):
        DelayedFetch([rig.partition], 1, lambda name=name, wake=wake: (woken.append(name), wake())).watch(
            rig.clock, 60.0
        )
    rig.append(batch(b"1"))
    rig.partition.append(Append(memoryview(bytearray(batch(b"2"))), -1, lambda _: {}["answer"]))
    rig.append(batch(b"3"))
    if disk_fails:
        rig.disk.fail("write", errno.ENOSPC, path=".log")
    with pytest.raises(KeyError, match="answer"):  # the first of what is raised
        rig.run_until_idle()
    assert rig.run_until_idle() == ([(STORAGE, -1)] * 2 if disk_fails else [(0, 1), (0, 3)])
    assert woken == ([] if disk_fails else ["bug", "waiter"])
    rig.partition.delayed_fetches.clear()
    rig.append(batch(b"later"))
    assert rig.run_until_idle() == [(0, 1 if disk_fails else 4)]


def test_duplicate_batch_fails_with_its_original_write(rig: Rig) -> None:
    rig.append(batch(b"open"))
    rig.run_until_idle()
    rig.disk.fail("write", errno.ENOSPC, path=".log")
    for _ in range(2):
        rig.append(idempotent(b"x", sequence=0))
    assert rig.run_until_idle() == [(STORAGE, -1), (STORAGE, -1)]
    rig.append(idempotent(b"x", sequence=0))
    assert rig.run_until_idle() == [(0, 1)]


def test_batches_behind_one_whose_log_could_not_be_created_wait_for_it(rig: Rig) -> None:
    rig.disk.fail("open", errno.ENOSPC)
    rig.append(idempotent(b"1", sequence=0))
    assert rig.run_until_idle() == [(STORAGE, -1)]
    rig.append(idempotent(b"2", sequence=1))
    assert rig.run_until_idle() == [(KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    for sequence in (0, 1):
        rig.append(idempotent(b"again", sequence=sequence))
    assert rig.run_until_idle() == [(0, 0), (0, 1)]


def test_first_batch_is_awaited_however_many_were_rejected_behind_it(rig: Rig) -> None:
    rig.disk.fail("open", errno.ENOSPC)
    for data in (idempotent(b"1", sequence=0), *[batch(b"other")] * REFUSED_MAX):
        rig.append(data)
    assert rig.run_until_idle() == [(STORAGE, -1)] * (1 + REFUSED_MAX)
    rig.append(idempotent(b"2", sequence=1))
    assert rig.run_until_idle() == [(KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]


def test_delayed_fetch_completes_once(rig: Rig) -> None:
    woken: list[str] = []
    waiter = DelayedFetch([rig.partition], 100, lambda: woken.append("now"))
    waiter.watch(rig.clock, 5.0)
    waiter.bytes_appended(99)
    assert woken == []
    waiter.bytes_appended(1)
    waiter.force_complete()
    rig.clock.advance(10_000)
    assert woken == ["now"] and rig.clock.timers == 0 and not rig.partition.delayed_fetches


def test_large_topic_is_hosted_changed_and_dropped_in_slices(rig: Rig) -> None:
    """No step blocks the loop; clients see nothing of a new topic before all of it is hosted."""
    rig.hosting._slicer = Slicer(CostlyClock(rig.clock), reraise)
    image = TopicImage("large", bytes(15) + b"L", (PartitionImage((1,), (1,), 1, 0),) * 500, {})
    ended: list[str] = []

    def iterations(count: int) -> None:
        for _ in range(count):
            rig.clock.advance(20)  # each look at the costly clock takes a millisecond

    rig.hosting.apply(image, lambda outcome: ended.append("hosted"))
    iterations(2)
    assert isinstance(rig.replicas.find("large", b"", by_id=False), int) and ended == []
    iterations(100)
    hosted = rig.replicas.find("large", b"", by_id=False)
    assert not isinstance(hosted, int) and len(hosted.partitions) == 500 and ended == ["hosted"]
    grown = replace(image, partitions=image.partitions * 2, configs={"max.message.bytes": "5000"})
    rig.hosting.apply(grown, lambda outcome: ended.append("grown"))
    iterations(2)
    assert len(hosted.partitions) == 500 and ended == ["hosted"]
    rig.hosting.configure(BrokerConfig({"log.retention.ms": "7000"}))
    iterations(300)
    assert len(hosted.partitions) == 1_000 and ended == ["hosted", "grown"]
    assert {(one.config.max_message_bytes, one.config.retention_ms) for one in hosted.partitions.values()} == {
        (5_000, 7_000)
    }
    rig.hosting.drop("large", lambda outcome: ended.append("dropped"))
    assert hosted.partitions[999].error == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "at once"
    assert ended == ["hosted", "grown"]
    iterations(300)
    assert ended == ["hosted", "grown", "dropped"]
