"""`kafkalite log verify`: exit code, first violation, JSON, and a running broker is left alone."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.log.dirs import NOT_A_LOG_DIRECTORY
from kafkalite.cli.main import main
from kafkalite.storage.dirs.log_directory import LogDirectory
from tests.unit.storage.damage import filled, flip_a_record, last_log


@pytest.fixture
def data(tmp_path: Path) -> Path:
    filled(tmp_path / "t-0").close()
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    (tmp_path / ".lock").write_bytes(b"")
    return tmp_path


def verify(*args: object) -> Result:
    return CliRunner().invoke(main, ["log", "verify", *map(str, args)])


def stats(data: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in data.rglob("*")}


def test_a_good_directory(data: Path) -> None:
    before = stats(data)
    done = verify(data)
    assert (done.exit_code, done.stdout) == (0, "every invariant holds in 1 partition, 3 segments, 47,280 bytes\n")
    assert stats(data) == before


@pytest.mark.parametrize("of_partition", [True, False])
def test_first_violation_is_reported_with_file_and_position(data: Path, of_partition: bool) -> None:
    flip_a_record(data / "t-0")
    done = verify(data / "t-0" if of_partition else data)
    assert done.exit_code == 1
    first = f"invariant 2: {last_log(data / 't-0')} at byte 7486: wrong CRC"
    assert done.stdout.splitlines()[0] == first
    assert done.stderr.startswith("kafkalite: ") and done.stderr.endswith(f"the first: {first}\n")


def test_json_has_one_object_per_violation(data: Path) -> None:
    flip_a_record(data / "t-0")
    lines = [json.loads(line) for line in verify(data, "--json").stdout.splitlines()]
    assert lines[0] == {"number": 2, "path": str(last_log(data / "t-0")), "position": 7486, "text": "wrong CRC"}
    assert len(lines) > 1


def test_compacted_option_accepts_gaps(data: Path) -> None:
    for path in (data / "t-0").glob(f"{sorted((data / 't-0').glob('*.log'))[1].stem}.*"):
        path.unlink()
    hint = "; if the topic is compacted, gaps are no defect: add --compacted\n"
    done = verify(data)
    assert done.exit_code == 1 and not done.stderr.endswith(hint)
    assert verify(data, "--compacted").exit_code == 0
    shutil.copytree(data / "t-0", data / "copy" / "t-0")
    done = verify(data / "copy" / "t-0")
    assert done.exit_code == 1 and done.stderr.endswith(hint)


def test_a_directory_in_use_is_refused(data: Path) -> None:
    directory = LogDirectory(Disk(), str(data))
    directory.lock()
    try:
        done = verify(data)
        assert (done.exit_code, done.stderr) == (
            2, f"kafkalite: {data}: a broker uses this log directory; stop it first\n",
        )  # fmt: skip
    finally:
        directory.unlock()
    assert verify(data).exit_code == 0


def test_any_other_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    assert verify(tmp_path / "x").exit_code == 2


@pytest.mark.parametrize("command", ["verify", "stray", "recover", "dump"])
def test_a_directory_without_partitions_is_rejected(tmp_path: Path, command: str) -> None:
    empty, foreign = tmp_path / "empty", tmp_path / "foreign"
    empty.mkdir()
    (foreign / "dbus-1").mkdir(parents=True)
    (foreign / "file-1").write_text("")
    for path in (empty, foreign):
        done = CliRunner().invoke(main, ["log", command, str(path)])
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr == f"kafkalite: {path}: {NOT_A_LOG_DIRECTORY}\n"


@pytest.mark.parametrize("file", ["meta.properties", "kafkalite.journal"])
def test_a_log_directory_without_partitions_is_checked(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text("version=0\nbroker.id=1\ncluster.id=c\n" if file == "meta.properties" else "")
    done = verify(tmp_path)
    assert (done.exit_code, done.stdout) == (0, "every invariant holds in 0 partitions, 0 segments, 0 bytes\n")
