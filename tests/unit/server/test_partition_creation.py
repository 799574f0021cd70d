"""Tests the creation of partition files: in the background and in batches, waiting appends first."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.cluster.metadata.image import PartitionImage, TopicImage
from kafkalite.cluster.partition.append import Append
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.replicas import Replicas
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.server.hosting.hosted_partitions import HostedPartitions
from kafkalite.server.hosting.partition_creation import BACKGROUND_BATCH, BACKGROUND_S, BATCH, NOTED
from kafkalite.slicing import Slicer
from kafkalite.storage.manager import LogManager
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import InlineOffload, SeededRandom, VirtualClock
from tests.kit.descriptors import open_descriptors
from tests.kit.server import batch
from tests.unit.server.test_hosted_partitions import Notes, reraise

STORAGE = KafkaErrorCode.KAFKA_STORAGE_ERROR
UNKNOWN = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class BatchNotes(Notes):
    """Also counts the transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.refused: set[bytes] = set()

    def note_directories(self, partitions, directory, then) -> None:  # type: ignore[no-untyped-def]
        wanted = list(partitions)
        self.sizes.append(len(wanted))
        if any(topic_id in self.refused for topic_id, _ in wanted):
            then(UNKNOWN)
        else:
            super().note_directories(wanted, directory, then)


