"""`log verify`, `log recover --dry-run`, `log dump`, `log stray` and `log truncate` on a read-only mount."""

import asyncio
import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite.server.process.resources import JOURNAL
from tests.kit.loop_disk import LoopDisk
from tests.kit.server import batch, running

SEGMENT = "00000000000000000000.log"
MEGABYTES = 64
COMMAND_S = 120.0


def log(*args: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, which leaves no file open on the mount."""
    command = [sys.executable, "-m", "kafkalite", "log", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S)


async def write(data: Path, topic: str) -> None:
    async with running(str(data)) as client:
        await client.create(topic)
        for number in range(10):
            await client.produce(topic, batch(b"%d" % number))


def mounted_read_only(disk: LoopDisk, data: Path) -> Path:
    """A copy of a log directory on a read-only mount."""
    shutil.copytree(data, disk.path / "data")
    disk.unmount()
    disk.mount(read_only=True)
    with pytest.raises(OSError, match="Read-only") as refused:
        (disk.path / "data" / "file").touch()
    assert refused.value.errno == errno.EROFS
    return disk.path / "data"


def test_a_good_log_directory_on_a_read_only_mount(tmp_path: Path) -> None:
    asyncio.run(write(tmp_path / "data", "a"))
    with LoopDisk(tmp_path, "ext4", MEGABYTES) as disk:
        data = mounted_read_only(disk, tmp_path / "data")
        for args, said in (
            (("verify", data), "every invariant holds in 1 partition"),
            (("recover", data, "--dry-run"), "was shut down cleanly: 1 partition"),
            (("dump", data, "--summary"), "no defects"),
            (("stray", data), "no stray partitions"),
        ):
            done = log(*args)
            assert (done.returncode, done.stderr) == (0, "") and said in done.stdout, done


def test_a_damaged_log_directory_and_an_older_journal_on_a_read_only_mount(tmp_path: Path) -> None:
    asyncio.run(write(tmp_path / "data", "a"))
    older = (tmp_path / "data" / JOURNAL).read_bytes()
    asyncio.run(write(tmp_path / "data", "b"))
    (tmp_path / "data" / JOURNAL).write_bytes(older)
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    segment = tmp_path / "data" / "a-0" / SEGMENT
    segment.write_bytes(segment.read_bytes()[:-10])
    with LoopDisk(tmp_path, "ext4", MEGABYTES) as disk:
        data = mounted_read_only(disk, tmp_path / "data")
        verified, shown = log("verify", data), log("recover", data, "--dry-run", "--json")
        assert verified.returncode == 1 and "is truncated" in verified.stdout, verified
        lines = [json.loads(line) for line in shown.stdout.splitlines()]
        assert [line["directory"] for line in lines if line["type"] == "refused"] == [f"{data}/a-0"], shown
        for done in (verified, shown):
            assert f"{data}/b-0: its topic is not in kafkalite.journal" in done.stderr, done
        truncated = log("truncate", data / "a-0")
        assert truncated.returncode == 0 and "--to 9`" in truncated.stdout, truncated
