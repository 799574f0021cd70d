"""Restore drills: older journals and checkpoints, lost and swapped directories. No segment is deleted or shortened.

Each history is drawn from a seed: topics are created and written to over several incarnations of a broker, and the
small files of each incarnation are kept. Then every older copy of each is put back, alone, and a broker is started.
"""

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from kafkalite.server.broker import JOURNAL, Broker, StartError
from tests.kit.server import batch, running

SEED = int(os.environ.get("KAFKALITE_SEED", random.SystemRandom().randrange(2**32)))
HISTORIES = 20
NO_DELAY = {"log.segment.delete.delay.ms": "0", "log.initial.task.delay.ms": "0"}
KEPT = (
    JOURNAL,
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    ".kafka_cleanshutdown",
)


def segments(data: Path) -> Counter[bytes]:
    """The contents of all segments with records, wherever they are."""
    return Counter(path.read_bytes() for path in data.rglob("*.log") if path.stat().st_size)


async def history(data: Path, chance: random.Random) -> list[dict[str, bytes]]:
    """Run a broker a few times; the small files behind each end."""
    copies, count = [], 0
    for _ in range(3):
        async with running(str(data), NO_DELAY) as client:
            for _ in range(chance.randint(1, 2)):
                await client.create(f"t{count}", partitions=chance.randint(1, 2), retention_ms="-1")
                count += 1
            for topic in list(client.broker.replicas):
                for partition in topic.partitions:
                    for number in range(chance.randint(0, 2)):
                        unique = batch(
                            b"%s-%d-%d" % (topic.name.encode(), partition.index, number), chance.randbytes(8)
                        )
                        await client.produce(topic.name, unique, partition=partition.index)
        copies.append({name: (data / name).read_bytes() for name in KEPT})
    return copies


async def survives(data: Path, what: str) -> None:
    """Start twice; the segments are all there afterwards, and a refusal names the directory."""
    before = segments(data)
    for _ in range(2):
        broker = Broker(str(data), NO_DELAY)
        try:
            await broker.start()
        except StartError as error:
            assert str(data) in str(error), what
        else:
            await broker.stop()
    assert segments(data) == before, what


@pytest.mark.parametrize("number", range(HISTORIES))
async def test_no_restored_or_lost_file_costs_a_record(number: int, tmp_path: Path) -> None:
    print(f"KAFKALITE_SEED={SEED}")
    chance, data = random.Random(SEED + number), tmp_path / "data"
    copies = await history(data, chance)
    drills = [
        ({name: content}, f"{name} of end {at}") for at, one in enumerate(copies[:-1]) for name, content in one.items()
    ]
    for at, (files, what) in enumerate(drills):
        copy = tmp_path / f"drill-{at}"
        shutil.copytree(data, copy)
        for name, content in files.items():
            (copy / name).write_bytes(content)
        await survives(copy, what)
    for name in KEPT:
        copy = tmp_path / f"without-{name}"
        shutil.copytree(data, copy)
        (copy / name).unlink()
        await survives(copy, f"without {name}")
    partitions = sorted(path.name for path in data.glob("t*-*") if path.is_dir())
    if len(partitions) > 1:
        first, second = chance.sample(partitions, 2)
        copy = tmp_path / "swapped"
        shutil.copytree(data, copy)
        (copy / first).rename(copy / "x")
        (copy / second).rename(copy / first)
        (copy / "x").rename(copy / second)
        await survives(copy, f"{first} and {second} swapped")
        shutil.rmtree(copy / first)
        await survives(copy, f"{first} deleted")
