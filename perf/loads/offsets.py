"""Offsets of groups: what a commit and a look cost, the memory that they take, and a start with a million of them.

The groups have no members: who commits is not asked here, only how that is kept. Kafka's commits and lookups are of
the versions that clients send; 10 partitions at a time.
"""

import importlib
import shutil
import socket
import time
from collections.abc import Sequence
from contextlib import closing

from perf import group_wire as wire
from perf.brokers.base import Running
from perf.checks import Topics
from perf.errors import VerificationError
from perf.loads.base import LATENCY_FIGURES, CpuMeter, Figure, Load, Sample, Trial, quantiles_ms
from perf.loads.durable import BOTH
from perf.members import commit_all, find
from perf.process import cpu_seconds, memory
from perf.wire import Pipe, call, connect, paced

TOPIC, PARTITIONS = "offsets", 10
LOADED_SECONDS_MAX = 120.0
SHARDS = {"offsets.topic.num.partitions": "50"}  # Kafka's default


def names(count: int) -> list[str]:
    """Groups whose names have one length."""
    return [f"group-{number:05}" for number in range(count)]


def offsets(first: int) -> dict[int, int]:
    """An offset for each partition; `first` makes commits differ."""
    return {part: first + part for part in range(PARTITIONS)}


def prepare(broker: Running, groups: Sequence[str]) -> None:
    """The topic, and a first commit of each group."""
    Topics(broker).create([TOPIC], PARTITIONS)
    with closing(connect(broker.host, broker.port)) as connection:
        find(connection, groups[0])
        commit_all(connection, TOPIC, {group: offsets(0) for group in groups})


