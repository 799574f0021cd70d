"""What an operator does with a damaged or restored directory: verify, dry run, truncate, dump, delete the topic."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kafkalite_sdk.admin import PartitionDescription, TopicDescription

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.main import main
from kafkalite.cli.records.sender import creation_wait_s
from kafkalite.cli.serve import start_line
from kafkalite.server.process.resources import JOURNAL
from kafkalite.storage.verify.verify import verify_directory
from kafkalite.testing.thread import BrokerThread
from tests.kit.server import batch, running
from tests.unit.storage.damage import filled as filled_log

NO_DELAY = {"log.segment.delete.delay.ms": "0"}
SEGMENT = "00000000000000000000.log"


def log(*args: object) -> Result:
    return CliRunner().invoke(main, ["log", *map(str, args)])


async def filled(data: Path) -> None:
    """Topics a and b with ten records each; then the end of b-0 is lost, which had been synced."""
    async with running(str(data)) as client:
        await client.create("a", "b")
        for topic in ("a", "b"):
            for number in range(10):
                await client.produce(topic, batch(b"%d" % number))


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    asyncio.run(filled(tmp_path / "data"))
    os.truncate(tmp_path / "data/b-0" / SEGMENT, (tmp_path / "data/b-0" / SEGMENT).stat().st_size - 10)
    return tmp_path / "data"


async def served(data: Path, topic: str, delete: bool = False) -> list[bytes | None] | int:
    """The records of partition 0 of a topic, or its error."""
    async with running(str(data), NO_DELAY) as client:
        partition = client.broker.replicas.partition(topic, b"", 0, by_id=False)
        assert not isinstance(partition, int)
        if delete:
            assert (await client.delete(topic))[0].error_code == 0
        return partition.error or await client.read(topic)


def test_damaged_partition_is_offline_with_reason_and_next_step(
    damaged: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "kafkalite"):
        assert asyncio.run(served(damaged, "b")) == 56
    (line,) = caplog.messages
    assert "b-0 is offline" in line and "damaged at byte" in line and "missing" not in line
    assert "backup" in line and f"kafkalite log truncate {damaged}/b-0" in line and "delete the topic" in line


def test_consume_reports_an_offline_partition(damaged: Path) -> None:
    with BrokerThread(str(damaged)) as broker:
        done = CliRunner().invoke(main, ["consume", "b", "-e", "-b", broker.address])
        assert done.exit_code == 2 and done.stdout == ""
        assert done.stderr.startswith("kafkalite: b-0: the partition is offline; the log of broker 1 names the reason")
        assert "kafkalite topic describe b" in done.stderr
        done = CliRunner().invoke(main, ["consume", "a", "-e", "-b", broker.address])
        assert (done.exit_code, done.stdout.split()) == (0, [str(number) for number in range(10)])


def test_produce_reports_an_offline_partition_at_once(damaged: Path) -> None:
    offline, new = PartitionDescription(0, None, 0, (1,), (), (1,)), PartitionDescription(1, None, 0, (1,), (1,), ())
    assert creation_wait_s(TopicDescription("b", "id", False, (offline,))) == 0
    assert creation_wait_s(TopicDescription("b", "id", False, (offline, new))) > 0
    with BrokerThread(str(damaged)) as broker:
        command = [sys.executable, "-m", "kafkalite", "produce", "b", "-b", broker.address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdin and process.stderr
            process.stdin.write("one\n")
            process.stdin.flush()
            said = process.stderr.readline()
            process.kill()
    assert said.startswith("kafkalite: b-0: the partition is offline; the log of broker 1 names the reason")
    assert said.endswith("; retrying for 120 s\n")


def test_the_rest_of_a_damaged_partition_is_served_after_a_truncation(damaged: Path) -> None:
    before = {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file()}
    shown = log("truncate", damaged / "b-0")
    assert shown.exit_code == 0 and "--to 9`" in shown.stdout, shown.output
    assert {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file()} == before
    assert log("truncate", damaged / "b-0", "--to", 10).exit_code == 2
    assert log("truncate", damaged, "--to", 1).exit_code == 2
    done = log("truncate", damaged / "b-0", "--to", 7)
    assert done.exit_code == 0, done.output
    assert asyncio.run(served(damaged, "b")) == [b"%d" % number for number in range(7)]
    assert asyncio.run(served(damaged, "a")) == [b"%d" % number for number in range(10)]
    assert verify_directory(Disk(), str(damaged)) == []


def test_truncate_reports_a_missing_segment_and_removes_nothing_by_itself(tmp_path: Path) -> None:
    filled_log(tmp_path / "t-0").close()
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    _, second, third = sorted((tmp_path / "t-0").glob("*.log"))
    for path in (tmp_path / "t-0").glob(f"{second.stem}.*"):
        path.unlink()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 360\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    end, begin = int(second.stem), int(third.stem)
    done = log("truncate", tmp_path / "t-0")
    assert done.exit_code == 0, done.output
    assert f"offsets {end} to {begin - 1} are missing" in done.stdout and f"--to {end}`" in done.stdout
    shown = log("recover", tmp_path, "--dry-run")
    assert f"offsets {end} to {begin - 1} are missing" in shown.stdout, shown.output
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {begin}\n")
    assert "missing" not in log("truncate", tmp_path / "t-0").stdout


def test_journal_without_meta_properties_is_one_error_line(damaged: Path) -> None:
    (damaged / "meta.properties").unlink()
    for command in (("verify",), ("recover", "--dry-run")):
        done = log(*command, damaged)
        assert done.exit_code == 1 and f"{damaged}/meta.properties: is missing; restore it" in done.stderr, done.output


def test_a_topic_with_an_offline_partition_is_deleted_with_its_files(damaged: Path) -> None:
    asyncio.run(served(damaged, "b", delete=True))
    assert not (damaged / "b-0").exists()
    assert asyncio.run(served(damaged, "a")) == [b"%d" % number for number in range(10)]
    assert not list(damaged.glob("b-0*"))
    assert verify_directory(Disk(), str(damaged)) == []


def test_an_older_journal_is_reported_before_a_start(tmp_path: Path) -> None:
    async def write(topic: str) -> None:
        async with running(str(tmp_path)) as client:
            await client.create(topic)
            await client.produce(topic, batch(b"x"))

    asyncio.run(write("a"))
    older = (tmp_path / JOURNAL).read_bytes()
    asyncio.run(write("b"))
    for command in (("verify",), ("recover", "--dry-run")):
        assert "warning" not in log(*command, tmp_path).output
    (tmp_path / JOURNAL).write_bytes(older[:-5])
    (tmp_path / "a-0").rename(tmp_path / "elsewhere")
    for command in (("verify",), ("recover", "--dry-run")):
        done = log(*command, tmp_path)
        assert done.exit_code == 0, done.output
        assert f"{tmp_path}/b-0: its topic is not in kafkalite.journal" in done.output
        assert f"{tmp_path}/a-0: is missing" in done.output
        assert "are an unfinished write" in done.output


def remove_records_like_the_cleaner(partition: Path) -> None:
    """Remove the batches 2 to 4 of ten, and the indexes."""
    content = (partition / SEGMENT).read_bytes()
    size = len(content) // 10
    (partition / SEGMENT).write_bytes(content[: 2 * size] + content[5 * size :])
    for name in ("index", "timeindex"):
        (partition / SEGMENT).with_suffix(f".{name}").unlink()


@pytest.mark.parametrize("at", ["", "a-0"])
def test_a_compacted_topic_is_dumped_without_an_error(tmp_path: Path, at: str) -> None:
    """NEWCOMER 1.3: what the cleaner removed is no gap."""
    asyncio.run(filled(tmp_path))
    remove_records_like_the_cleaner(tmp_path / "a-0")
    assert log("dump", tmp_path / at, "--summary").exit_code == 1
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\na 0 9\n")
    done = log("dump", tmp_path / at, "--summary", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[-1])["wrong"] == 0


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_journal_names_the_compacted_topics(tmp_path: Path, policy: str) -> None:
    """Without the cleaner's checkpoint, gaps are normal in topics with cleanup.policy=compact, and in no others."""

    async def write() -> None:
        async with running(str(tmp_path)) as client:
            await client.create("a", cleanup_policy=policy)
            await client.create("b")
            for topic in ("a", "b"):
                for number in range(10):
                    await client.produce(topic, batch(b"%d" % number))

    asyncio.run(write())
    remove_records_like_the_cleaner(tmp_path / "a-0")
    for command in (("dump", tmp_path, "--summary"), ("dump", tmp_path / "a-0")):
        assert log(*command).exit_code == 0, log(*command).output
    assert "are missing" not in log("verify", tmp_path).output
    remove_records_like_the_cleaner(tmp_path / "b-0")
    done = log("dump", tmp_path, "--summary")
    assert done.exit_code == 1 and "b-0" in done.output.split("1 defect")[1], done.output
    assert "are missing" in log("verify", tmp_path).output
    (tmp_path / JOURNAL).write_bytes(b"garbage")
    assert log("dump", tmp_path / "a-0").exit_code == 1


