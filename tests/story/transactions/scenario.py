"""Transactional applications in a cluster under random faults, and what must hold after them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from kafkalite.errors import KafkaTimeoutError
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.checker import ViolationError
from tests.kit.transactions.applications import Copier, Loader
from tests.kit.transactions.checker import check, check_inputs
from tests.kit.transactions.decisions import check_decisions, read_decisions
from tests.kit.transactions.history import Outcome, Partition
from tests.kit.transactions.markers import check_markers
from tests.kit.transactions.readers import CommittedReader, committed_offsets, read_entries, wait_stable
from tests.kit.transactions.wire import Retries, Wire
from tests.story.cluster.administrator import Administrator
from tests.story.cluster.world import run
from tests.story.replication.final_checks import check_replicas
from tests.story.replication.observer import Observer
from tests.story.replication.test_three_replicas import until_in_sync
from tests.story.transactions.faults import TransactionFaults
from tests.story.transactions.world import STATE_PARTITIONS, Supervisor, TransactionWorld

SECONDS = 4.0
STABLE_S = 10.0  # beyond the transaction timeout
COPIED_S = 40.0
READ_S = 10.0
POLL_S = 0.05
PARTITIONS = 2
IN, MIDDLE, OUT = "in", "middle", "out"
FULL = "the last reading"
GROUPS = {IN: "first", MIDDLE: "second"}  # by the topic that the group reads


def partitions_of(*topics: str) -> list[Partition]:
    """The partitions of topics."""
    return [(topic, index) for topic in topics for index in range(PARTITIONS)]


async def scenario(world: TransactionWorld) -> dict[str, int]:
    """One run; returns the number of each event."""
    observer = Observer(world)
    await _create_topics(world)
    until = world.loop.time() + SECONDS
    loader = Supervisor(world, lambda: Loader(world.around(), "loader", partitions_of(IN)))
    copiers = [
        Supervisor(world, lambda: _copier(world, IN, MIDDLE)),
        Supervisor(world, lambda: _copier(world, MIDDLE, OUT)),
    ]
    reading, reader = True, world.connect()
    follower = CommittedReader(reader, world.history, "follower", partitions_of(IN, MIDDLE, OUT))
    following = asyncio.ensure_future(follower.run(lambda: reading, lambda: world.random.uniform(0.1, 0.5)))
    faults = TransactionFaults(world, observer)
    await asyncio.gather(faults.inject(until), loader.run(until), *(each.run(until) for each in copiers))
    await loader.stop()
    wire = world.connect()
    await until_in_sync(world)
    await _stable(world, wire, partitions_of(IN))
    await _copied(world, wire, IN)
    await _stable(world, wire, partitions_of(MIDDLE))
    await _copied(world, wire, MIDDLE)
    for each in copiers:
        await each.stop()
    await _stable(world, wire, partitions_of(IN, MIDDLE, OUT))
    reading = False
    await following
    await _check(world, wire)
    for each in (wire, reader):
        await each.close()
    await until_in_sync(world)  # a session that a fault has cut may expire meanwhile
    await check_replicas(world)
    return _counts(world, [loader, *copiers])


def _copier(world: TransactionWorld, source: str, target: str) -> Copier:
    return Copier(world.around(), f"copier-{source}", partitions_of(target), partitions_of(source), GROUPS[source])


async def _create_topics(world: TransactionWorld) -> None:
    administrator = Administrator(world)
    for name in (IN, MIDDLE, OUT):
        while not await administrator.create(name, PARTITIONS, 3):
            await pass_time(0.1)


async def _stable(world: TransactionWorld, wire: Wire, partitions: Iterable[Partition]) -> None:
    """The last stable offset reaches the log end within the transaction timeout and 10 s."""
    retries = Retries(world.loop.time, world.timeout_ms / 1000 + STABLE_S, POLL_S)
    for each in partitions:
        try:
            await wait_stable(wire, each, retries)
        except KafkaTimeoutError as error:
            raise ViolationError(f"a transaction does not end: {error}") from error


async def _copied(world: TransactionWorld, wire: Wire, topic: str) -> None:
    """Wait until a group has processed all records of its topic."""
    reader = CommittedReader(wire, world.history, f"ends of {topic}", partitions_of(topic))
    await reader.read_to_end(Retries(world.loop.time, READ_S, POLL_S))
    retries = Retries(world.loop.time, COPIED_S, 0.2)
    ends = {each: _last_offset(world, f"ends of {topic}", each) + 1 for each in partitions_of(topic)}
    while True:
        committed = await committed_offsets(wire, GROUPS[topic], ends, retries)
        if all(committed[each] >= end for each, end in ends.items()):
            return
        await retries.wait(f"group {GROUPS[topic]}: {committed} of {ends} is committed")


def _last_offset(world: TransactionWorld, reader: str, partition: Partition) -> int:
    return max((read.offset for read in world.history.readers[reader][partition]), default=-1)


async def _check(world: TransactionWorld, wire: Wire) -> None:
    history = world.history
    partitions = partitions_of(IN, MIDDLE, OUT)
    await CommittedReader(wire, history, FULL, partitions).read_to_end(Retries(world.loop.time, READ_S, POLL_S))
    anomalies = check(history, FULL)
    retries = Retries(world.loop.time, READ_S, POLL_S)
    for source, target in ((IN, MIDDLE), (MIDDLE, OUT)):
        inputs = {each: [read.offset for read in history.readers[FULL][each]] for each in partitions_of(source)}
        committed = await committed_offsets(wire, GROUPS[source], inputs, retries)
        anomalies += check_inputs(history, FULL, target, committed, inputs)
    logs = await read_entries(wire, partitions)
    anomalies += check_markers(history, logs, markers_of_tv2=world.version == 2)
    anomalies += check_decisions(logs, await read_decisions(wire, STATE_PARTITIONS))
    if anomalies:
        raise ViolationError("\n".join(map(str, anomalies[:20])))


def _counts(world: TransactionWorld, supervisors: Iterable[Supervisor]) -> dict[str, int]:
    outcomes = world.history.outcomes()
    for outcome in Outcome:
        world.counts[outcome.name.lower()] = outcomes[outcome]
    world.counts["errors of clients"] = sum(len(each.errors) for each in supervisors)
    world.counts["runs"] = 1
    world.counts[f"runs of version {world.version}"] = 1
    return world.counts


def run_seed(directory: Path, seed: int) -> dict[str, int]:
    """Run a seed; returns the number of each event."""
    return run(directory, seed, scenario, TransactionWorld)
