"""The key of a session in the log directory."""

import json
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.server.process.saved_session import (
    NAME,
    UNKNOWN,
    EarlierProcess,
    SavedKey,
    SavedSession,
    boot_id_here,
    started_at,
)
from kafkalite.storage.dirs.log_directory import LOCK

KEY = SavedKey(2**63 - 1, bytes(range(16)))
BOOT = "a boot"


@pytest.fixture
def lock(tmp_path: Path) -> File:
    return locked(tmp_path)


def locked(directory: Path) -> File:
    """The lock of a log directory, as a start takes it."""
    file = Disk().open(str(directory / LOCK), create=True)
    file.lock()
    return file


def test_a_saved_key_is_loaded_by_the_next_process_and_only_its_owner_may_read_it(tmp_path: Path, lock: File) -> None:
    saved = SavedSession(Disk(), str(tmp_path), lock, BOOT)
    assert saved.load() == UNKNOWN
    saved.save(SavedKey(1, bytes(16)))
    saved.save(KEY)
    lock.close()
    assert SavedSession(Disk(), str(tmp_path), locked(tmp_path), BOOT).load() == EarlierProcess(
        KEY, has_page_cache=True
    )
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, NAME]
    saved.remove()
    saved.remove()
    assert saved.load() == UNKNOWN


def test_the_key_of_an_earlier_boot_is_not_used(tmp_path: Path, lock: File) -> None:
    """The directory may be on another machine, where the lock proves nothing."""
    for boot_id, other in ((BOOT, "other"), (BOOT, ""), ("", "")):
        SavedSession(Disk(), str(tmp_path), lock, boot_id).save(KEY)
        assert SavedSession(Disk(), str(tmp_path), lock, other).load() == UNKNOWN


def test_the_machine_has_one_boot_id_while_it_runs() -> None:
    assert boot_id_here() == boot_id_here() != ""


def test_the_key_in_a_copy_of_the_log_directory_is_not_used(tmp_path: Path) -> None:
    """Its lock is another file: it proves nothing about the process that holds the first one."""
    original, copied = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    SavedSession(Disk(), str(original), locked(original), BOOT).save(KEY)
    shutil.copytree(original, copied)
    assert SavedSession(Disk(), str(copied), locked(copied), BOOT).load() == UNKNOWN


def test_a_copy_of_a_directory_in_use_is_recognised_while_the_other_process_runs(tmp_path: Path, lock: File) -> None:
    """Process ids are used again: the start time distinguishes the processes."""
    saved = SavedSession(Disk(), str(tmp_path), lock, BOOT)
    saved.save(KEY)
    fields = json.loads((tmp_path / NAME).read_text()) | {"lock": [0, 0]}
    with subprocess.Popen(["sleep", "600"]) as other:
        started = started_at(other.pid)
        assert started
        try:
            for values, running in (
                ({"process_id": other.pid, "started": started}, other.pid),
                ({"process_id": other.pid, "started": started + "1"}, 0),
                ({"process_id": other.pid, "started": ""}, 0),
                ({"process_id": other.pid, "started": started, "lock": fields["lock"]}, other.pid),
                ({"process_id": other.pid, "started": started, "boot_id": "other"}, 0),
            ):
                (tmp_path / NAME).write_text(json.dumps(fields | values))
                assert saved.load() == EarlierProcess(running=running), values
        finally:
            other.kill()
    (tmp_path / NAME).write_text(json.dumps(fields | {"process_id": other.pid, "started": started}))
    assert saved.load() == UNKNOWN, "it has ended"


@pytest.mark.parametrize(
    "content",
    [
        "garbage",
        "[]",
        "{}",
        '{"version":1,"session_id":1,"password":"00000000000000000000000000000000","boot_id":"x"}',
        '{"version":2,"session_id":1,"password":"00","boot_id":"x"}',
        '{"version":2,"session_id":"x","password":"","boot_id":"x"}',
    ],
)
def test_garbage_is_ignored_with_a_warning(
    tmp_path: Path, content: str, lock: File, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).write_text(content)
    assert SavedSession(Disk(), str(tmp_path), lock, BOOT).load() == UNKNOWN
    assert "is ignored" in caplog.text


def test_a_directory_that_cannot_be_written_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    SavedSession(Disk(), str(tmp_path / "missing"), None, BOOT).save(KEY)
    assert "cannot be written" in caplog.text