async def filled_with_batches(data: Path) -> None:
    """Topic b with the batches 0-39 and 40-68."""
    async with running(str(data)) as client:
        await client.create("b")
        for size in (40, 29):
            await client.produce("b", batch(*[b"x"] * size))


def files_of(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("to", "first", "last"), [(9, 0, 39), (1, 0, 39), (39, 0, 39), (41, 40, 68), (68, 40, 68)])
def test_truncate_inside_a_batch_is_refused(tmp_path: Path, to: int, first: int, last: int) -> None:
    asyncio.run(filled_with_batches(tmp_path))
    before = files_of(tmp_path)
    done = log("truncate", tmp_path / "b-0", "--to", to)
    assert done.exit_code == 2 and done.stdout == "", done.output
    assert f"--to {to} is inside the batch {first}-{last}; `--to {first}` drops it" in done.stderr
    assert f"`--to {last + 1}` keeps it (nothing has been changed)" in done.stderr and done.stderr.count("\n") == 1
    assert files_of(tmp_path) == before
    for end in (last + 1, first):
        done = log("truncate", tmp_path / "b-0", "--to", end)
        assert done.exit_code == 0 and f"the log end offset is {end};" in done.stdout, done.output


def test_truncate_of_a_log_that_starts_inside_a_batch_lowers_the_log_start(tmp_path: Path) -> None:
    asyncio.run(filled_with_batches(tmp_path))
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nb 0 20\n")
    assert "`--to 0` drops it" in log("truncate", tmp_path / "b-0", "--to", 20).stderr
    assert log("truncate", tmp_path / "b-0", "--to", 0).exit_code == 0
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nb 0 0\n"
    assert verify_directory(Disk(), str(tmp_path)) == []


