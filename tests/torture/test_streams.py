"""Flights in the streams of a group: one stream is slow, the task of one is cancelled again and again, a member joins,
one is killed with records in work, another one joins.

Judged by `tests/kit/streams_checker.py`: order in each partition, every record completed at least once, no committed
offset above a record that is not complete. Committed offsets are those that members report and those that the broker
returns to an outside reader all the time.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from kafkalite_sdk import Producer
from kafkalite_sdk.admin import Admin

from tests.fix_torture import is_long
from tests.kit import streams_member
from tests.kit.brokers import IS_KAFKALITE, broker_under_test
from tests.kit.checker import ViolationError
from tests.kit.flights import FLIGHTS, Flight, flights, today
from tests.kit.rig import create_topic
from tests.kit.sdk_load import elapse
from tests.kit.streams_checker import Event, StreamsHistory
from tests.kit.streams_member import STREAMS, JournalReader

pytestmark = [pytest.mark.torture, pytest.mark.timeout(700)]
TOPIC, PARTITIONS, GROUP = "flights", 12, "g"
SHORT = 24_000
PROTOCOLS = ("classic", "consumer")
STORY_S = 300.0
SESSION_MS = 1_500
LONG_SESSION_MS = 30_000
SAMPLE_S = 0.005
SLOW = 200
ALWAYS = FLIGHTS
SETTINGS = {
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}


class Group:
    """The members of a group, in processes of their own, and what they have done."""

    def __init__(self, address: str, protocol: str, directory: Path) -> None:
        self.history = StreamsHistory()
        self.completed: Counter[str] = Counter()  # records by member
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._command = [sys.executable, "-m", streams_member.__name__]
        self._arguments = [address, GROUP, TOPIC, protocol]
        self._directory = directory
        self._readers: list[JournalReader] = []
        self._pending: list[Event] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """No member outlives the block."""
        try:
            yield
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()

    def join(self, name: str, slow: int, session_ms: int = LONG_SESSION_MS) -> None:
        """Start a member."""
        path = self._directory / name
        arguments = [name, *self._arguments, str(session_ms), str(slow), str(path)]
        self.processes[name] = subprocess.Popen([*self._command, *arguments])
        self._readers.append(JournalReader(name, path))

    def kill(self, name: str) -> None:
        """Kill a member."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()
        self._pending.append(Event(time.monotonic_ns(), "died", name))

    def leave(self) -> None:
        """Close all members."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        assert [process.wait(STORY_S) for process in self.processes.values()] == [0] * len(self.processes)

    async def sample(self, admin: Admin) -> dict[int, int]:
        """Add what is committed now and what has happened before; return the committed offsets."""
        until_ns = time.monotonic_ns()
        found = (await admin.group_offsets.list(GROUP))[GROUP]
        now_ns = time.monotonic_ns()
        offsets = {each.partition: committed.offset for each, committed in found.items()}
        self._pending += [Event(now_ns, "committed", "", *each) for each in offsets.items()]
        for reader in self._readers:
            self._pending += reader.read()
        self._pending.sort(key=lambda event: event.time_ns)
        count = bisect_left(self._pending, until_ns, key=lambda event: event.time_ns)
        events, self._pending = self._pending[:count], self._pending[count:]
        for event in events:
            self.history.apply(event)
            self.completed[event.member] += event.name == "completed"
        return offsets


class Story:
    """Flights, their producer and their group."""

    def __init__(self, group: Group, producer: Producer, admin: Admin, schedule: Sequence[Flight]) -> None:
        self.group = group
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self._producer, self._admin, self._schedule = producer, admin, iter(schedule)

    async def send(self, count: int | None = None) -> None:
        """Send the next flights, or all that are left."""
        sent = []
        for flight in itertools.islice(self._schedule, count):
            sent.append(self._producer.send(TOPIC, flight.value, key=flight.key, timestamp_ms=flight.timestamp_ms))
            await self._producer.drain()
        for each in sent:
            landed = await each
            self.ends[landed.partition] = max(self.ends[landed.partition], landed.offset + 1)

    async def until(self, condition: Callable[[], object], sent: int = 0) -> dict[int, int]:
        """Compare what is committed with what is complete, until the condition is true; return what is committed.

        Meanwhile, send so many flights after each comparison.
        """
        async with asyncio.timeout(STORY_S):
            while True:
                committed = await self.group.sample(self._admin)
                if self.group.history.anomalies:
                    raise ViolationError(self.group.history.anomalies)
                if condition():
                    return committed
                assert all(process.poll() is None for process in self.group.processes.values())
                await self.send(sent)
                await elapse(SAMPLE_S)

    def read_partitions(self) -> int:
        """Number of partitions that are read to their ends."""
        return sum(self.group.history.end(each) == end for each, end in self.ends.items())

    async def run(self, third: int) -> None:
        """All that happens."""
        group, history = self.group, self.group.history
        await self.send(third)
        group.join("killed", ALWAYS, SESSION_MS)
        fast = PARTITIONS - PARTITIONS // STREAMS
        await self.until(lambda: self.read_partitions() >= fast)
        assert self.read_partitions() == fast, "the slow stream delays no other"
        group.join("joined", SLOW)
        await self.until(lambda: len(history.partitions("joined")) == PARTITIONS // 2)
        await self.send(third)
        await self.until(lambda: group.completed["joined"] > SLOW and history.in_work("killed"), sent=5)
        group.kill("killed")
        await self.until(lambda: len(history.partitions("joined")) == PARTITIONS)
        group.join("last", SLOW)
        await self.until(lambda: len(history.partitions("last")) == PARTITIONS // 2)
        await self.send()
        await self.until(lambda: self.read_partitions() == PARTITIONS)
        await asyncio.to_thread(group.leave)
        assert await self.group.sample(self._admin) == self.ends


@pytest.fixture
def protocols(pytestconfig: pytest.Config, random: Random) -> Sequence[str]:
    """All in a long run, else one."""
    return PROTOCOLS if is_long(pytestconfig) else (random.choice(PROTOCOLS),)


async def test_flights_in_streams(
    protocols: Sequence[str], pytestconfig: pytest.Config, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    year = flights(FLIGHTS if is_long(pytestconfig) else SHORT)
    for protocol in protocols:
        group = await flights_are_read(year if IS_KAFKALITE else today(year), protocol, tmp_path / protocol)
        summary = f"{protocol}: {len(year)} flights, {dict(group.completed)}, {group.history.commits_count} commits"
        record_property("summary", summary)


async def flights_are_read(schedule: Sequence[Flight], protocol: str, directory: Path) -> Group:
    """One story, without an anomaly."""
    with broker_under_test(directory, SETTINGS) as broker:
        await create_topic(broker.address, TOPIC, PARTITIONS)
        group = Group(broker.address, protocol, directory)
        with group.running():
            async with Producer(broker.address) as producer, Admin(broker.address) as admin:
                story = Story(group, producer, admin, schedule)
                await story.run(len(schedule) // 3)
                await group.sample(admin)
        assert group.history.check(story.ends)[:10] == []
        assert group.history.commits_count > 0
        assert sum(group.completed.values()) >= len(schedule)
    return group
