"""Several log directories: who gets a partition, what one that fails takes with it, and how each is known."""

import errno
import logging
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Outcome
from kafkalite.storage.dirs import log_directory
from kafkalite.storage.dirs.log_directory import FORMAT, FORMAT_VERSION, DirectoryError
from kafkalite.storage.log_creation import NewPartition
from kafkalite.storage.recovery.load_logs import load_directories
from tests.unit.storage.damage import CONFIG, filled
from tests.unit.storage.test_manager import TOPIC_ID, US, Kit, fill

DELAY_MS = 60_000


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path / "a", tmp_path / "b").open()
    yield kit
    kit.manager.unlock()


def test_new_partition_is_created_in_the_directory_with_the_fewest_logs(tmp_path: Path, kit: Kit) -> None:
    for partition in range(6):
        kit.create("t", partition)
    assert {len(kit.manager.logs_of(path)) for path in kit.manager.directories()} == {3}
    kit.manager.take_offline(str(tmp_path / "a"), OSError(errno.EIO, "broken"))
    assert kit.manager.choose_directory() == str(tmp_path / "b")


def test_a_failed_directory_takes_only_its_own_partitions(tmp_path: Path, kit: Kit) -> None:
    first, second = kit.create("t", 0), kit.create("t", 1)
    kit.manager.take_offline(first.root, OSError(errno.EIO, "broken"))
    assert kit.offline == [first]
    assert (first.failed, second.failed, kit.manager.any_online) == (True, False, True)
    fill(second, 2)
    kit.manager.take_offline(second.root, OSError(errno.EIO, "broken"))
    assert not kit.manager.any_online


