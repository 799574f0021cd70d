"""Restore drills: older journals and checkpoints, lost and swapped directories. No segment is deleted or shortened.

Each history is drawn from a seed: topics are created, written to and compacted over several incarnations of a broker,
one of which does not end cleanly, and the small files of each incarnation are kept. Then every older copy of each is
put back, alone, and a broker is started. Each refusal and each error in its log says what to do next.
"""

import asyncio
import logging
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.server.broker import Broker, StartError
from kafkalite.server.process.resources import JOURNAL
from tests.kit.seeds import chosen_seed
from tests.kit.server import NOW_MS, Client, batch, running

SEED = chosen_seed()
HISTORIES = 20
NO_DELAY = {"log.segment.delete.delay.ms": "0", "log.initial.task.delay.ms": "0"}
HISTORY = {**NO_DELAY, "log.cleaner.backoff.ms": "1"}
DRILL = {**NO_DELAY, "log.cleaner.enable": "false"}  # the cleaner would change segments
COMPACTED = "compacted"
COMPACT = {"cleanup_policy": "compact", "segment_ms": "1", "min_cleanable_dirty_ratio": "0.01"}
CLEANER, EPOCHS, CLEAN = "cleaner-offset-checkpoint", "leader-epoch-checkpoint", ".kafka_cleanshutdown"
KEPT = (JOURNAL, "recovery-point-offset-checkpoint", "log-start-offset-checkpoint", CLEANER, CLEAN, "meta.properties")
NEXT_STEP = re.compile(
    r"restore|put .* back|delete the topic|`kafkalite log (stray|truncate)|move (it|the directory) away", re.IGNORECASE
)

Files = dict[str, bytes | None]  # by their paths in the log directory, None: to be removed


class Compaction(logging.Handler):
    """Sets `happened` when the cleaner has compacted a log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.happened = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "compacted offsets" in record.getMessage():
            self.happened.set()


def segments(data: Path) -> Counter[bytes]:
    """The contents of all segments with records, wherever they are."""
    return Counter(path.read_bytes() for path in data.rglob("*.log") if path.stat().st_size)


async def history(data: Path, chance: random.Random) -> list[dict[str, bytes]]:
    """Run a broker a few times; the small files behind each end."""
    copies, count = [], 0
    for incarnation in range(3):
        async with running(str(data), HISTORY) as client:
            for _ in range(chance.randint(1, 2)):
                await client.create(f"t{count}", partitions=chance.randint(1, 2), retention_ms="-1")
                count += 1
            if not incarnation:
                await client.create(COMPACTED, **COMPACT)
            for topic in list(client.broker.replicas):
                for partition in topic.partitions.values():
                    for number in range(chance.randint(0, 2)):
                        unique = batch(
                            b"%s-%d-%d" % (topic.name.encode(), partition.index, number), chance.randbytes(8)
                        )
                        await client.produce(topic.name, unique, partition=partition.index)
            await compact(client, incarnation)
        copies.append({path: (data / path).read_bytes() for path in (*KEPT, *epochs_of(data))})
        if incarnation == 1:
            (data / CLEAN).unlink()  # the next start is an unclean one, and raises leader epochs
    return copies


async def compact(client: Client, incarnation: int) -> None:
    """Write the same key into several segments, and wait until the cleaner has removed the older records."""
    compaction, logger = Compaction(), logging.getLogger("kafkalite.storage.compaction.cleaner")
    level = logger.level
    logger.addHandler(compaction)
    logger.setLevel(logging.INFO)
    try:
        for number in range(3):
            timestamp = NOW_MS + 1000 * (10 * incarnation + number)
            await client.produce(COMPACTED, batch(b"%d-%d" % (incarnation, number), timestamp=timestamp))
        async with asyncio.timeout(60):
            await compaction.happened.wait()
    finally:
        logger.setLevel(level)
        logger.removeHandler(compaction)


def epochs_of(data: Path) -> list[str]:
    """The leader epoch checkpoints of all partitions."""
    return sorted(str(path.relative_to(data)) for path in data.glob(f"*/{EPOCHS}"))


async def survives(data: Path, what: str) -> None:
    """Start twice; the segments are all there afterwards, and a refusal names the directory and the next step."""
    before = segments(data)
    for _ in range(2):
        broker = Broker(str(data), DRILL)
        try:
            await broker.start()
        except StartError as error:
            assert str(data) in str(error) and NEXT_STEP.search(str(error)), f"{what}: {error}"
        else:
            await broker.stop()
    assert segments(data) == before, what


def drills_of(copies: list[dict[str, bytes]]) -> Iterator[tuple[str, Files]]:
    """Each older or missing file alone, leader epochs of all partitions at once, after a clean and an unclean end."""
    for at, copy in enumerate(copies[:-1]):
        epochs: Files = {path: content for path, content in copy.items() if path.endswith(EPOCHS)}
        for name, files in [*((name, Files({name: copy[name]})) for name in KEPT), (EPOCHS, epochs)]:
            yield f"{name} of end {at}", files
            if name in (CLEANER, EPOCHS):
                yield f"{name} of end {at}, unclean", {**files, CLEAN: None}
    for name in KEPT:
        yield f"without {name}", {name: None}
    yield f"without {EPOCHS}", {path: None for path in copies[-1] if path.endswith(EPOCHS)}
    yield f"without {CLEANER}, unclean", {CLEANER: None, CLEAN: None}


@pytest.mark.parametrize("number", range(HISTORIES))
async def test_no_restored_or_lost_file_costs_a_record(
    number: int, ram: Path, caplog: pytest.LogCaptureFixture
) -> None:
    print(f"KAFKALITE_SEED={SEED}")
    chance, data = random.Random(SEED + number), ram / "data"
    copies = await history(data, chance)
    assert len(epochs_of(data)) > 1 and copies[0][CLEANER] != copies[-1][CLEANER]
    assert any(copies[1][path] != copies[2][path] for path in copies[1] if path.endswith(EPOCHS))
    caplog.clear()
    for at, (what, files) in enumerate(drills_of(copies)):
        copy = ram / f"drill-{at}"
        shutil.copytree(data, copy)
        for name, content in files.items():
            if content is None:
                (copy / name).unlink()
            else:
                (copy / name).write_bytes(content)
        await survives(copy, what)
    partitions = sorted(path.name for path in data.glob("t*-*") if path.is_dir())
    if len(partitions) > 1:
        first, second = chance.sample(partitions, 2)
        copy = ram / "swapped"
        shutil.copytree(data, copy)
        (copy / first).rename(copy / "x")
        (copy / second).rename(copy / first)
        (copy / "x").rename(copy / second)
        await survives(copy, f"{first} and {second} swapped")
        shutil.rmtree(copy / first)
        await survives(copy, f"{first} deleted")
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert [line for line in errors if not NEXT_STEP.search(line)] == []