@pytest.mark.parametrize("part", [0, 1, 2])
def test_truncate_behind_missing_offsets_lowers_the_recovery_point_to_the_log_end(tmp_path: Path, part: int) -> None:
    filled_log(tmp_path / "t-0").close()
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    _, second, third = sorted((tmp_path / "t-0").glob("*.log"))
    for path in (tmp_path / "t-0").glob(f"{second.stem}.*"):
        path.unlink()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 360\n")
    end, begin = int(second.stem), int(third.stem)
    done = log("truncate", tmp_path / "t-0", "--to", (end, begin - 1, begin)[part])
    assert done.exit_code == 0 and f"the log end offset is {end};" in done.stdout, done.output
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == f"0\n1\nt 0 {end}\n"
    assert verify_directory(Disk(), str(tmp_path)) == []


def test_truncate_lists_the_dropped_bytes_before_and_after(damaged: Path, caplog: pytest.LogCaptureFixture) -> None:
    shown = log("truncate", damaged / "b-0")
    assert caplog.messages == []
    assert shown.stdout.count("would drop") == 1 and "from offset 9 on; nothing has been changed" in shown.stdout
    assert log("truncate", damaged / "b-0", "--to", 9).exit_code == 0
    size = shown.stdout.split("would drop ")[1].split(" bytes")[0]
    said = [line for line in caplog.messages if "truncated" in line]
    assert said == [f"b-0: truncated {size} bytes and 0 segments from offset 9 on"]
    assert "would drop" not in log("truncate", damaged / "b-0").stdout


async def started(data: Path) -> tuple[str, list[int]]:
    """The line of a start, and the leader epochs of the partitions 0 of topics a and b."""
    async with running(str(data)) as client:
        partitions = [client.broker.replicas.partition(topic, b"", 0, by_id=False) for topic in ("a", "b")]
        return start_line(client.broker), [each.leader_epoch for each in partitions if not isinstance(each, int)]


def test_start_after_a_clean_stop_with_an_offline_partition_is_clean(damaged: Path) -> None:
    line = "loaded 1 partition (clean shutdown), 1 offline: see the errors above"
    assert [asyncio.run(started(damaged)) for _ in range(3)] == [(line, [0, 0])] * 3


def test_start_after_a_truncation_is_clean_and_raises_only_the_leader_epoch_of_the_partition(damaged: Path) -> None:
    asyncio.run(started(damaged))
    assert log("truncate", damaged / "b-0", "--to", 7).exit_code == 0
    line = "loaded 2 partitions (clean shutdown)"
    assert [asyncio.run(started(damaged)) for _ in range(2)] == [(line, [0, 1])] * 2
    assert log("truncate", damaged / "b-0", "--to", 6).exit_code == 0
    assert log("recover", damaged).exit_code == 0
    assert asyncio.run(started(damaged)) == (line, [0, 2])
