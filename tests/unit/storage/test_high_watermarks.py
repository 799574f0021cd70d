"""The checkpoint of high watermarks: written for the logs that have one, read at a start."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalite.model import TopicPartition
from kafkalite.storage.checkpoints import HIGH_WATERMARKS
from kafkalite.storage.log.log import Log
from tests.unit.storage.test_manager import Kit, fill


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path / "data").open()
    yield kit
    kit.manager.unlock()


def checkpoint(kit: Kit) -> None:
    kit.manager.upkeep.checkpoint_high_watermarks()
    while kit.offload.drain():
        pass


def file_of(kit: Kit) -> Path:
    return Path(kit.manager.directories()[0]) / HIGH_WATERMARKS


def test_without_followers_no_file_is_written(kit: Kit) -> None:
    kit.create(batches=2)
    checkpoint(kit)
    kit.restart()
    assert not file_of(kit).exists()


def test_the_file_has_the_logs_with_a_high_watermark_and_is_kafkas(kit: Kit) -> None:
    log, other = kit.create(batches=2), kit.create("other", batches=2)
    log.high_watermark = 4
    checkpoint(kit)
    assert file_of(kit).read_text() == "0\n1\nt 0 4\n"
    other.high_watermark, log.high_watermark = 3, 6
    again = kit.restart()
    assert file_of(kit).read_text().splitlines()[1:] == ["2", "t 0 6", "other 0 3"]
    found = {log.topic: log.high_watermark for log in again.manager.all()}
    assert found == {"t": 6, "other": 3}
    again.manager.unlock()


def test_at_rest_the_file_is_not_written_again(kit: Kit) -> None:
    log = kit.create(batches=2)
    log.high_watermark = 4
    checkpoint(kit)
    written = file_of(kit).stat()
    checkpoint(kit)
    assert file_of(kit).stat() == written
    log.high_watermark = 5
    checkpoint(kit)
    log.high_watermark = 3
    checkpoint(kit)
    assert file_of(kit).read_text() == "0\n1\nt 0 3\n"
    log.high_watermark = -1  # the partition has one replica now
    checkpoint(kit)
    assert file_of(kit).read_text() == "0\n0\n"


def test_a_write_that_failed_is_repeated(kit: Kit) -> None:
    log = kit.create(batches=2)
    log.high_watermark = 4
    kit.disk.fail("write", errno.ENOSPC, path=HIGH_WATERMARKS)
    checkpoint(kit)
    assert not file_of(kit).exists()
    checkpoint(kit)
    assert file_of(kit).read_text() == "0\n1\nt 0 4\n"


def test_a_high_watermark_is_limited_to_the_log(kit: Kit) -> None:
    log = kit.create(batches=4)
    log.high_watermark = 100
    checkpoint(kit)
    assert file_of(kit).read_text() == "0\n1\nt 0 12\n"
    file_of(kit).write_text("0\n1\nt 0 50\n")
    again = kit.restart(clean=False)
    found = again.manager.find("t", 0)
    assert found is not None and found.high_watermark == 12
    again.manager.unlock()


@pytest.mark.parametrize(("content", "expected"), [("", -1), ("0\n2\nt 0 3\n", -1), ("0\n1\nt 0 3\n", 3)])
def test_a_file_that_cannot_be_read_is_ignored(kit: Kit, content: str, expected: int) -> None:
    kit.create(batches=2)
    path = file_of(kit)
    kit.manager.close()
    kit.manager.unlock()
    path.write_text(content)
    opened = Kit(Path(kit.manager.directories()[0])).open()
    log = opened.manager.find("t", 0)
    assert log is not None and log.high_watermark == expected and opened.loaded[0].clean
    opened.manager.unlock()


def delete(kit: Kit, log: Log) -> None:
    kit.manager.delete(log)


def make_stray(kit: Kit, log: Log) -> None:
    kit.manager.set_stray(TopicPartition(log.topic, log.partition), None)


@pytest.mark.parametrize("remove", [delete, make_stray])
def test_a_new_partition_has_not_the_high_watermark_of_a_removed_one(
    kit: Kit, remove: Callable[[Kit, Log], None]
) -> None:
    log = kit.create(batches=2)
    log.high_watermark = 6
    checkpoint(kit)
    remove(kit, log)
    while kit.offload.drain():
        pass
    assert file_of(kit).read_text() == "0\n0\n"
    fill(kit.create(), 1)
    again = kit.restart(clean=False)
    found = again.manager.find("t", 0)
    assert found is not None and found.high_watermark == -1
    again.manager.unlock()
