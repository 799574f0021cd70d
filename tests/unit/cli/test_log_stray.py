"""`kafkalite log stray`: strays are listed, adopted and deleted; conflicts are refused with a next step."""

import asyncio
import json
import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.main import main
from kafkalite.server.adoption.stray_adoption import StrayAdoption
from kafkalite.server.process.resources import JOURNAL
from kafkalite.storage.dirs.log_directory import LogDirectory
from kafkalite.storage.dirs.stray_partitions import find
from kafkalite.storage.verify.verify import verify_directory
from kafkalite.testing.faulty_disk import Crash, FaultyDisk
from kafkalite.testing.virtual_clock import SeededRandom, VirtualClock
from tests.kit.seeds import chosen_seed
from tests.kit.server import batch, running

SEED = chosen_seed()
STRIDE = 7  # of the steps before which the adoption crashes: another run has others
VALUES = {("b", 0): [b"b0"], ("b", 2): [b"b3"], ("c", 0): [b"c"]}


async def strayed(data: Path) -> None:
    """Strays b-0, b-2 (the files of partition 1 are lost) and c-0; the first record of b-2 was deleted."""
    async with running(str(data)) as client:
        await client.create("a")
        await client.produce("a", batch(b"a"))
    older = (data / JOURNAL).read_bytes()
    async with running(str(data)) as client:
        await client.create("b", partitions=3)
        await client.create("c")
        await client.produce("b", batch(b"b0"))
        await client.produce("b", batch(b"gone"), partition=2)
        await client.produce("b", batch(b"b3"), partition=2)
        await client.produce("c", batch(b"c"))
        partition = client.broker.replicas.partition("b", b"", 2, by_id=False)
        assert not isinstance(partition, int) and partition.delete_records_before(1) == 0
    if (data / "b-1").exists():  # created in the background, perhaps not yet
        shutil.rmtree(data / "b-1")
    (data / JOURNAL).write_bytes(older)
    async with running(str(data)):
        pass


@pytest.fixture
def data(tmp_path: Path) -> Path:
    asyncio.run(strayed(tmp_path / "data"))
    return tmp_path / "data"


def stray(*args: object) -> Result:
    return CliRunner().invoke(main, ["log", "stray", *map(str, args)])


async def read(data: Path) -> dict[tuple[str, int], list[bytes | None]]:
    """The records of every partition that has any, besides topic a."""
    found = {}
    async with running(str(data)) as client:
        for topic in client.broker.replicas:
            for partition in topic.partitions.values():
                if topic.name != "a" and partition.log is not None:
                    values = await client.read(topic.name, partition.index, partition.log_start_offset)
                    found[topic.name, partition.index] = values
    return found


def test_strays_are_listed(data: Path) -> None:
    listed = stray(data)
    assert listed.exit_code == 0, listed.output
    lines = listed.stdout.splitlines()
    assert [line.split()[2] for line in lines[:-1]] == ["b", "b", "c"] and lines[-1].startswith("3 stray partitions, ")
    shown = [json.loads(line) for line in stray(data, "--json").stdout.splitlines()]
    assert [(one["topic"], one["partition"], one["log_start_offset"]) for one in shown] == [
        ("b", 0, 0),
        ("b", 2, 1),
        ("c", 0, 0),
    ]
    assert stray(data, "nothing").exit_code == 2
    assert stray(data / "a-0").exit_code == 2


def test_all_strays_are_adopted(data: Path) -> None:
    done = stray(data, "--adopt")
    assert done.exit_code == 0, done.output
    assert "3 partitions adopted" in done.stdout and "retention.ms=-1" in done.stdout
    assert verify_directory(Disk(), str(data)) == []
    assert asyncio.run(read(data)) == VALUES
    assert find(Disk(), str(data)) == [] and stray(data).stdout == "no stray partitions\n"
    assert not list(data.glob("*-*/*-offset-checkpoint"))


def test_the_strays_of_one_topic_are_adopted_or_deleted(data: Path) -> None:
    assert stray(data, "b", "--adopt").exit_code == 0
    assert stray(data, "--delete").exit_code == 2, "without a name"
    assert f"`kafkalite log stray {data}` lists all" in stray(data, "nothing", "--delete").stderr
    done = stray(data, "c", "--delete")
    assert done.exit_code == 0 and "deleted" in done.stdout
    assert find(Disk(), str(data)) == []
    assert asyncio.run(read(data)) == {key: values for key, values in VALUES.items() if key[0] == "b"}


