"""System calls of a running broker fail or linger: strace does it, and its trace proves that it was done.

A failed write is taken back: its appends are refused, the next ones are served. A failed sync is final for its log
directory; the other directories serve on. While a sync lingers, other partitions are served.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from random import Random

import pytest

from kafkalite.errors import KafkaErrorCode
from tests.kit.checker import History, check
from tests.kit.load import Sender
from tests.kit.readers import READERS
from tests.kit.rig import assert_files_are_good, assert_kept, create_topic, ended
from tests.kit.traced import SYNC, WRITE, TracedKafkalite

pytestmark = [
    pytest.mark.torture,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
REQUESTS = 1500
STRUCK, SPARED = ("t", 0), ("t", 1)
FIRST = "00000000000000000000.log"
CHECKPOINTS = {"log.initial.task.delay.ms": "10", "log.flush.offset.checkpoint.interval.ms": "20"}


async def read_all(broker: TracedKafkalite, history: History, name: str, partitions: list[tuple[str, int]]) -> None:
    """A foreign client reads these partitions to their end, and they are what they must be."""
    reader = READERS[len(name) % len(READERS)]
    await asyncio.to_thread(reader, name, broker.address, partitions, history)
    assert_kept(check(history, name))


async def end(broker: TracedKafkalite) -> None:
    assert await asyncio.to_thread(broker.stop) == broker.clean_exit


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
async def test_a_write_that_fails_is_taken_back(
    fault: int, error: str, random: Random, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    first, step = random.randint(2, 100), random.randint(2, 50)
    path = tmp_path / "data" / "t-0" / FIRST
    broker = TracedKafkalite(tmp_path, {}, f"{WRITE}:error={error}:when={first}+{step}", [path])
    history, numbers = History(), itertools.count()
    struck = Sender("struck", history, numbers, random, [STRUCK])
    spared = Sender("spared", history, numbers, random, [SPARED])
    with ended(broker):
        await asyncio.to_thread(broker.start)
        await create_topic(broker.address, "t", 2)
        await asyncio.gather(*(each.run(broker.address, requests=REQUESTS) for each in (struck, spared)))
        assert broker.injected(WRITE) >= 1
        assert set(struck.refusals) == {KafkaErrorCode.KAFKA_STORAGE_ERROR}
        assert struck.acks + struck.refused_by_storage == spared.acks == REQUESTS and struck.acks > 0
        await read_all(broker, history, "under faults", [STRUCK, SPARED])
        await asyncio.to_thread(broker.kill)
        broker.traced = False
        await asyncio.to_thread(broker.start)
        await read_all(broker, history, "after a kill", [STRUCK, SPARED])
        await end(broker)
        await asyncio.to_thread(assert_files_are_good, broker.data, [STRUCK, SPARED])
    said = f"{error} in {broker.injected(WRITE)} of {len(broker.calls(WRITE))} writes"
    record_property("summary", f"injected {fault}: {said}, {struck.refused_by_storage} appends refused")