class Rig:
    """A broker's partitions without a broker; `creations`: the offload of nothing else."""

    def __init__(self, data: Path) -> None:
        self.clock, self.disk, self.replicas, self.notes = VirtualClock(), FaultyDisk(), Replicas(), BatchNotes()
        self.offload, self.creations = InlineOffload(), InlineOffload()
        self.data = data
        self.logs = LogManager(
            self.disk, [str(data)], self.clock, self.offload, SeededRandom(1), creations=self.creations
        )
        self.logs.lock()
        self.logs.load(lambda topic: BrokerConfig().topic_defaults)
        self.slicer = Slicer(self.clock, reraise)
        self.hosting = HostedPartitions(
            BrokerConfig(), self.clock, self.offload, self.slicer, self.replicas, self.logs, self.notes
        )
        self.outcomes: list[tuple[int, int]] = []

    def image(self, topic: str, partitions: int, topic_id: int = 1) -> TopicImage:
        image = PartitionImage((1,), (1,), 1, 3)
        return TopicImage(topic, bytes(15) + bytes([topic_id]), (image,) * partitions, {})

    def host(self, topic: str, partitions: int, topic_id: int = 1) -> list[Partition]:
        self.hosting.apply(self.image(topic, partitions, topic_id))
        return self.partitions(topic, partitions)

    def partitions(self, topic: str, count: int) -> list[Partition]:
        found = [self.replicas.partition(topic, b"", index, by_id=False) for index in range(count)]
        return [partition for partition in found if isinstance(partition, Partition)]

    def append(self, partition: Partition) -> None:
        partition.append(
            Append(
                memoryview(bytearray(batch(b"x"))),
                -1,
                lambda done: self.outcomes.append((done.error, done.base_offset)),
            )
        )

    def run_until_idle(self) -> list[tuple[int, int]]:
        self.clock.advance(0)  # a batch begins in the next loop iteration
        while self.creations.drain() or self.offload.drain():
            for _ in range(BATCH // NOTED):  # a large batch is recorded in several loop iterations
                self.clock.advance(0)
        self.replicas.write_pending()
        outcomes, self.outcomes = self.outcomes, []
        return outcomes

    def pause(self) -> None:
        """One pause between two batches in the background."""
        self.clock.advance(BACKGROUND_S * 1000)
        self.run_until_idle()

    @property
    def directories(self) -> set[str]:
        """Directories of partitions, without those that a deletion has renamed."""
        return {path.name for path in self.data.iterdir() if path.is_dir() and not path.name.endswith("-delete")}

    def restart(self, noted: dict[tuple[bytes, int], str], *topics: TopicImage) -> "Rig":
        self.hosting.close()
        self.logs.finish_flushes()
        self.logs.close()
        self.logs.unlock()
        again = Rig(self.data)
        again.hosting.load(topics, lambda topic_id, index: noted.get((topic_id, index)))
        return again


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.logs.unlock()


def open_segments(data: Path) -> list[str]:
    """The partitions of which a segment is open in this process."""
    found = map(Path, open_descriptors().values())
    return sorted(path.parent.name for path in found if path.suffix == ".log" and data in path.parents)


def test_append_before_background_creation_creates_the_files_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    create_each, late = rig.hosting._create_each, list[list[Partition]]()
    monkeypatch.setattr(rig.hosting, "_create_each", lambda partitions: late.append(list(partitions)))
    partitions = rig.host("t", 3)
    rig.append(partitions[1])
    rig.append(partitions[2])
    rig.run_until_idle()
    rig.hosting.drop("t")
    rig.append(rig.host("t", 3, topic_id=2)[1])
    assert rig.run_until_idle()[-1:] == [(0, 0)] and rig.directories >= {"t-1"}
    for queued in late:
        create_each(queued)
    rig.pause()
    rig.pause()
    assert {name for name in rig.directories if not name.endswith("-delete")} == {"t-0", "t-1", "t-2"}
    assert len(rig.logs.created) == 2, "of the partitions without records"


def test_files_are_created_in_the_background_in_batches_without_descriptors(rig: Rig) -> None:
    count = 3 * BACKGROUND_BATCH
    partitions = rig.host("t", count)
    assert rig.directories == set(), "not in the request that creates the topic"
    seen = []
    for _ in range(4):
        rig.pause()
        seen.append(len(rig.directories))
    assert seen == [BACKGROUND_BATCH, 2 * BACKGROUND_BATCH, count, count], "at a bounded rate"
    assert rig.notes.sizes == [BACKGROUND_BATCH] * 3, "one transaction per batch"
    assert rig.disk.trace.count(("sync_dir", str(rig.data))) == 3, "one sync of the log directory per batch"
    assert open_segments(rig.data) == [] and all(partition.log is None for partition in partitions)
    assert rig.clock.timers == 0


def test_partitions_with_a_waiting_append_come_first(rig: Rig) -> None:
    partitions = rig.host("t", 3 * BACKGROUND_BATCH)
    rig.append(partitions[-1])
    assert rig.run_until_idle() == [(0, 0)]
    assert rig.directories == {"t-0", f"t-{len(partitions) - 1}"}, "and another one for each of them"
    assert open_segments(rig.data) == [f"t-{len(partitions) - 1}"]
    rig.pause()
    assert len(rig.directories) == 2 + BACKGROUND_BATCH


def test_half_as_many_others_come_with_waiting_appends(rig: Rig) -> None:
    """More would delay the appends; the client may append to the others next."""
    partitions = rig.host("t", 3 * BACKGROUND_BATCH)
    for partition in partitions[:10]:
        rig.append(partition)
    assert rig.run_until_idle() == [(0, 0)] * 10
    assert len(rig.directories) == 15


def test_appends_of_one_loop_iteration_share_a_batch(rig: Rig) -> None:
    for partition in rig.host("t", 10):
        rig.append(partition)
    assert rig.run_until_idle() == [(0, 0)] * 10
    assert rig.notes.sizes == [10]


def test_appends_during_a_batch_share_the_next_one(rig: Rig) -> None:
    rig.creations.held = True
    partitions = rig.host("t", BATCH + 2)
    for partition in partitions:
        rig.append(partition)
        rig.clock.advance(0)
    rig.creations.release()
    assert rig.run_until_idle() == [(0, 0)] * (BATCH + 2)
    assert rig.notes.sizes == [2, *[NOTED] * (BATCH // NOTED)]


def test_the_background_waits_while_appends_create_partitions(rig: Rig) -> None:
    partitions = rig.host("t", 4 * BACKGROUND_BATCH)
    for count in range(1, 4):
        rig.clock.advance(BACKGROUND_S * 1000 - 1)
        rig.append(partitions[-count])
        assert rig.run_until_idle() == [(0, 0)]
        assert len(rig.directories) == 2 * count, "no batch of the background in between"


def test_created_partition_is_opened_without_a_job(rig: Rig) -> None:
    (partition,) = rig.host("t", 1)
    rig.pause()
    rig.creations.held = True
    rig.append(partition)
    rig.replicas.write_pending()
    assert rig.outcomes == [(0, 0)]
    assert partition.log is not None and partition.log.epochs.entries == [(3, 0)]


def test_other_jobs_do_not_wait_for_creations(rig: Rig) -> None:
    rig.creations.held = True
    (partition,) = rig.host("t", 1)
    rig.append(partition)
    answered = []
    rig.offload.run(abs, -1, done=lambda outcome: answered.append(outcome.result()))
    rig.clock.advance(0)
    rig.offload.drain()
    assert (answered, rig.creations.waiting) == ([1], 1)
    rig.creations.release()
    assert rig.run_until_idle() == [(0, 0)]


def test_failed_creation_fails_only_its_partition(rig: Rig) -> None:
    partitions = rig.host("t", 4)
    rig.creations.held = True
    for partition in partitions:
        rig.append(partition)
    rig.disk.fail("open", errno.ENOSPC, path=str(rig.data / "t-2"))
    rig.creations.release()
    assert sorted(rig.run_until_idle()) == [(0, 0)] * 3 + [(STORAGE, -1)]
    rig.append(partitions[2])
    assert rig.run_until_idle() == [(0, 0)]


def test_a_log_that_cannot_be_opened_is_logged_once_a_minute(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Producers repeat their requests ten times a second."""
    (partition,) = rig.host("t", 1)
    rig.pause()  # its files are created

    def appended_lines() -> list[str]:
        caplog.clear()
        rig.disk.fail("open", errno.EMFILE, path=str(rig.data / "t-0"))
        rig.append(partition)
        assert rig.run_until_idle() == [(STORAGE, -1)]
        return [line for line in caplog.messages if "cannot open the log" in line]

    found = [appended_lines() for _ in range(20)]
    assert [len(lines) for lines in found] == [1] + [0] * 19
    assert found[0][0].startswith("t-0: cannot open the log: ")
    rig.clock.advance(60_000)
    (line,) = appended_lines()
    assert line.endswith("(19 more like this since the last line)")
    rig.append(partition)
    assert rig.run_until_idle() == [(0, 0)]


def test_failed_fsync_rejects_the_batch_and_takes_the_directory_offline(rig: Rig) -> None:
    (partition,) = rig.host("t", 1)
    rig.disk.fail("sync_dir", errno.EIO)
    rig.append(partition)
    assert rig.run_until_idle() == [(STORAGE, -1)]
    assert not rig.logs.any_online


def test_topic_deleted_before_its_record_fails_alone(rig: Rig) -> None:
    kept, gone = rig.host("kept", 2), rig.host("gone", 2, topic_id=2)
    rig.notes.refused.add(gone[0].topic_id)
    rig.pause()
    assert rig.notes.sizes == [4, 1, 1, 1, 1]
    assert set(rig.logs.created) == {("kept", 0), ("kept", 1)}
    assert rig.directories == {"kept-0", "kept-1"}
    for partition in kept:
        rig.append(partition)
    assert rig.run_until_idle() == [(0, 0)] * 2


@pytest.mark.parametrize("moment", ["queued", "in progress", "files are there", "created"])
def test_topic_is_deleted_and_recreated_during_creation(rig: Rig, moment: str) -> None:
    (old,) = rig.host("t", 1)
    if moment == "in progress":
        rig.creations.held = True
        rig.clock.advance(BACKGROUND_S * 1000)
    elif moment == "files are there":
        rig.notes.held = []
        rig.pause()
    elif moment == "created":
        rig.pause()
    rig.hosting.drop("t")
    (new,) = rig.host("t", 1, topic_id=2)
    rig.append(new)
    rig.creations.release()
    rig.run_until_idle()
    held, rig.notes.held = rig.notes.held or [], None
    for then in held:
        then(0)
    rig.run_until_idle()
    assert new.log is not None and new.log.log_end_offset == 1 and old.log is None
    assert rig.logs.topic_ids["t", 0] == new.topic_id
    assert rig.directories == {"t-0"}


def test_empty_partitions_are_loaded_and_not_opened(rig: Rig) -> None:
    partitions = rig.host("t", 4)
    rig.pause()
    rig.append(partitions[1])
    rig.run_until_idle()
    noted = {(partition.topic_id, partition.index): str(rig.data) for partition in partitions}
    again = rig.restart(noted, rig.image("t", 4))
    assert sorted(again.logs.created) == [("t", 0), ("t", 2), ("t", 3)]
    assert set(open_segments(rig.data)) == {"t-1"}
    for partition in again.partitions("t", 4):
        again.append(partition)
    assert sorted(again.run_until_idle()) == [(0, 0), (0, 0), (0, 0), (0, 1)]
    again.logs.unlock()


def test_unrecorded_partition_is_created_again_and_recorded(rig: Rig) -> None:
    rig.host("t", 2)
    rig.notes.held = []
    rig.pause()
    again = rig.restart({}, rig.image("t", 2))
    assert again.logs.created == {}
    again.pause()
    assert sorted(again.notes.noted) == [(bytes(15) + b"\x01", 0), (bytes(15) + b"\x01", 1)]
    assert len(again.logs.created) == 2
    again.logs.unlock()


def test_empty_partition_of_unknown_topic_becomes_a_stray(rig: Rig) -> None:
    rig.host("t", 1)
    rig.pause()
    again = rig.restart({})
    assert [name.split(".")[0] for name in again.directories] == ["t-0"] and again.logs.strays
    again.logs.unlock()


def test_failed_log_directory_takes_created_partitions_offline(rig: Rig) -> None:
    (partition,) = rig.host("t", 1)
    rig.pause()
    rig.logs.take_offline(str(rig.data), OSError(errno.EIO, "planted"))
    assert partition.error == STORAGE


def test_closed_creator_creates_nothing(rig: Rig) -> None:
    rig.host("t", 2 * BACKGROUND_BATCH)
    rig.pause()
    rig.hosting.close()
    for _ in range(3):
        rig.pause()
    assert len(rig.directories) == BACKGROUND_BATCH
