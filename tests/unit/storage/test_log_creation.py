"""Files of many new partitions: by few calls on the plain disk, step by step on any other, and synced together."""

import contextlib
import errno
import random
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Outcome
from kafkalite.config.broker import BrokerConfig
from kafkalite.storage.log_closing import MANY_FILES
from kafkalite.storage.log_creation import NewPartition, create_files
from kafkalite.storage.manager import LogManager
from kafkalite.testing.faulty_disk import Crash, FaultyDisk
from kafkalite.testing.virtual_clock import InlineOffload, SeededRandom, VirtualClock
from tests.unit.storage.damage import CONFIG
from tests.unit.storage.test_manager import Kit

TOPIC_ID = bytes(range(16))
CRASH_STEPS = 60  # more than a creation of three partitions has
DIRECTORIES = 1_500  # above the recursion limit of Python


def wanted(count: int, topic: str = "t") -> list[NewPartition]:
    return [NewPartition(topic, index, TOPIC_ID, 3) for index in range(count)]


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("many_files", [0, MANY_FILES])
@pytest.mark.parametrize("disk", [Disk(), FaultyDisk()], ids=["plain", "twin"])
def test_every_disk_gets_the_same_files(tmp_path: Path, disk: Disk, many_files: int) -> None:
    assert create_files(disk, str(tmp_path), wanted(10), set(), many_files) == {}
    made = contents(tmp_path)
    assert len(made) == 30
    for index in range(10):
        assert made[f"t-{index}/00000000000000000000.log"] == b""
        assert made[f"t-{index}/leader-epoch-checkpoint"] == b"0\n1\n3 0\n"
        assert made[f"t-{index}/partition.metadata"] == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.parametrize("disk", [Disk(), FaultyDisk()], ids=["plain", "twin"])
def test_existing_records_are_kept_and_the_other_partitions_are_created(tmp_path: Path, disk: Disk) -> None:
    (tmp_path / "t-1").mkdir()
    (tmp_path / "t-1/00000000000000000000.log").write_bytes(b"records")
    (tmp_path / "t-2").mkdir()  # what an interrupted creation left
    (tmp_path / "t-2/00000000000000000000.log").touch()
    (tmp_path / "t-2/leader-epoch-checkpoint").write_bytes(b"something longer than the new content")
    (tmp_path / "t-3").write_bytes(b"a file")
    failed = create_files(disk, str(tmp_path), wanted(5), set())
    assert {key: error.errno for key, error in failed.items()} == {("t", 1): errno.EEXIST, ("t", 3): errno.ENOTDIR}
    made = contents(tmp_path)
    assert made["t-1/00000000000000000000.log"] == b"records"
    assert made["t-2/leader-epoch-checkpoint"] == b"0\n1\n3 0\n"
    assert {name for name in made if name.endswith("metadata")} == {f"t-{at}/partition.metadata" for at in (0, 2, 4)}


def test_a_long_name_fails_alone(tmp_path: Path) -> None:
    new = [*wanted(1), NewPartition("x" * 249, 1_000_000, TOPIC_ID), *wanted(3)[1:]]
    failed = create_files(Disk(), str(tmp_path), new, set())
    assert [error.errno for error in failed.values()] == [errno.ENAMETOOLONG]
    assert len(contents(tmp_path)) == 9


