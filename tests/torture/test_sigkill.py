"""kill -9 again and again, at the worst moments: nothing acknowledged is lost, order is kept, nothing is there twice.

A life is one data directory with a kill at each kind of moment, in random order. Two of our pipelined producers write
to the same partitions, others to a topic with flush.messages=1 and to a compacted one; they never send twice, and send
a part with acks=0. A consumer follows. librdkafka's idempotent producer goes on through all kills, behind a proxy that
hangs up before answers. After each kill a foreign client reads everything; at the end two do, and the files are judged.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from pathlib import Path
from random import Random

import pytest

from tests.kit.brokers import READY, Kafkalite
from tests.kit.checker import History, Partition, check
from tests.kit.load import IdempotentSender, Sender, Tail
from tests.kit.ports import free_port
from tests.kit.proxy import CuttingProxy
from tests.kit.readers import READERS
from tests.kit.rig import assert_files_are_good, assert_kept, create_topic, unsynced
from tests.kit.watching import Watch

pytestmark = [
    pytest.mark.torture,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
MOMENTS = ("load", "roll", "recovery", "shutdown", "compaction")
CLEANING = (".cleaned", ".swap", ".deleted")
KEYS = 100
ACKS_MIN = 1000
CUT_SHARE = 0.02
PLAIN, SYNCED, COMPACTED, IDEMPOTENT = "plain", "synced", "compacted", "idempotent"
SILENT = 0.1


class KillSeries:
    """A broker, its loads, and what they know."""

    def __init__(self, directory: Path, random: Random, proxy: CuttingProxy, broker_port: int) -> None:
        self.random = random
        self.proxy = proxy
        self.broker = Kafkalite(directory, {})
        listeners = f"PLAINTEXT://{self.broker.address},PROXIED://127.0.0.1:{broker_port}"
        self.broker.settings |= {
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.broker.address},PROXIED://127.0.0.1:{proxy.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT",
            "log.cleaner.backoff.ms": "20",
            "log.segment.bytes": str(1 << 20),
        }
        self.history = History(compacted=[COMPACTED])
        self.plain: list[Partition] = []
        self.partitions: list[Partition] = []
        self.followed = 0
        self.senders: list[Sender] = []
        self.acks_of_steps: list[int] = []
        self.idempotent: IdempotentSender | None = None

    async def begin(self) -> None:
        await asyncio.to_thread(self.broker.start)
        self.plain = await create_topic(self.broker.address, PLAIN, 3)
        synced = await create_topic(self.broker.address, SYNCED, 1, flush_messages="1")
        compact = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
        compacted = await create_topic(self.broker.address, COMPACTED, 1, **compact)
        await create_topic(self.broker.address, IDEMPOTENT, 2)
        self.partitions = [*self.plain, *synced, *compacted]
        numbers = itertools.count()
        self.senders = [
            Sender(
                name, self.history, numbers, Random(self.random.random()), topic_partitions, keys=keys, silent=SILENT
            )
            for name, topic_partitions, keys in (
                ("a", self.plain, 0),
                ("b", self.plain, 0),
                ("c", synced, 0),
                ("d", compacted, KEYS),
            )
        ]
        self.idempotent = IdempotentSender(f"127.0.0.1:{self.proxy.port}", IDEMPOTENT, 2)
        self.idempotent.start()

    async def step(self, moment: str, number: int) -> None:
        """Load, a kill at this moment, a start by itself, everything read back."""
        before = self.acks
        goal = before + ACKS_MIN + self.random.randint(0, ACKS_MIN)
        tail = Tail(f"tail {number}", self.history, self.plain)
        loads = [asyncio.create_task(each.run(self.broker.address)) for each in (*self.senders, tail)]
        try:
            await self.until(goal)
            exposed = unsynced(self.broker.data, self.history, self.plain)
            await asyncio.to_thread(getattr(self, f"kill_at_{moment}"))
        finally:
            for sender in self.senders:
                sender.stop()
            await asyncio.gather(*loads)
        self.acks_of_steps.append(self.acks - before)
        self.followed += tail.records
        assert self.acks_of_steps[-1] >= ACKS_MIN
        assert exposed, "every acknowledged record was synced: the kill proves nothing"
        await asyncio.to_thread(self.broker.start)
        reader = READERS[number % len(READERS)]
        await self.judge(reader, f"reader {number}")

    @property
    def acks(self) -> int:
        return sum(sender.acks for sender in self.senders)

    async def until(self, goal: int) -> None:
        while self.acks < goal:
            await self.senders[0].until(self.senders[0].acks + 1)

    async def judge(self, reader: object, name: str) -> None:
        await asyncio.to_thread(reader, name, self.broker.address, self.partitions, self.history)  # type: ignore[arg-type]
        assert_kept(check(self.history, name))

    # The moments; all run beside the load, in a thread.

    def kill_at_load(self) -> None:
        self.broker.kill()

    def kill_at_roll(self) -> None:
        """When a new segment appears."""
        with Watch(self.directories()) as watch:
            found = watch.wait(self.random.randint(1, 2), lambda name: name.endswith(".log"), self.ended)
            self.broker.kill()
        assert found is not None, "no segment was rolled"

    def kill_at_compaction(self) -> None:
        """When the cleaner has made or renamed so many files."""
        with Watch([self.broker.data / f"{COMPACTED}-0"]) as watch:
            found = watch.wait(self.random.randint(1, 12), lambda name: name.endswith(CLEANING), self.ended)
            self.broker.kill()
        assert found is not None, "nothing was compacted"

    def kill_at_shutdown(self) -> None:
        """When the broker, after SIGTERM, has written this many of the files of a clean shutdown."""
        with Watch([self.broker.data, *self.directories()]) as watch:
            os.kill(self.broker.pid, signal.SIGTERM)
            watch.wait(self.random.randint(1, 12), lambda name: not name.endswith(".log"), self.ended)
            self.broker.kill()

    def kill_at_recovery(self) -> None:
        """When the broker that recovers from a kill has touched so many files; and once more."""
        for _ in range(2):
            self.broker.kill()
            with Watch([self.broker.data, *self.directories()]) as watch:
                self.broker.launch()
                watch.wait(self.random.randint(1, 12), lambda name: True, lambda: READY in self.broker.said())
        self.broker.kill()

    def ended(self) -> bool:
        return not self.broker.running()

    def directories(self) -> list[Path]:
        return [*sorted(self.broker.data.glob(f"{PLAIN}-?")), self.broker.data / f"{COMPACTED}-0"]

    def over(self) -> None:
        """Whatever happened: no process and no thread goes on."""
        if self.broker.running():
            self.broker.kill()
        if self.idempotent is not None and self.idempotent.is_alive():
            self.idempotent.give_up()

    async def end(self) -> None:
        """Everything answered, read by every foreign client, stopped cleanly, and judged as files."""
        assert self.idempotent is not None
        await asyncio.to_thread(self.idempotent.finish)
        partitions = [(IDEMPOTENT, 0), (IDEMPOTENT, 1)]
        for reader in READERS:
            name = f"last {reader.__name__}"
            await self.judge(reader, name)
            await asyncio.to_thread(reader, name, self.broker.address, partitions, self.idempotent.history)
            assert_kept(check(self.idempotent.history, name))
        assert self.followed > 0 and all(each.acks > 0 for each in self.senders)
        assert self.proxy.wrong == []
        assert self.proxy.answered_again > 0, f"{self.proxy.cuts} answers were cut, and no batch was sent again"
        assert await asyncio.to_thread(self.broker.stop) == self.broker.clean_exit
        compacted = [topic_partition for topic_partition in self.partitions if topic_partition[0] == COMPACTED]
        partitions += [topic_partition for topic_partition in self.partitions if topic_partition[0] != COMPACTED]
        await asyncio.to_thread(assert_files_are_good, self.broker.data, partitions)
        await asyncio.to_thread(assert_files_are_good, self.broker.data, compacted, compacted=True)


async def test_sigkill_loses_no_acknowledged_record(
    series: int, random: Random, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    broker_port = free_port()
    async with CuttingProxy(broker_port, Random(random.random()), CUT_SHARE) as proxy:
        this = KillSeries(tmp_path / "broker", random, proxy, broker_port)
        try:
            await this.begin()
            for number, moment in enumerate(random.sample(MOMENTS, len(MOMENTS))):
                print(f"round {number}: {moment}")
                await this.step(moment, number)
            await this.end()
        finally:
            this.over()
    record_property(
        "summary",
        f"life {series}: {len(MOMENTS)} kills, {sum(this.acks_of_steps)} requests acknowledged, "
        f"{proxy.cuts} answers cut, {proxy.answered_again} batches answered again",
    )
