"""A lock file that is removed or replaced while a broker holds it, as by a cleaner of temporary files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.storage import checkpoints
from kafkalite.storage.dirs.log_directory import DirectoryError
from kafkalite.storage.housekeeping import SPACE_CHECK_MS
from tests.unit.storage.test_manager import Kit


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path / "data").open()
    kit.create(batches=1)
    kit.manager.upkeep.start(lambda log: log.log_end_offset)
    yield kit
    kit.manager.unlock()


def test_a_removed_lock_file_is_created_and_locked_again(
    tmp_path: Path, kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        (tmp_path / "data/.lock").unlink()
        kit.advance(SPACE_CHECK_MS + 1)
        assert caplog.text.count("its lock file was removed") == 1
        caplog.clear()
        with pytest.raises(DirectoryError, match="another broker"):
            Kit(tmp_path / "data").manager.lock()
    kit.advance(SPACE_CHECK_MS + 1)
    assert not caplog.text
    assert kit.restart().loaded[0].clean


def test_late_checks_of_a_removed_lock_file_lock_once(
    tmp_path: Path, kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a pause of the disk that is longer than the interval of the checks."""
    kit.offload.held = True
    for _ in range(2):
        kit.advance(SPACE_CHECK_MS + 1)
    (tmp_path / "data/.lock").unlink()
    kit.offload.release()
    kit.offload.drain()
    assert kit.manager.is_online(str(tmp_path / "data"))
    assert caplog.text.count("its lock file was removed") == 1


def test_a_directory_that_another_broker_has_locked_goes_offline(tmp_path: Path, kit: Kit) -> None:
    (tmp_path / "data/.lock").unlink()
    other = Kit(tmp_path / "data")
    other.manager.lock()
    kit.advance(SPACE_CHECK_MS + 1)
    assert kit.offline and not kit.manager.is_online(str(tmp_path / "data"))
    kit.manager.close()
    assert not (tmp_path / "data" / checkpoints.CLEAN_SHUTDOWN).exists(), "the files are another broker's"
    other.manager.unlock()


def test_a_directory_that_another_broker_has_used_goes_offline(tmp_path: Path, kit: Kit) -> None:
    (tmp_path / "data/.lock").unlink()
    other = Kit(tmp_path / "data")
    other.manager.lock()
    other.manager.unlock()
    kit.advance(SPACE_CHECK_MS + 1)
    assert not kit.manager.is_online(str(tmp_path / "data"))
