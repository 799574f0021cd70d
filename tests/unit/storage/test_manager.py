"""All logs of a broker: directories, start, deletion, retention, checkpoints, trouble."""

import errno
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.config.topic import TopicConfig
from kafkalite.model import TopicPartition
from kafkalite.storage import checkpoints
from kafkalite.storage.checkpoint_writer import CheckpointWriter
from kafkalite.storage.dirs.log_directory import DirectoryError, Identity
from kafkalite.storage.dirs_in_use import DirectoriesInUse
from kafkalite.storage.log.log import Log
from kafkalite.storage.log_creation import LogCreator, NewPartition
from kafkalite.storage.log_deletion import LogDeleter
from kafkalite.storage.manager import LogManager
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import START_WALL_MS, InlineOffload, SeededRandom, VirtualClock
from tests.kit.logs import read_log
from tests.unit.storage.damage import CONFIG, batch, made

US = Identity("a2Fma2FsaXRlLXRlc3RzMQ", 1)
TOPIC_ID = bytes(range(16))


class Kit:
    """A manager with its twins."""

    def __init__(self, *paths: Path, config: TopicConfig = CONFIG, wall_ms: int = START_WALL_MS) -> None:
        self.disk = FaultyDisk()
        self.clock = VirtualClock(wall_ms)
        self.offload = InlineOffload()
        self.offline: list[Log] = []
        self.config = config
        self.manager = LogManager(
            self.disk, [str(path) for path in paths], self.clock, self.offload, SeededRandom(1),
            on_offline=self.offline.extend,
        )  # fmt: skip

    def open(self) -> "Kit":
        self.manager.lock()
        self.manager.claim(US)
        self.loaded = self.manager.load(lambda topic: self.config)
        return self

    def create(self, topic: str = "t", partition: int = 0, batches: int = 0) -> Log:
        path = self.manager.choose_directory()
        assert path is not None
        log = made(self.manager, self.offload, path, topic, partition, TOPIC_ID, self.config)
        fill(log, batches)
        return log

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.offload.drain()

    def restart(self, clean: bool = True, full: bool = False) -> "Kit":
        """End and start again; `full`: no checkpoint can be written meanwhile."""
        if clean:
            self.manager.close()
        self.manager.unlock()
        again = Kit(*map(Path, self.manager.directories()), config=self.config)
        if full:
            again.disk.fail("write", errno.ENOSPC, path="-checkpoint", repeat=True)
        return again.open()


def fill(log: Log, batches: int) -> None:
    for number in range(batches):
        log.append(batch(3, 1_000 * number), None, 0)
        assert log.write() == 0


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path / "data").open()
    yield kit
    kit.manager.unlock()


