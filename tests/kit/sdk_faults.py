"""Faults of a real broker under clients of the SDK: `python -m tests.kit.sdk_faults SCENARIO DIRECTORY SEED COUNT`.

A scenario is a process of its own, so that a test can assert that nothing was printed, also with PYTHONASYNCIODEBUG=1.
It prints a summary as JSON, with the anomalies of the history.

| scenario | fault |
|---|---|
| kills | the broker is killed COUNT times under a pipelined producer and a group of two |
| suspensions | the broker is suspended COUNT times for longer than the session timeout |
| cuts | connections are closed before COUNT responses that repeat an earlier one |
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from kafkalite_sdk import Consumer, Producer

from tests.kit.brokers import AGAINST, KINDS, Broker
from tests.kit.checker import History, Partition, check
from tests.kit.group_checker import GroupHistory
from tests.kit.proxy import CuttingProxy
from tests.kit.readers import read_by_aiokafka
from tests.kit.rig import create_topic
from tests.kit.sdk_load import AwaitedSender, Reader, all_read, elapse

TOPIC, PARTITIONS = "t", 3
OPEN_MIN = 1_000
BURST = 500
ACKS_BETWEEN = 2_000
SESSION_MS = 1_500
SUSPENDED_S = 2.5
SCENARIO_S = 500.0
CUT_SHARE = 0.05
DELIVERY_MS = 120_000
SETTINGS = {
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}


class Scenario:
    """A broker, a producer, two members of a group, and what they know."""

    def __init__(self, broker: Broker, random: Random, protocol: str) -> None:
        self.broker = broker
        self.random = random
        self.history = History()
        self.group = GroupHistory("g", self.history)
        self.partitions: list[Partition] = []
        self.open_at_faults: list[int] = []
        self._protocol = protocol
        self._ending = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The clients work before and within the block; at its end every outcome is known and every record is read."""
        self.partitions = await create_topic(self.broker.address, TOPIC, PARTITIONS)
        producer = Producer(self.broker.address, linger_ms=1, delivery_timeout_ms=DELIVERY_MS)
        async with producer, self._member() as one, self._member() as two:
            self.sender = AwaitedSender("sdk", producer, self.history, TOPIC, PARTITIONS)
            self.readers = [
                Reader(name, consumer, self.group, self.random) for name, consumer in (("one", one), ("two", two))
            ]
            for reader in self.readers:
                reader.subscribe(TOPIC)
            async with asyncio.TaskGroup() as tasks:
                for reader in self.readers:
                    tasks.create_task(reader.run(self._ending))
                await self.work()
                yield
                await producer.flush()
                await all_read(self.readers, self.group)
                self._ending.set()

    def _member(self) -> Consumer:
        classic: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 200}
        return Consumer(
            self.broker.address,
            group="g",
            group_protocol=self._protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **(classic if self._protocol == "classic" else {}),
        )

    async def work(self) -> None:
        """Send until more records are acknowledged and the group has committed again."""
        commits = self.group.commits
        await self.sender.more_acks(ACKS_BETWEEN)
        while self.group.commits == commits:
            await self.sender.more_acks(BURST)
            for reader in self.readers:
                await reader.progress()

    async def kill(self) -> None:
        """Kill the broker while many sends are open, and start it again."""
        await self.sender.fill(OPEN_MIN, BURST)
        os.kill(self.broker.pid, signal.SIGKILL)
        self.open_at_faults.append(self.sender.open)
        await asyncio.to_thread(self.broker.kill)
        await asyncio.to_thread(self.broker.start)
        await self.work()

    async def suspend(self) -> None:
        """Suspend the broker for longer than the session timeout, with many sends open."""
        self.broker.freeze()
        try:
            await self.sender.fill(OPEN_MIN, BURST)
            self.open_at_faults.append(self.sender.open)
            await elapse(SUSPENDED_S)
        finally:
            os.kill(self.broker.pid, signal.SIGCONT)
        await self.work()

    def read_everything(self) -> None:
        """Read all partitions by another client, when those of the SDK are closed."""
        logging.getLogger("asyncio").setLevel(logging.ERROR)  # the clients of the SDK are closed
        read_by_aiokafka("full", self.broker.address, self.partitions, self.history)

    def summary(self) -> dict[str, Any]:
        """Check the history after the full reading."""
        anomalies = [*check(self.history, "full"), *self.group.check()]
        return {
            "anomalies": [f"{each.name} {each.partition}: {each.text}" for each in anomalies[:20]],
            "anomalies_count": len(anomalies),
            "errors": [repr(error) for error in self.sender.errors[:5]],
            "open_at_faults": self.open_at_faults,
            "sent": len(self.history.sends),
            "acknowledged": self.sender.acks,
            "read": {reader.name: reader.records for reader in self.readers},
            "ownerships": self.group.ownerships_count,
            "commits": self.group.commits,
            "refused_commits": sum(reader.refused_commits for reader in self.readers),
        }


async def kills(scenario: Scenario, count: int) -> None:
    async with scenario.running():
        for _ in range(count):
            await scenario.kill()


async def suspensions(scenario: Scenario, count: int) -> None:
    async with scenario.running():
        for _ in range(count):
            await scenario.suspend()


async def cuts(scenario: Scenario, count: int) -> None:
    """Clients connect through a proxy, whose address the broker advertises."""
    broker = scenario.broker
    async with CuttingProxy(broker.port, scenario.random, CUT_SHARE) as proxy:
        broker.settings |= {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        await asyncio.to_thread(broker.start)
        async with scenario.running():
            while proxy.answered_again < count:
                await scenario.sender.more_acks(ACKS_BETWEEN)
        assert proxy.wrong == [], proxy.wrong
        scenario.open_at_faults.append(proxy.answered_again)
        await asyncio.to_thread(scenario.read_everything)


def left_over(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Tasks, timers and sockets that the clients have left."""
    tasks = [repr(task) for task in asyncio.all_tasks(loop) if task is not asyncio.current_task(loop)]
    scheduled: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]
    timers = [repr(timer) for timer in scheduled if not timer.cancelled()]
    selector: Any = loop._selector  # type: ignore[attr-defined]
    own = loop._ssock  # type: ignore[attr-defined]
    sockets = [repr(key) for key in selector.get_map().values() if key.fileobj != own and key.fd != own.fileno()]
    return [*tasks, *timers, *sockets]


async def run(name: str, directory: Path, seed: str, count: int, protocol: str) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    loop.slow_callback_duration = 60.0  # other processes use the cores, too
    broker = KINDS[AGAINST](directory, SETTINGS)
    scenario = Scenario(broker, Random(seed), protocol)
    try:
        async with asyncio.timeout(SCENARIO_S):
            if name == "cuts":
                await cuts(scenario, count)
            else:
                await asyncio.to_thread(broker.start)
                await {"kills": kills, "suspensions": suspensions}[name](scenario, count)
        left = left_over(loop)
        if name != "cuts":
            await asyncio.to_thread(scenario.read_everything)
        return {**scenario.summary(), "left_over": left}
    finally:
        await asyncio.to_thread(broker.close)


def main(name: str, directory: str, seed: str, count: str, protocol: str) -> None:
    print(json.dumps(asyncio.run(run(name, Path(directory), seed, int(count), protocol))))


if __name__ == "__main__":
    main(*sys.argv[1:])
