"""An HTTP service with an event per request and three poll loops process flights; each is restarted while they do.

Every flight is in the sinks once, as it was posted. `AGAINST=kafka` runs it with Apache Kafka.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fix_torture import is_long
from tests.kit.application import READY, TOPIC
from tests.kit.application.visitors import Visitors
from tests.kit.brokers import broker_under_test
from tests.kit.flights import Flight, flights
from tests.kit.ports import free_port
from tests.kit.rig import create_topic

PARTITIONS = 6
LOOPS = 3
CONNECTIONS = 16
STORY_S = 900.0
SHORT = 10_000  # flights in the short form


class Process:
    """A part of the application that prints READY, then the numbers of the records that it has processed.

    Arguments: `progress` is set when it has processed some; the module and its arguments.
    """

    def __init__(self, progress: asyncio.Event, module: str, *args: str) -> None:
        self.records = 0
        self.progress = progress
        self._command = [sys.executable, "-X", "dev", "-W", "error", "-m", f"tests.kit.application.{module}", *args]

    async def start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=pipe, stderr=pipe)
        assert self._process.stdout is not None
        first = await self._process.stdout.readline()
        assert first.decode().strip() == READY, await self._process.communicate()
        self._reading = asyncio.create_task(self._read(self._process.stdout))

    async def _read(self, output: asyncio.StreamReader) -> None:
        async for line in output:
            self.records += int(line)
            self.progress.set()

    async def stop(self) -> None:
        """SIGTERM; it must end cleanly and print no warning."""
        self._process.terminate()
        assert self._process.stderr is not None
        printed = await self._process.stderr.read()
        await self._reading
        assert (await self._process.wait(), printed.decode()) == (0, "")

    async def restart(self) -> None:
        await self.stop()
        await self.start()


@pytest.mark.timeout(1000)
async def test_restarted_application_processes_each_flight_once(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    schedule = flights() if is_long(pytestconfig) else flights(SHORT)
    with broker_under_test(tmp_path / "broker") as broker:
        await create_topic(broker.address, TOPIC, PARTITIONS)
        port = free_port()
        sinks = [tmp_path / f"sink-{number}" for number in range(LOOPS)]
        progress = asyncio.Event()
        service = Process(progress, "service", broker.address, str(port))
        loops = [Process(progress, "loop", broker.address, str(sink)) for sink in sinks]
        async with asyncio.timeout(STORY_S):
            await asyncio.gather(service.start(), *(each.start() for each in loops))
            visitors = Visitors(port, schedule, CONNECTIONS)
            posting = asyncio.create_task(visitors.run())
            parts = [service, *loops]
            for number, part in enumerate(parts, 1):
                await visitors.until(len(schedule) * number // (len(parts) + 1))
                await part.restart()
            await posting
            while sum(each.records for each in loops) < len(schedule):
                progress.clear()
                await progress.wait()
            for part in parts:
                await part.stop()
    assert visitors.acknowledged.count == len(schedule)
    assert lines_of(sinks) == Counter(expected(schedule))
    assert all(each.records > 0 for each in loops)


def lines_of(sinks: Sequence[Path]) -> Counter[str]:
    return Counter(line for sink in sinks for line in sink.read_text().splitlines())


def expected(schedule: Sequence[Flight]) -> list[str]:
    return [f"{flight.row} {zlib.crc32(flight.value)}" for flight in schedule]
