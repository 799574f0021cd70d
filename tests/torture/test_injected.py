"""System calls of a running broker fail or linger: strace does it, and its trace proves that it was done.

A write without space is taken back: its appends are refused, the next ones are served. Any other failed write, and
every failed sync, is final for its log directory; the other directories serve on. While a sync lingers, other
partitions are served.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
from pathlib import Path
from random import Random

import pytest

from tests.kit.brokers import wait_until
from tests.kit.checker import History, check
from tests.kit.load import Sender
from tests.kit.readers import READERS
from tests.kit.rig import assert_directories_are_good, assert_files_are_good, assert_kept, create_topic, ended
from tests.kit.traced import SYNC, WRITE, TracedKafkalite

pytestmark = [
    pytest.mark.torture,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
REQUESTS = 2000
STRUCK, SPARED = ("t", 0), ("t", 1)
OFFLINE = ": offline with "
FIRST = "00000000000000000000.log"
# What closed segments hold is synced with the checkpoints.
CHECKPOINTS = {"log.initial.task.delay.ms": "10", "log.flush.offset.checkpoint.interval.ms": "20"}


async def read_all(broker: TracedKafkalite, history: History, name: str, partitions: list[tuple[str, int]]) -> None:
    """A foreign client reads these partitions to their end, and they are what they must be."""
    reader = READERS[len(name) % len(READERS)]
    await asyncio.to_thread(reader, name, broker.address, partitions, history)
    assert_kept(check(history, name))


async def restart_untraced(broker: TracedKafkalite) -> None:
    await asyncio.to_thread(broker.kill)
    broker.traced = False
    await asyncio.to_thread(broker.start)


async def test_write_without_space_is_truncated(
    fault: int, random: Random, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    inject = f"{WRITE}:error=ENOSPC:when={random.randint(2, 50)}+{random.randint(2, 50)}"
    broker = TracedKafkalite(tmp_path, {}, inject, [tmp_path / "data" / "t-0" / FIRST])
    history, numbers = History(), itertools.count()
    struck = Sender("struck", history, numbers, random, [STRUCK])
    spared = Sender("spared", history, numbers, random, [SPARED])
    with ended(broker):
        await asyncio.to_thread(broker.start)
        await create_topic(broker.address, "t", 2)
        await asyncio.gather(*(each.run(broker.address, requests=REQUESTS) for each in (struck, spared)))
        assert broker.injected(WRITE) >= 1
        assert struck.acks + struck.refused_by_storage == spared.acks == REQUESTS
        assert struck.acks > 0 and struck.refused_by_storage > 0
        await read_all(broker, history, "under faults", [STRUCK, SPARED])
        await restart_untraced(broker)
        await read_all(broker, history, "after a kill", [STRUCK, SPARED])
        assert await asyncio.to_thread(broker.stop) == broker.clean_exit
        await asyncio.to_thread(assert_files_are_good, broker.data, [STRUCK, SPARED])
    said = f"ENOSPC in {broker.injected(WRITE)} of {len(broker.calls(WRITE))} writes"
    record_property("summary", f"injected {fault}: {said}, {struck.refused_by_storage} appends refused")


@pytest.mark.parametrize(
    ("call", "calls_before", "flush"),
    [
        pytest.param(WRITE, 50, {}, id="write"),
        # strace counts the calls of each thread by itself, and several carry out the syncs
        pytest.param(SYNC, 3, {"flush_messages": "1"}, id="sync before the answer"),
        pytest.param(SYNC, 0, {}, id="sync of a closed segment"),
    ],
)
async def test_disk_error_takes_its_log_directory_offline(
    fault: int, call: str, calls_before: int, flush: dict[str, str], random: Random, tmp_path: Path
) -> None:
    directories = [tmp_path / "d0", tmp_path / "d1"]
    settings = {**CHECKPOINTS, "log.dirs": ",".join(map(str, directories))}
    inject = f"{call}:error=EIO:when={random.randint(1, calls_before + 1)}"
    broker = TracedKafkalite(tmp_path, settings, inject, [each / "t-0" / FIRST for each in directories])
    history, numbers = History(), itertools.count()
    struck = Sender("struck", history, numbers, random, [STRUCK], certain=call == WRITE, silent=0.1)
    spared = Sender("spared", history, numbers, random, [SPARED])
    with ended(broker):
        await asyncio.to_thread(broker.start)
        await create_topic(broker.address, "t", 2, segment_bytes=str(1 << 20), **flush)
        await asyncio.gather(*(each.run(broker.address, requests=REQUESTS) for each in (struck, spared)))
        assert spared.acks == REQUESTS
        # By then the call has hit the fault.
        await asyncio.to_thread(wait_until, lambda: OFFLINE in broker.said(), "the end of the directory")
        later = Sender("later", history, numbers, random, [STRUCK])
        await later.run(broker.address, requests=10)
        assert (later.acks, later.refused_by_storage) == (0, 10)
        assert [("INJECTED" in line) for line in broker.calls(call)].index(True) == len(broker.calls(call)) - 1, (
            "the call that failed was made again"
        )
        await read_all(broker, history, "the other directory", [SPARED])
        await restart_untraced(broker)
        await read_all(broker, history, "after a kill", [STRUCK, SPARED])
        assert await asyncio.to_thread(broker.stop) == broker.clean_exit
        partitions_by_directory: dict[Path, list[tuple[str, int]]] = {}
        for topic, index in (STRUCK, SPARED):
            (directory,) = [each for each in directories if (each / f"{topic}-{index}").exists()]
            partitions_by_directory.setdefault(directory, []).append((topic, index))
        await asyncio.to_thread(assert_directories_are_good, partitions_by_directory)


async def test_slow_fsync_delays_its_own_partition_only(
    fault: int, random: Random, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    broker = TracedKafkalite(tmp_path, {}, f"{SYNC}:delay_exit=1000000", [tmp_path / "data" / "slow-0" / FIRST])
    history, numbers = History(), itertools.count()
    slow = Sender("slow", history, numbers, random, [("slow", 0)])
    quick = Sender("quick", history, numbers, random, [("quick", 0)])
    meanwhile = []
    with ended(broker):
        await asyncio.to_thread(broker.start)
        await create_topic(broker.address, "slow", 1, flush_messages="1")
        await create_topic(broker.address, "quick", 1)
        await slow.run(broker.address, requests=1)
        for _ in range(5):
            before = quick.acks
            waiting = asyncio.create_task(slow.run(broker.address, requests=1))
            while not waiting.done():
                await quick.run(broker.address, requests=1)
            await waiting
            meanwhile.append(quick.acks - before)
        assert slow.acks == 6 and not slow.refusals and not quick.refusals
        assert broker.injected(SYNC) == len(broker.calls(SYNC)) >= 6
        # A loop that waits for the sync makes two or three; a pause of the machine affects two rounds at most.
        assert statistics.median(meanwhile) >= 5, meanwhile
        await read_all(broker, history, "at the end", [("slow", 0), ("quick", 0)])
        assert await asyncio.to_thread(broker.stop) == broker.clean_exit
    record_property("summary", f"injected {fault}: while a sync took 1 s, others made {meanwhile} requests")


def test_call_split_by_strace_is_one_call(tmp_path: Path) -> None:
    broker = TracedKafkalite(tmp_path, {}, "", [])
    broker.trace.write_text(
        "7 fdatasync(3</a>) = 0\n"
        "7 fdatasync(3</a> <unfinished ...>\n"
        "8 fdatasync(4</b> <unfinished ...>\n"
        "7 <... fdatasync resumed>) = -1 EIO (Input/output error) (INJECTED)\n"
        "8 <... fdatasync resumed>) = 0\n"
    )
    assert ["INJECTED" in call for call in broker.calls("fdatasync")] == [False, True, False]
    assert broker.injected("fdatasync") == 1
