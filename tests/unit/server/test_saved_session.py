"""The key of a session in the log directory."""

import json
import stat
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.server.saved_session import BOOT_ID, NAME, SavedKey, SavedSession

KEY = SavedKey(2**63 - 1, bytes(range(16)))


def test_a_saved_key_is_loaded_by_the_next_process_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    saved = SavedSession(Disk(), str(tmp_path))
    assert saved.load() is None
    saved.save(SavedKey(1, bytes(16)))
    saved.save(KEY)
    assert SavedSession(Disk(), str(tmp_path)).load() == KEY
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    saved.remove()
    saved.remove()
    assert saved.load() is None


def test_the_key_of_an_earlier_boot_is_not_used(tmp_path: Path) -> None:
    """The directory may be on another machine, where the lock proves nothing."""
    saved = SavedSession(Disk(), str(tmp_path))
    saved.save(KEY)
    fields = json.loads((tmp_path / NAME).read_text())
    assert fields["boot_id"] == Path(BOOT_ID).read_text().strip()
    for boot_id in ("other", ""):
        (tmp_path / NAME).write_text(json.dumps({**fields, "boot_id": boot_id}))
        assert saved.load() is None


@pytest.mark.parametrize(
    "content",
    [
        "garbage",
        "[]",
        "{}",
        '{"version":2,"session_id":1,"password":"00000000000000000000000000000000","boot_id":"x"}',
        '{"version":1,"session_id":1,"password":"00","boot_id":"x"}',
        '{"version":1,"session_id":"x","password":"","boot_id":"x"}',
    ],
)
def test_garbage_is_ignored_with_a_warning(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / NAME).write_text(content)
    assert SavedSession(Disk(), str(tmp_path)).load() is None
    assert "is ignored" in caplog.text


def test_a_directory_that_cannot_be_written_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    SavedSession(Disk(), str(tmp_path / "missing")).save(KEY)
    assert "cannot be written" in caplog.text