def commit_many(broker: Running, groups: Sequence[str], count: int, connections: int, depth: int) -> float:
    """Commit `count` times, group after group, each time higher offsets; seconds. Raises VerificationError."""
    loadgen = importlib.import_module("perf.loadgen")
    rounds = max(count // len(groups), 1)
    requests = [
        wire.offset_commit(group, TOPIC, offsets(1_000 + number * PARTITIONS))[4:]
        for number in range(min(rounds, 20))
        for group in groups
    ]
    try:
        result = loadgen.run(
            broker.host, broker.port, requests, connections, depth, count=count, error_at=wire.commit_error_at(TOPIC)
        )
    except (RuntimeError, OSError) as error:
        raise VerificationError(f"{broker.name}: commits: {error}") from error
    if result["bytes_in"] % count:
        raise VerificationError(f"{broker.name}: the answers to commits are not of one size")
    return float(result["seconds"])


def expect_commits(broker: Running, groups: Sequence[str], least: int) -> None:
    """Raises VerificationError unless every group has offsets of one commit, `least` or higher."""
    with closing(connect(broker.host, broker.port)) as connection:
        for at in range(0, len(groups), 100):
            some = groups[at : at + 100]
            found = wire.fetched(call(connection, wire.offset_fetch(some, TOPIC, range(PARTITIONS))))
            for group in found:
                first = group.offsets.get(0, -1)
                if group.error or first < least or group.offsets != offsets(first):
                    raise VerificationError(f"{broker.name}: {group} is not what was committed")
            if [group.group for group in found] != list(some):
                raise VerificationError(f"{broker.name}: OffsetFetch names {len(found)} of {len(some)} groups")


class Commits(Load):
    name = "offset-commit"
    title = "OffsetCommit of 10 partitions, 100 groups, 10 connections, 5 under way on each"
    figures = (
        Figure("commits_per_s", "commits/s", "", "higher"),
        Figure("commits_per_cpu_s", "commits per CPU second", "", "higher"),
        Figure("cpu_us", "CPU per commit", "us"),
    )
    settings = SHARDS
    brokers = BOTH

    def prepare(self, trial: Trial) -> None:
        prepare(trial.broker, names(100))

    def run(self, trial: Trial) -> Sample:
        count = trial.scaled(60_000, 20_000)
        with CpuMeter(trial.broker) as cpu:
            seconds = commit_many(trial.broker, names(100), count, 10, 5)
        expect_commits(trial.broker, names(100), 1_000)
        return {
            "commits_per_s": count / seconds,
            "commits_per_cpu_s": count / cpu.seconds,
            "cpu_us": cpu.seconds / count * 1e6,
        }


class Fetches(Load):
    name = "offset-fetch"
    title = "OffsetFetch of 10 partitions, 100 groups, 10 connections, 2,000 requests/s"
    figures = (*LATENCY_FIGURES, Figure("cpu_us", "CPU per request", "us"))
    settings = SHARDS
    brokers = BOTH
    connections, rate = 10, 2_000.0

    def prepare(self, trial: Trial) -> None:
        prepare(trial.broker, names(100))

    def run(self, trial: Trial) -> Sample:
        count, groups = trial.scaled(20_000, 6_000), names(100)
        pipes = [self._pipe(trial.broker, groups[number :: self.connections]) for number in range(self.connections)]
        with CpuMeter(trial.broker) as cpu:
            seconds = paced(pipes, self.rate, count)
        for pipe in pipes:
            pipe.socket.close()
        expect_commits(trial.broker, groups, 0)
        return {**quantiles_ms(seconds), "cpu_us": cpu.seconds / count * 1e6}

    def _pipe(self, broker: Running, groups: Sequence[str]) -> Pipe:
        requests = [wire.offset_fetch([group], TOPIC, range(PARTITIONS)) for group in groups]
        return Pipe(broker.host, broker.port, requests, wire.FETCH_ERROR_AT)


class OffsetMemory(Load):
    """What the process grows by; a JVM's heap grows in steps of its own."""

    name = "offset-memory"
    title = "resident memory per committed offset, 10,000 groups x 10 partitions (quick: 1,000 groups)"
    figures = (Figure("bytes_per_offset", "per offset", "B"),)
    settings = SHARDS
    starts_broker = True
    brokers = BOTH

    def run(self, trial: Trial) -> Sample:
        groups = names(trial.scaled(10_000, 1_000))
        broker = trial.kind.start(trial.directory / f"memory-{trial.round}", self.settings)
        try:
            prepare(broker, names(200))  # whatever a first commit in a shard brings in
            commit_many(broker, names(200), 400, 1, 1)
            before = memory(broker.pid).resident
            commit_many(broker, groups[200:], len(groups) - 200, 10, 5)
            after = memory(broker.pid).resident
            expect_commits(broker, groups, 1_000)
        finally:
            broker.stop()
            shutil.rmtree(broker.directory)
        return {"bytes_per_offset": (after - before) / (len(groups) - 200) / PARTITIONS}


class OffsetRestart(Load):
    """Stopped cleanly, started on the same files again and again. Answers for 200 groups are in all shards."""

    name = "offset-restart"
    title = "start with 1 M commits of 100,000 offsets (10,000 groups), until OffsetFetch answers for every shard"
    figures = (
        Figure("ready_ms", "until OffsetFetch answers", "ms"),
        Figure("start_ms", "until ApiVersions answers", "ms"),
        Figure("cpu_ms", "CPU", "ms"),
    )
    settings = SHARDS
    starts_broker = True
    brokers = BOTH

    def _groups(self, trial: Trial) -> list[str]:
        return names(trial.scaled(10_000, 1_000))

    def prepare(self, trial: Trial) -> None:
        broker, groups = trial.kind.start(trial.directory, self.settings), self._groups(trial)
        prepare(broker, groups)
        commit_many(broker, groups, 9 * len(groups), 10, 5)
        expect_commits(broker, groups, 1_000)
        broker.stop()

    def run(self, trial: Trial) -> Sample:
        broker, groups = trial.kind.start(trial.directory, self.settings), self._groups(trial)
        spawned = time.monotonic() - broker.start_seconds  # what is done before exec is not the broker's
        with closing(connect(broker.host, broker.port)) as connection:
            self._wait_loaded(connection, groups[:200])
        ready = time.monotonic() - spawned
        used = cpu_seconds(broker.pid)
        expect_commits(broker, groups, 1_000)
        broker.stop()
        return {"ready_ms": ready * 1000, "start_ms": broker.start_seconds * 1000, "cpu_ms": used * 1000}

    def _wait_loaded(self, connection: socket.socket, groups: Sequence[str]) -> None:
        request, deadline = wire.offset_fetch(groups, TOPIC, range(PARTITIONS)), time.monotonic() + LOADED_SECONDS_MAX
        while any(group.error for group in wire.fetched(call(connection, request))):
            if time.monotonic() > deadline:
                raise VerificationError(f"the groups are not loaded after {LOADED_SECONDS_MAX:.0f} s")
            time.sleep(0.01)  # nothing announces it


LOADS = (Commits(), Fetches(), OffsetMemory(), OffsetRestart())