def test_an_older_format_is_upgraded_step_by_step_with_a_line_each(
    tmp_path: Path, kit: Kit, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.manager.unlock()
    taken: list[tuple[int, str]] = []
    step = FORMAT_VERSION
    monkeypatch.setattr(log_directory, "FORMAT_VERSION", step + 2)
    monkeypatch.setitem(log_directory.UPGRADES, step, lambda disk, path: taken.append((step, path)))
    monkeypatch.setitem(log_directory.UPGRADES, step + 1, lambda disk, path: taken.append((step + 1, path)))
    (tmp_path / "b" / FORMAT).write_text(f"{step + 1}\n")
    with caplog.at_level(logging.INFO):
        kit.manager.lock()
        kit.manager.claim(US)
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert taken == [(step, a), (step + 1, a), (step + 1, b)]
    for older, path in taken:
        assert f"{path}: upgraded from format {older} to {older + 1}" in caplog.messages
    assert [(tmp_path / each / FORMAT).read_text() for each in "ab"] == [f"{step + 2}\n"] * 2


@pytest.mark.parametrize("name", [".lock", "meta.properties", ".kafkalite-format", "recovery-point-offset-checkpoint"])
def test_a_directory_that_does_not_read_at_start_leaves_the_others(
    tmp_path: Path, kit: Kit, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    for partition in (0, 1):
        kit.create("t", partition, batches=2)
    kit.manager.close()
    kit.manager.unlock()
    again = Kit(tmp_path / "a", tmp_path / "b")
    again.disk.fail("open" if name == ".lock" else "read", errno.EIO, path=str(tmp_path / "a" / name), repeat=True)
    again.open()
    assert [again.manager.is_online(str(tmp_path / which)) for which in "ab"] == [False, True]
    assert [log.log_end_offset for log in again.manager.all()] == [6]
    assert [record for record in caplog.records if str(tmp_path / "a") in record.getMessage()]
    again.manager.close()
    assert not (tmp_path / "a/.kafka_cleanshutdown").exists() or name != "recovery-point-offset-checkpoint"
    again.manager.unlock()


def test_when_no_directory_reads_there_is_no_start(tmp_path: Path, kit: Kit) -> None:
    kit.manager.unlock()
    again = Kit(tmp_path / "a", tmp_path / "b")
    again.disk.fail("read", errno.EIO, path="meta.properties", repeat=True)
    with pytest.raises(DirectoryError) as received:
        again.open()
    assert str(tmp_path / "a") in str(received.value) and str(tmp_path / "b") in str(received.value)
    again.manager.unlock()


def test_moved_directory_keeps_its_id(tmp_path: Path, kit: Kit) -> None:
    ids = [kit.manager.directory_id(path) for path in kit.manager.directories()]
    assert len(set(ids)) == 2
    kit.manager.close()
    kit.manager.unlock()
    (tmp_path / "a").rename(tmp_path / "c")
    again = Kit(tmp_path / "b", tmp_path / "c").open()
    assert [again.manager.directory_id(path) for path in again.manager.directories()] == ids[::-1]
    assert again.manager.describe_directory(ids[0]) == str(tmp_path / "c")
    again.manager.unlock()


def test_a_copy_of_a_directory_is_refused_beside_it(tmp_path: Path, kit: Kit) -> None:
    kit.manager.unlock()
    (tmp_path / "b/meta.properties").write_bytes((tmp_path / "a/meta.properties").read_bytes())
    again = Kit(tmp_path / "a", tmp_path / "b")
    again.manager.lock()
    with pytest.raises(DirectoryError, match="one is a copy"):
        again.manager.claim(US)
    again.manager.unlock()


def test_other_properties_are_kept(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={US.cluster_id}\nx=y\n")
    kit = Kit(tmp_path).open()
    found = (tmp_path / "meta.properties").read_text()
    assert "version=1\n" in found and "x=y\n" in found and "broker.id" not in found
    assert f"directory.id={kit.manager.directory_id(str(tmp_path))}\n" in found
    kit.manager.unlock()


def test_all_directories_are_recovered_after_a_kill(tmp_path: Path, kit: Kit) -> None:
    for partition in range(4):
        kit.create("t", partition, batches=3)
    again = kit.restart(clean=False)
    assert {(log.partition, log.log_end_offset) for log in again.manager.all()} == {(each, 9) for each in range(4)}
    again.manager.unlock()


def test_recovery_logs_its_progress(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:

    class Waiting(Disk):
        """Reads the second partition's id only when the first lines were logged."""

        def read_bytes(self, path: str) -> bytes:
            if "/t-1/" in path:
                assert received.wait(30)
            return super().read_bytes(path)

    received = Event()
    for partition in (0, 1):
        filled(tmp_path / f"t-{partition}")
    caplog.set_level("INFO")

    def seen(record: logging.LogRecord) -> bool:
        if "1 of 2 partitions" in record.getMessage():
            received.set()
        return True

    caplog.handler.addFilter(seen)
    (loaded,) = load_directories(Waiting(), [str(tmp_path)], lambda topic: CONFIG, 1, log_every_s=0.01)
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("recovering: 1 of 2")]
    assert lines and "s left" in lines[0]
    assert len(loaded.logs) == 2 and not loaded.clean


def test_partitions_that_are_created_at_once_are_spread(kit: Kit) -> None:
    taken: list[str] = []
    for _ in range(4):
        path = kit.manager.choose_directory()
        assert path is not None
        kit.manager.reserve(path, 1)
        taken.append(path)
    assert sorted(taken) == sorted(2 * kit.manager.directories())
    kit.manager.reserve(taken[0], -2)
    assert kit.manager.choose_directory() == taken[0]


def test_offline_partition_is_offline_until_it_is_repaired(tmp_path: Path) -> None:
    """Its recovery point stays in the checkpoint and no end is clean, else a start would truncate flushed data."""
    kit = Kit(tmp_path).open()
    kit.create("t", 0, batches=5)
    kit.create("t", 1, batches=5)
    kit.manager.close()
    kit.manager.unlock()
    path = tmp_path / "t-0/00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    for _ in range(3):
        again = Kit(tmp_path).open()
        assert [log.partition for log in again.manager.all()] == [1]
        assert "which was flushed" in again.loaded[0].rejected[str(tmp_path / "t-0")]
        again.manager.close()
        again.manager.unlock()
        assert path.read_bytes() == content
    content[500] ^= 1
    path.write_bytes(content)
    mended = Kit(tmp_path).open()
    assert [log.log_end_offset for log in mended.manager.all()] == [15, 15]
    mended.manager.unlock()


def test_files_of_a_deleted_partition_without_a_log_are_removed_after_the_delay(tmp_path: Path) -> None:
    """A partition that cannot be loaded, and a created one: file.delete.delay.ms is that of every deletion."""
    kit = Kit(tmp_path).open()
    kit.create("t", 0, batches=5)
    kit.manager.close()
    kit.manager.unlock()
    (tmp_path / "t-0/00000000000000000000.log").write_bytes(b"damaged" * 100)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    again = Kit(tmp_path).open()
    again.manager.create(str(tmp_path), [NewPartition("t", 1, TOPIC_ID, 0)], Outcome.result)
    again.offload.drain()
    again.manager.delete_refused("t", 0, DELAY_MS)
    again.manager.delete_created("t", 1, DELAY_MS)
    again.advance(DELAY_MS - 1)
    assert sorted(path.name.split(".")[0] for path in tmp_path.glob("*-delete")) == ["t-0", "t-1"]
    again.advance(1)
    assert not list(tmp_path.glob("t-*"))
    again.manager.unlock()
