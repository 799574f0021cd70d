"""What a broker costs before anybody uses it, and after: start time, memory at rest, after records, per connection."""

import resource
import shutil
import socket
import time

from perf.brokers.base import Running
from perf.checks import Topics
from perf.errors import VerificationError
from perf.loads.base import Figure, Load, Sample, Trial
from perf.loads.rdkafka import LINGER_MS, PARTITIONS, build_missing, drive
from perf.process import memory
from perf.startup import import_asyncio
from perf.wire import api_versions, call

MB = 1_000_000
PAUSE_S = 1.0


class Start(Load):
    """Every round is a fresh directory; the warm-up round has brought the program into the page cache."""

    name = "start"
    title = "start of the process on a fresh directory until ApiVersions answers"
    figures = (Figure("start_ms", "start", "ms"), Figure("asyncio_ratio", "start / `import asyncio`", "x"))
    starts_broker = True

    def run(self, trial: Trial) -> Sample:
        import_ms = import_asyncio()["wall"]
        broker = trial.kind.start(trial.directory / f"start-{trial.round}")
        broker.stop()
        shutil.rmtree(broker.directory)
        start_ms = broker.start_seconds * 1000
        return {"start_ms": start_ms, "asyncio_ratio": start_ms / import_ms}


class Resident(Load):
    name = "memory"
    title = "resident memory: at rest, after 10 M records of 100 B (quick: 1 M)"
    figures = (
        Figure("idle_mb", "idle", "MB"),
        Figure("after_mb", "after", "MB"),
        Figure("peak_mb", "peak (VmHWM)", "MB"),
    )
    starts_broker = True

    def missing(self) -> str | None:
        return build_missing()

    def run(self, trial: Trial) -> Sample:
        records = trial.scaled(10_000_000, 1_000_000)
        broker = trial.kind.start(trial.directory / f"memory-{trial.round}")
        try:
            sample = self._measure(broker, records)
        finally:
            broker.stop()
            shutil.rmtree(broker.directory)
        return sample

    def _measure(self, broker: Running, records: int) -> Sample:
        time.sleep(PAUSE_S)  # what a start leaves to be done must be over, and says nothing when it is
        idle = memory(broker.pid)
        topics = Topics(broker)
        topics.create([self.name], PARTITIONS)
        drive(broker, "produce", self.name, records, 100, "none", "all", LINGER_MS)
        topics.expect(self.name, PARTITIONS, records)
        after = memory(broker.pid)
        drive(broker, "consume", self.name, records)
        return {"idle_mb": idle.resident / MB, "after_mb": after.resident / MB, "peak_mb": after.peak / MB}


class IdleConnections(Load):
    name = "connections"
    title = "memory per idle connection (5,000; quick: 1,000), each having asked ApiVersions once"
    figures = (Figure("kib_per_connection", "per connection", "KiB"),)
    starts_broker = True

    def run(self, trial: Trial) -> Sample:
        count = trial.scaled(5_000, 1_000)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < count + 200:
            raise VerificationError(f"the limit of open files is {hard}: too low for {count} connections")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        broker = trial.kind.start(trial.directory / f"connections-{trial.round}")
        try:
            sample = self._measure(broker, count)
        finally:
            broker.stop()
            shutil.rmtree(broker.directory)
        return sample

    def _measure(self, broker: Running, count: int) -> Sample:
        with self.connect(broker):  # the first brings in what any connection needs
            time.sleep(PAUSE_S)
            before = memory(broker.pid).resident
            connections = [self.connect(broker) for _ in range(count)]
            time.sleep(PAUSE_S)
            after = memory(broker.pid).resident
        alive = sum(1 for connection in connections if call(connection, api_versions(2)))
        for connection in connections:
            connection.close()
        if alive != count:
            raise VerificationError(f"{broker.name}: only {alive} of {count} connections are alive")
        return {"kib_per_connection": (after - before) / 1024 / count}

    def connect(self, broker: Running) -> socket.socket:
        """A connection that has been served."""
        connection = socket.create_connection((broker.host, broker.port), timeout=30)
        call(connection, api_versions(1))
        return connection


LOADS = (Start(), Resident(), IdleConnections())