async def create(data: Path, topic: str) -> None:
    async with running(str(data)) as client:
        await client.create(topic)
        await client.produce(topic, batch(b"new"))


def test_stray_of_a_recreated_topic_is_rejected(data: Path) -> None:
    asyncio.run(create(data, "b"))
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    refused = stray(data, "--adopt")
    assert refused.exit_code == 2
    assert "topic b was created again" in refused.output and "delete the topic first" in refused.output
    after = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert {path for path in before if path not in after} == set(), "no file of any stray was renamed"
    assert stray(data, "c", "--adopt").exit_code == 0
    assert asyncio.run(read(data)) == {("b", 0): [b"new"], ("c", 0): [b"c"]}


def test_two_strays_of_one_partition_need_the_name_of_one(data: Path) -> None:
    (c,) = [one for one in find(Disk(), str(data)) if one.topic == "c"]
    twin = f"c-0.{'0' * 32}-stray"
    shutil.copytree(c.directory, data / twin)
    refused = stray(data, "c", "--adopt")
    assert refused.exit_code == 2 and "another stray of c-0" in refused.output
    assert stray(data, twin, "--adopt").exit_code == 0
    refused = stray(data, "c", "--adopt")
    assert refused.exit_code == 2 and "c-0 exists" in refused.output


def test_newer_journal_restores_its_stray_partitions(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(str(tmp_path)) as client:
            await client.create("a")
        older = (tmp_path / JOURNAL).read_bytes()
        async with running(str(tmp_path)) as client:
            await client.create("c", retention_ms="123456789")
            await client.produce("c", batch(b"c", timestamp=client.broker.clock.wall_ms()))
        newer = (tmp_path / JOURNAL).read_bytes()
        for journal in (older, newer):
            (tmp_path / JOURNAL).write_bytes(journal)
            async with running(str(tmp_path)):
                pass

    asyncio.run(story())
    done = stray(tmp_path, "--adopt")
    assert done.exit_code == 0, done.output
    assert "retention.ms" not in done.stdout, "the journal knows its settings"
    assert asyncio.run(read(tmp_path)) == {("c", 0): [b"c"]}


def test_a_directory_without_a_journal_and_a_running_broker_are_refused(data: Path) -> None:
    (data / JOURNAL).rename(data / "elsewhere")
    refused = stray(data, "--adopt")
    assert refused.exit_code == 2 and f"has no {JOURNAL}" in refused.output and not (data / JOURNAL).exists()
    directory = LogDirectory(Disk(), str(data))
    directory.lock()
    try:
        for args in ((), ("--adopt",), ("c", "--delete")):
            refused = stray(data, *args)
            assert refused.exit_code == 2 and "uses this log directory" in refused.output, args
    finally:
        directory.unlock()


@pytest.mark.parametrize("power", [False, True])
def test_an_adoption_that_ends_at_any_step_can_be_repeated(data: Path, tmp_path: Path, power: bool) -> None:
    print(f"KAFKALITE_SEED={SEED}")
    chance, steps, crashes = random.Random(SEED), SEED % STRIDE, 0
    while True:
        copy, disk = tmp_path / f"copy-{steps}", FaultyDisk()
        shutil.copytree(data, copy)
        directory = LogDirectory(disk, str(copy))
        directory.lock()
        disk.stop_at = disk.steps + steps
        try:
            adoption = StrayAdoption(disk, VirtualClock(), SeededRandom(5), str(copy), directory, move=True)
            asyncio.run(adoption.adopt(find(disk, str(copy))))
        except Crash:
            crashes += 1
            if power:
                disk.crash(chance)
        else:
            break
        finally:
            directory.unlock()
        disk.stop_at = -1
        repeated = stray(copy, "--adopt")
        assert repeated.exit_code == 0, (steps, repeated.output)
        assert asyncio.run(read(copy)) == VALUES, steps
        steps += STRIDE
    assert crashes >= 3