def test_a_new_directory_gets_kafkas_files(tmp_path: Path, kit: Kit) -> None:
    kit.create("orders", 3, batches=2)
    kit.manager.close()
    data = tmp_path / "data"
    lines = (data / "meta.properties").read_text().splitlines()
    assert lines[:2] + lines[3:] == ["broker.id=1", f"cluster.id={US.cluster_id}", "version=0"]
    assert lines[2] == f"directory.id={kit.manager.directory_id(str(data))}" and len(lines[2]) == 13 + 22
    assert (data / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
    assert (data / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 3 6\n"
    assert (data / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    assert (data / "orders-3" / "partition.metadata").read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert (data / "orders-3" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_logs_are_loaded_after_a_restart(kit: Kit) -> None:
    kit.create("t", 0, batches=60)
    kit.create("a.b-c", 7)
    again = kit.restart()
    assert [loaded.clean for loaded in again.loaded] == [True]
    log = again.manager.find("t", 0)
    assert log is not None
    assert log.log_end_offset == 180
    assert again.manager.topic_ids == {("t", 0): TOPIC_ID, ("a.b-c", 7): TOPIC_ID}
    after_a_kill = again.restart(clean=False)
    assert [loaded.clean for loaded in after_a_kill.loaded] == [False]
    found = after_a_kill.manager.find("t", 0)
    assert found is not None
    assert found.log_end_offset == 180
    after_a_kill.manager.unlock()


def test_a_second_broker_is_refused_in_this_process(tmp_path: Path, kit: Kit) -> None:
    with pytest.raises(DirectoryError, match="another broker uses this log directory"):
        Kit(tmp_path / "other", tmp_path / "data").manager.lock()
    Kit(tmp_path / "other").manager.lock()


def test_a_second_broker_is_refused_in_another_process(tmp_path: Path, kit: Kit) -> None:
    path = tmp_path / "data" / ".lock"
    posix = f"import fcntl; fcntl.lockf(open({str(path)!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    done = subprocess.run([sys.executable, "-c", posix], capture_output=True, text=True)
    assert "BlockingIOError" in done.stderr, "a POSIX lock, as Java takes it, is refused"


def test_a_posix_lock_refuses_us(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    hold = (
        f"import fcntl, sys; f = open({str(path / '.lock')!r}, 'w'); fcntl.lockf(f, fcntl.LOCK_EX);"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(DirectoryError, match="another broker"):
            Kit(path).manager.lock()
        assert other.stdin is not None
        other.stdin.close()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("version=0\nbroker.id=2\ncluster.id=a2Fma2FsaXRlLXRlc3RzMQ\n", "belongs to broker 2, not 1"),
        ("version=0\nbroker.id=1\ncluster.id=somebody-else\n", "belongs to cluster somebody-else"),
        ("version=1\nnode.id=1\ncluster.id=somebody-else\n", "belongs to cluster somebody-else"),
        ("version=0\n", "cluster.id or broker.id is missing"),
        ("broker.id=one\ncluster.id=x\n", "cluster.id or broker.id is missing"),
    ],
)
def test_foreign_directories_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    kit = Kit(tmp_path)
    with pytest.raises(DirectoryError, match=complaint):
        kit.manager.claim(US)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["meta.properties"]


def test_binary_meta_properties_are_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DirectoryError, match="not a properties file"):
        Kit(tmp_path).manager.claim(US)


def test_an_older_format_is_upgraded_and_a_newer_one_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    (tmp_path / "meta.properties").write_text(f"version=0\nbroker.id=1\ncluster.id={US.cluster_id}\n")
    Kit(tmp_path).manager.claim(US)
    assert "upgraded from format 0 to 1" in caplog.text
    for text, complaint in (("2\n", "2 is newer than 1"), ("one", "is not a format version")):
        (tmp_path / ".kafkalite-format").write_text(text)
        with pytest.raises(DirectoryError, match=complaint):
            Kit(tmp_path).manager.claim(US)


def test_unusable_directory_is_one_error_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryError, match="cannot use this log directory: Not a directory"):
        Kit(tmp_path / "file" / "data").manager.lock()


def test_new_logs_go_where_the_fewest_are(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "a", tmp_path / "b").open()
    for partition in range(4):
        kit.create("t", partition)
    assert [len(kit.manager.logs_of(path)) for path in kit.manager.directories()] == [2, 2]
    kit.manager.unlock()


def test_a_deleted_log_is_renamed_now_and_removed_later(tmp_path: Path, kit: Kit) -> None:
    log = kit.create(batches=3)
    regions = read_log(log, 0, 1000, 9)
    assert isinstance(regions, list)
    kit.manager.delete(log)
    assert kit.manager.find("t", 0) is None
    (renamed,) = (tmp_path / "data").glob("t-0.*-delete")
    kit.create(batches=1)
    kit.advance(59_999)
    assert renamed.exists()
    kit.advance(2)
    assert not renamed.exists()
    assert len(regions[0].read()) == regions[0].length


def test_a_deletion_is_finished_at_the_next_start(tmp_path: Path, kit: Kit) -> None:
    kit.manager.delete(kit.create(batches=3))
    again = kit.restart(clean=False)
    again.offload.drain()
    assert not list((tmp_path / "data").glob("*-delete"))
    assert again.manager.find("t", 0) is None
    again.manager.unlock()


def test_retention_by_time_deletes_whole_segments_and_their_files(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "data", config=replace(CONFIG, retention_ms=30_000), wall_ms=100_000).open()
    log = kit.create(batches=120)
    kit.manager.upkeep.check_retention(lambda log: log.log_end_offset)
    kit.offload.drain()
    assert log.segments[0].max_timestamp >= 70_000
    assert log.log_start_offset == log.segments[0].base_offset > 0
    deleted = list((tmp_path / "data" / "t-0").glob("*.deleted"))
    assert deleted
    kit.advance(60_001)
    assert not [path for path in deleted if path.exists()]
    kit.advance(1_000_000)
    kit.manager.upkeep.check_retention(lambda log: log.log_end_offset)
    assert (len(log.segments), log.log_start_offset, log.log_end_offset, log.size) == (1, 360, 360, 0)
    kit.manager.unlock()


def test_retention_never_passes_the_high_watermark(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "data", config=replace(CONFIG, retention_ms=0)).open()
    log = kit.create(batches=120)
    kit.manager.upkeep.check_retention(lambda log: 160)
    assert log.log_start_offset == 150
    kit.manager.unlock()


def test_retention_by_size(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "data", config=replace(CONFIG, retention_ms=-1, retention_bytes=25_000)).open()
    log = kit.create(batches=120)
    kit.manager.upkeep.check_retention(lambda log: log.log_end_offset)
    assert 25_000 <= log.size < 25_000 + CONFIG.segment_bytes
    kit.manager.unlock()


def test_compacted_topic_loses_only_records_below_its_start(tmp_path: Path) -> None:
    config = replace(CONFIG, retention_ms=0, retention_bytes=0, cleanup_policy=("compact",))
    kit = Kit(tmp_path / "data", config=config).open()
    log = kit.create(batches=120)
    kit.manager.upkeep.check_retention(lambda log: log.log_end_offset)
    assert log.log_start_offset == 0
    log.delete_records_before(200)
    kit.manager.upkeep.check_retention(lambda log: log.log_end_offset)
    assert (log.log_start_offset, log.segments[0].base_offset) == (200, 150)
    kit.manager.unlock()


def test_the_periodic_work_runs(tmp_path: Path, kit: Kit) -> None:
    log = kit.create(batches=120)
    kit.manager.upkeep.start(lambda log: log.log_end_offset)
    kit.advance(30_001)
    assert log.recovery_point == log.active.base_offset
    kit.advance(60_001)  # retention rolled since the last sync: this round syncs it, the next one writes it down
    kit.advance(60_001)
    data = tmp_path / "data"
    recovery_points = checkpoints.read_offsets(Disk(), str(data / "recovery-point-offset-checkpoint"))
    assert recovery_points == {("t", 0): log.active.base_offset}


@pytest.mark.parametrize(("killed", "full"), [(False, False), (True, False), (True, True)])
def test_a_new_partition_does_not_inherit_the_checkpoints_of_a_deleted_one(kit: Kit, killed: bool, full: bool) -> None:
    log = kit.create(batches=20)
    log.delete_records_before(40)
    log.apply_flush(log.plan_flush())
    kit.manager.upkeep.checkpoint()
    kit.manager.upkeep.checkpoint_starts()
    kit.offload.drain()
    kit.manager.delete(log)
    if killed:
        kit = kit.restart(clean=False, full=full)
        assert kit.loaded[0].error is None
        kit.disk.heal()
    kit.create(batches=2)
    kit.offload.drain()
    again = kit.restart(clean=False)
    found = again.manager.find("t", 0)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == (0, 6)
    again.manager.unlock()


@pytest.mark.parametrize("closed", [False, True])
def test_changes_during_a_checkpoint_write_are_written_next(tmp_path: Path, closed: bool) -> None:
    offload, outcomes = InlineOffload(), []
    files = CheckpointWriter(Disk(), offload, lambda path, outcome: outcomes.append((path, outcome.error)))
    offload.held = True
    for offset in range(3):
        files.write(str(tmp_path), "recovery_points", partial(list, [f"t 0 {offset}"]))
    assert offload.waiting == 1
    if closed:
        files.close()
    offload.release()
    offload.drain()
    assert outcomes == [(str(tmp_path), None)] * (1 if closed else 2)
    assert (tmp_path / "recovery_points").read_text() == f"0\n1\nt 0 {0 if closed else 2}\n"


@pytest.mark.parametrize("closed", [False, True])
def test_creation_does_not_continue_after_close(tmp_path: Path, closed: bool) -> None:
    checkpoints_jobs, creations, path = InlineOffload(), InlineOffload(), str(tmp_path)
    disk, holds = Disk(), DirectoriesInUse()
    files = CheckpointWriter(disk, checkpoints_jobs, lambda path, outcome: None)
    deletions = LogDeleter(disk, VirtualClock(), InlineOffload(), SeededRandom(1), holds, lambda path, error: None)
    files.others[path][TopicPartition("t", 0)] = (5, 0)  # of a deleted partition: both checkpoints are written first
    creator = LogCreator(disk, creations, holds, deletions, files)
    creations.held = checkpoints_jobs.held = True
    creator.create(path, [NewPartition("t", 0, bytes(16))], lambda outcome: None)
    assert (checkpoints_jobs.waiting, creations.waiting) == (2, 0)
    if closed:
        files.close()
    checkpoints_jobs.release()
    checkpoints_jobs.drain()
    assert creations.waiting == (0 if closed else 1)


def test_silent_producers_are_forgotten_by_the_time_of_their_append(kit: Kit) -> None:
    log = kit.create()

    def send(sequence: int, timestamp: int) -> None:
        sent = batch(1, timestamp, producer_id=7, producer_epoch=0, base_sequence=sequence)
        assert log.append(sent, None, 0) >= 0
        assert log.write() == 0

    kit.manager.upkeep.start(lambda log: log.log_end_offset, producer_check_ms=1_000, producer_silent_ms=5_000)
    send(0, timestamp=0)  # in 1970
    kit.clock.jump_wall(10**9)
    kit.advance(5_500)
    assert len(log.producers) == 1
    send(1, timestamp=10**15)  # far ahead
    kit.advance(5_400)
    assert len(log.producers) == 1
    kit.advance(1_000)
    assert len(log.producers) == 0


def test_recovered_batches_count_as_appended_at_recovery(kit: Kit) -> None:
    log = kit.create()
    log.append(batch(1, 0, producer_id=7, producer_epoch=0, base_sequence=0), None, 0)
    assert log.write() == 0
    again = kit.restart()
    found = again.manager.find("t", 0)
    assert found is not None
    again.manager.upkeep.start(lambda log: log.log_end_offset, producer_check_ms=1_000, producer_silent_ms=5_000)
    again.advance(5_500)
    assert len(found.producers) == 1
    again.advance(1_000)
    assert len(found.producers) == 0


def test_records_deleted_stay_deleted(kit: Kit) -> None:
    kit.create(batches=10).delete_records_before(17)
    again = kit.restart()
    log = again.manager.find("t", 0)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (17, 30)
    again.manager.unlock()


def test_a_failed_sync_takes_only_its_directory_offline(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "a", tmp_path / "b").open()
    first, second = kit.create("t", 0, batches=120), kit.create("t", 1, batches=120)
    kit.disk.fail("sync", errno.EIO, path=first.directory)
    kit.manager.upkeep.checkpoint()
    kit.offload.drain()
    bad, good = first.root, second.root
    assert (kit.manager.is_online(bad), kit.manager.is_online(good)) == (False, True)
    assert kit.offline == [first]
    assert first.append(batch(), None, 0) < 0
    assert second.append(batch(), None, 0) == 360
    assert second.write() == 0
    assert kit.manager.choose_directory() == good
    kit.manager.close()
    marks = {path: (Path(path) / ".kafka_cleanshutdown").exists() for path in kit.manager.directories()}
    assert marks == {bad: False, good: True}
    kit.manager.unlock()


def test_write_that_cannot_be_undone_takes_the_directory_offline(tmp_path: Path, kit: Kit) -> None:
    log, other = kit.create("t", 0, batches=1), kit.create("t", 1, batches=1)
    kit.disk.fail("write", errno.EIO, path=log.directory, allowed=10)
    kit.disk.fail("truncate", errno.EIO)
    log.append(batch(), None, 0)
    assert log.write() != 0
    kit.manager.close()
    assert kit.offline == [log, other]
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    again = kit.restart(clean=False)
    found = again.manager.find("t", 0)
    assert found is not None
    assert (found.log_end_offset, again.loaded[0].bytes_dropped) == (3, 10)
    again.manager.unlock()


@pytest.mark.parametrize("garbage", [b"garbage", b"0\n1\n", b"0\n1\nt 0\n", b"0\n1\nt zero 5\n", b"\xff"])
def test_a_bad_checkpoint_means_an_unclean_start(tmp_path: Path, kit: Kit, garbage: bytes) -> None:
    kit.create(batches=10)
    kit.manager.close()
    (tmp_path / "data" / "recovery-point-offset-checkpoint").write_bytes(garbage)
    again = kit.restart(clean=False)
    assert not again.loaded[0].clean
    log = again.manager.find("t", 0)
    assert log is not None
    assert log.log_end_offset == 30
    again.manager.unlock()


def test_a_partition_that_cannot_be_recovered_is_refused_alone(tmp_path: Path, kit: Kit) -> None:
    kit.create("t", 0)
    kit.create("t", 1, batches=2)
    (tmp_path / "data" / "t-0" / "partition.metadata").write_text("version: 9\n")
    again = kit.restart()
    assert again.loaded[0].rejected.keys() == {str(tmp_path / "data" / "t-0")}
    assert again.manager.find("t", 0) is None
    assert again.manager.find("t", 1) is not None
    again.manager.unlock()


def test_foreign_names_are_left_alone(tmp_path: Path, kit: Kit) -> None:
    for name in ("lost+found", "t-0-future", "notes"):
        (tmp_path / "data" / name).mkdir()
    again = kit.restart()
    assert again.loaded[0].logs == []
    assert (tmp_path / "data" / "lost+found").exists()
    again.manager.unlock()


def test_space(kit: Kit) -> None:
    total, free = kit.manager.space(kit.manager.directories()[0])
    assert 0 < free <= total


def test_close_after_unlock_writes_nothing(kit: Kit) -> None:
    kit.create(batches=2)
    kit.manager.close()
    kit.manager.unlock()
    steps = kit.disk.steps
    kit.manager.close()
    assert kit.disk.steps == steps, "another broker may use the directory"


def test_clean_stop_with_a_refused_partition_leaves_the_other_partitions_clean(tmp_path: Path, kit: Kit) -> None:
    """Only a check of its batches finds this damage: a start that believes the clean mark would serve the partition."""
    data = tmp_path / "data"
    kit.create("t", 0, batches=2)
    kit.create("t", 1, batches=2)
    kit.manager.close()
    (data / ".kafka_cleanshutdown").unlink()
    path = data / "t-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    again = kit.restart(clean=False)
    assert again.loaded[0].rejected.keys() == {str(path.parent)}
    for _ in range(2):
        again = again.restart()
        assert again.loaded[0].clean and again.loaded[0].rejected.keys() == {str(path.parent)}
        assert ("t", 1) not in again.loaded[0].unclean
        assert (data / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 6\nt 1 6\n"
        assert path.read_bytes() == content
    again.manager.close()
    content[100] ^= 1
    path.write_bytes(content)
    restored = again.restart(clean=False)
    assert restored.loaded[0].rejected == {} and restored.loaded[0].unclean == {("t", 0)}
    restored.manager.close()
    assert (data / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
    restored.manager.unlock()


@pytest.mark.parametrize("mark", ["", '{"version":0,"brokerEpoch":7}', '{"version":0,"unclean":[]}'])
def test_clean_shutdown_mark_without_unclean_partitions_is_valid(tmp_path: Path, mark: str) -> None:
    (tmp_path / checkpoints.CLEAN_SHUTDOWN).write_text(mark)
    assert checkpoints.take_clean_shutdown(Disk(), str(tmp_path)) == set()
    assert checkpoints.take_clean_shutdown(Disk(), str(tmp_path)) is None


@pytest.mark.parametrize("mark", [b"garbage", b"\xff", b"[]", b"1", b'{"unclean":1}', b'{"unclean":[["t"]]}', b"{"])
def test_damaged_clean_shutdown_mark_is_an_unclean_end(tmp_path: Path, mark: bytes) -> None:
    (tmp_path / checkpoints.CLEAN_SHUTDOWN).write_bytes(mark)
    assert checkpoints.take_clean_shutdown(Disk(), str(tmp_path)) is None
    assert not (tmp_path / checkpoints.CLEAN_SHUTDOWN).exists()
