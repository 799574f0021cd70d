"""`kafkalite log recover`: with --dry-run the very same findings and no change; without, what a start would do."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.main import main
from kafkalite.storage.dirs.log_directory import LogDirectory
from kafkalite.storage.verify.verify import verify_directory
from tests.kit.running_copy import copy_running
from tests.kit.server import batch, running
from tests.unit.storage.damage import filled, last_log, tear_the_tail


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Killed: one partition with a torn tail, a lost index and work files, one whole, one on its way out."""
    for name in ("t-0", "t-1", f"t-2.{32 * 'a'}-delete"):
        filled(tmp_path / name).close()
    tear_the_tail(tmp_path / "t-0")
    min((tmp_path / "t-0").glob("*.index")).unlink()
    (tmp_path / "t-0/00000000000000000777.timeindex").write_bytes(b"")
    (tmp_path / "t-1/00000000000000000000.log.deleted").write_bytes(b"old")
    (tmp_path / "t-1/00000000000000000003.log").write_bytes(min((tmp_path / "t-1").glob("*.log")).read_bytes())
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    (tmp_path / ".lock").write_bytes(b"")
    return tmp_path


def recover(*args: object) -> Result:
    return CliRunner().invoke(main, ["log", "recover", *map(str, args)])


def lines(done: Result, kind: str) -> list[dict[str, Any]]:
    return [found for line in done.stdout.splitlines() if (found := json.loads(line))["type"] == kind]


def state(data: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(path.relative_to(data)): (
            path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns, path.stat().st_ino,
        )
        for path in [data, *data.rglob("*")]
    }  # fmt: skip


def test_dry_run_changes_nothing_and_reports_the_same_repairs(data: Path) -> None:
    before = state(data)
    dry = recover(data, "--dry-run", "--json")
    assert dry.exit_code == 0, dry.output
    assert state(data) == before
    real = recover(data, "--json")
    assert real.exit_code == 0, real.output
    assert lines(dry, "partition") == lines(real, "partition")
    assert lines(dry, "summary") == lines(real, "summary")
    assert [found["bytes_dropped"] for found in lines(dry, "partition")] == [244, 0]


def test_dry_run_lists_every_change_of_a_real_run(data: Path) -> None:
    changes = lines(recover(data, "--dry-run", "--json"), "change")
    predicted = {(change["verb"], str(Path(change["path"]).relative_to(data))) for change in changes}
    before = state(data)
    assert recover(data).exit_code == 0
    after = state(data)
    gone = {name for name in before if name not in after and "-delete/" not in name}
    taken = {name for verb, name in predicted if verb in ("remove", "rename")}
    assert {name for name in gone ^ taken if not name.endswith(".snapshot")} == set(), "the end writes a new snapshot"
    logs = {name for name in before if name.endswith(".log") and name in after}
    truncated = {name for name in logs if after[name][0] != before[name][0]}
    assert truncated == {f"t-0/{last_log(data / 't-0').name}"}
    assert truncated == {name for verb, name in predicted if verb == "truncate"}


def test_recovered_directory_has_no_violations_and_starts_cleanly(data: Path) -> None:
    assert verify_directory(Disk(), str(data))
    done = recover(data)
    assert done.exit_code == 0, done.output
    assert "was not shut down cleanly: 2 partitions, 244 bytes dropped" in done.stdout
    assert "set aside: 00000000000000000003.log" in done.stdout
    assert verify_directory(Disk(), str(data)) == []
    again = recover(data, "--dry-run")
    assert again.stdout.splitlines()[-1] == f"{data} was shut down cleanly: 2 partitions, 0 bytes dropped"
    assert not list(data.glob("*-delete"))


def test_unrecoverable_partition_is_reported_and_unchanged(data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 360\n")
    before = {name: found for name, found in state(data).items() if name.startswith("t-0/") and name.endswith(".log")}
    done = recover(data)
    assert done.exit_code == 1
    assert f"{data / 't-0'}: cannot be recovered" in done.stdout and "the log is not truncated" in done.stdout
    assert {name: found for name, found in state(data).items() if name in before} == before


@pytest.mark.parametrize("dry", [("--dry-run",), ()])
def test_a_directory_in_use_is_refused(data: Path, dry: tuple[str, ...]) -> None:
    directory = LogDirectory(Disk(), str(data))
    directory.lock()
    try:
        before = state(data)
        done = recover(data, *dry)
        assert done.exit_code == 2 and "uses this log directory" in done.stderr
        assert state(data) == before
    finally:
        directory.unlock()


def test_one_partition_alone_is_not_recovered(data: Path) -> None:
    done = recover(data / "t-0")
    assert done.exit_code == 2 and done.stderr.endswith(f"give {data}\n")


def test_a_recovery_raises_the_leader_epochs_that_a_start_would_raise(tmp_path: Path) -> None:
    """Without that, the clean start behind it would hide from consumers that records were lost."""

    async def write() -> None:
        async with running(str(tmp_path / "data")) as client:
            await client.create("t")
            await client.produce("t", batch(b"a"))
            copy_running(tmp_path / "data", tmp_path / "killed")

    async def epoch(data: Path) -> int:
        async with running(str(data)) as client:
            return client.broker.image.topics["t"].partitions[0].leader_epoch

    asyncio.run(write())
    done = recover(tmp_path / "killed")
    assert done.exit_code == 0, done.output
    assert "1 partition, 0 bytes dropped" in done.stdout and "1 segment scanned and indexed (1 batch)" in done.stdout
    assert asyncio.run(epoch(tmp_path / "killed")) == 1
    assert asyncio.run(epoch(tmp_path / "data")) == 0, "after a clean end"


def test_partitions_without_records_are_counted(tmp_path: Path) -> None:
    async def write() -> None:
        async with running(str(tmp_path)) as client:
            await client.create("t", partitions=3)
            await client.produce("t", batch(b"a"))
            while not all((tmp_path / f"t-{index}").exists() for index in range(3)):  # created in the background
                await asyncio.sleep(0)

    asyncio.run(write())
    done = recover(tmp_path, "--dry-run")
    assert done.stdout.endswith(f"{tmp_path} was shut down cleanly: 3 partitions, 0 bytes dropped\n"), done.output
    (summary,) = lines(recover(tmp_path, "--dry-run", "--json"), "summary")
    assert summary["partitions"] == 3