def test_many_files_are_synced_by_two_calls(tmp_path: Path) -> None:
    disk = FaultyDisk()
    create_files(disk, str(tmp_path), wanted(MANY_FILES // 3 + 1), set())
    assert (disk.counts["sync_all"], disk.counts["sync"], disk.counts["sync_dir"]) == (2, 0, 0)


@pytest.mark.parametrize("many_files", [0, MANY_FILES])
@pytest.mark.parametrize("disk", [Disk(), FaultyDisk()], ids=["plain", "twin"])
def test_recorded_partitions_get_the_same_files(tmp_path: Path, disk: Disk, many_files: int) -> None:
    for name, recorded in (("marked", False), ("recorded", True)):
        (tmp_path / name).mkdir()
        assert create_files(disk, str(tmp_path / name), wanted(10), set(), many_files, recorded=recorded) == {}
    assert contents(tmp_path / "recorded") == contents(tmp_path / "marked")


@pytest.mark.parametrize("many_files", [0, MANY_FILES])
def test_recorded_partitions_are_on_the_disk_after_one_sync(tmp_path: Path, many_files: int) -> None:
    disk = FaultyDisk()
    create_files(disk, str(tmp_path), wanted(3), set(), many_files, recorded=True)
    counts = (disk.counts["sync_all"], disk.counts["sync"], disk.counts["sync_dir"], disk.counts["rename"])
    assert counts == ((0, 6, 4, 0) if many_files else (1, 0, 0, 0))
    made = contents(tmp_path)
    assert disk.crash(random.Random(1)) == 0 and contents(tmp_path) == made


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("seed", range(2))
def test_unrecorded_partitions_are_created_again_after_a_crash_at_every_step(
    tmp_path: Path, seed: int, power_cut: bool
) -> None:
    """Without a record any part of the files may be left, in any order."""
    for step in range(CRASH_STEPS):
        kit = Kit(tmp_path / str(step)).open()
        outcomes: list[Outcome] = []
        kit.disk.stop_at = kit.disk.steps + step
        with contextlib.suppress(Crash):
            kit.manager.create(str(tmp_path / str(step)), wanted(3), outcomes.append, recorded=True)
            kit.offload.drain()
        kit.disk.crashed = True
        kit.manager.unlock()
        if power_cut:
            kit.disk.crash(random.Random(seed * CRASH_STEPS + step))
        again = Kit(tmp_path / str(step)).open()
        for new in wanted(3):
            again.manager.delete_unrecorded(new.key, 0)
        again.manager.create(str(tmp_path / str(step)), wanted(3), outcomes.append, recorded=True)
        again.offload.drain()
        assert outcomes[-1].result() == {}
        for new in wanted(3):
            log = again.manager.open_created(*new.key, CONFIG)
            assert (log.log_end_offset, log.epochs.entries) == (0, [(3, 0)])
        assert again.restart().manager.topic_ids[wanted(1)[0].key] == TOPIC_ID


def test_few_files_are_synced_one_by_one(tmp_path: Path) -> None:
    disk = FaultyDisk()
    create_files(disk, str(tmp_path), wanted(3), set())
    assert (disk.counts["sync_all"], disk.counts["sync"], disk.counts["sync_dir"]) == (0, 6, 4)


def test_each_file_is_synced_where_a_sync_of_all_reports_no_errors(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.sync_all_reports = False
    create_files(disk, str(tmp_path), wanted(3), set(), 0)
    assert (disk.counts["sync_all"], disk.counts["sync"], disk.counts["sync_dir"]) == (0, 6, 4)


def test_a_failed_write_of_another_file_fails_no_creation(tmp_path: Path) -> None:
    disk = FaultyDisk()
    other = disk.open(str(tmp_path / "other"), create=True)
    other.pwrite(b"lost", 0)
    disk.lose_writes(str(tmp_path / "other"))
    assert create_files(disk, str(tmp_path), wanted(3), set(), 0) == {}
    assert (disk.counts["sync_all"], disk.counts["sync"], disk.counts["sync_dir"]) == (2, 6, 4)


def test_a_lost_write_of_a_new_file_fails_the_batch(tmp_path: Path) -> None:
    disk = FaultyDisk()
    path = str(tmp_path / "t-1/leader-epoch-checkpoint")

    def lose(operation: str, _path: str) -> None:
        if operation == "sync_all" and not lost:
            lost.append(path)
            disk.lose_writes(path)

    lost: list[str] = []
    disk.hook = lose
    with pytest.raises(OSError, match="leader-epoch-checkpoint"):
        create_files(disk, str(tmp_path), wanted(3), set(), 0)
    assert not [name for name in contents(tmp_path) if name.endswith("metadata")], "no partition is complete"


def test_partitions_wait_for_the_jobs_in_thousands_of_directories(tmp_path: Path) -> None:
    """Before, each directory took a call within the call of the one before."""
    offload = InlineOffload()
    logs = LogManager(Disk(), [str(tmp_path)], VirtualClock(), offload, SeededRandom(1))
    logs.lock()
    logs.load(lambda topic: BrokerConfig().topic_defaults)
    new = wanted(DIRECTORIES)
    path = logs.directories()[0]
    held = [logs.holds.enter(new[at].directory(path)) for at in (0, DIRECTORIES // 2, DIRECTORIES - 1)]
    outcomes: list[Outcome] = []
    logs.create(path, new, outcomes.append)
    for release in held:
        assert offload.waiting == 0
        release()
    offload.drain()
    assert [outcome.result() for outcome in outcomes] == [{}] and len(logs.created) == DIRECTORIES
    logs.unlock()


def test_a_created_partition_is_opened_without_a_read_of_its_leader_epoch(tmp_path: Path) -> None:
    """As first appends to thousands of partitions are opened on the loop; after a start the file is read."""
    kit = Kit(tmp_path).open()
    kit.manager.create(str(tmp_path), wanted(1), Outcome.result)
    kit.offload.drain()
    opened: list[str] = []
    kit.disk.hook = lambda operation, path: opened.append(path) if operation == "open" else None
    assert kit.manager.open_created("t", 0, CONFIG).epochs.entries == [(3, 0)]
    assert opened == [str(tmp_path / "t-0/00000000000000000000.log")]


def test_a_created_partition_keeps_its_leader_epoch_over_a_start(tmp_path: Path) -> None:
    kit = Kit(tmp_path).open()
    kit.manager.create(str(tmp_path), wanted(1), Outcome.result)
    kit.offload.drain()
    again = kit.restart()
    assert again.manager.open_created("t", 0, CONFIG).epochs.entries == [(3, 0)]
    again.manager.unlock()


def test_a_leader_epoch_of_lost_records_is_removed_at_the_start(tmp_path: Path) -> None:
    """A power cut after DeleteRecords may leave the leader epochs of a log, and nothing else of its records."""
    kit = Kit(tmp_path).open()
    kit.manager.create(str(tmp_path), wanted(1), Outcome.result)
    kit.offload.drain()
    (tmp_path / "t-0/leader-epoch-checkpoint").write_bytes(b"0\n1\n3 8\n")
    again = kit.restart(clean=False)
    log = again.manager.find("t", 0)
    assert log is not None and (log.log_end_offset, log.epochs.entries) == (0, [])
    again.manager.unlock()
