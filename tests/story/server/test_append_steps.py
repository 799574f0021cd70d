"""An exception in any step of an append: the code says what happened to the log, and a retry appends each record once.

`Stepper` finds the steps by running an append, so a new step is tested without a change here. For each step an
idempotent producer of the SDK sends three batches at once, with the exception in the first execution of the step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.producer.producer import Producer

from kafkalite.cli.main import main as command_line
from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.partition.append import NOT_APPENDED, UNCONFIRMED, Append
from kafkalite.cluster.partition.leader import Leader
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.records import batches
from kafkalite.storage.log.log import Log
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_broker import SimulatedBroker
from kafkalite.testing.virtual_loop import pass_time, run_virtually, virtual_wall_ms
from tests.kit.logs import read_log
from tests.kit.steps import Bug, Step, Stepper

SOURCES = (
    "kafkalite/cluster/",
    "kafkalite/records/",
    "kafkalite/server/",
    "kafkalite/storage/",
)
CREATION = (
    "kafkalite/cluster/metadata/store.py",
    "kafkalite/server/hosting/partition_creation.py",
    "kafkalite/storage/log_creation.py",
    "kafkalite/storage/manager.py",
)
# Functions that end an append or call the next step: whatever calls them could only call them again.
WITHOUT = frozenset(
    {
        ("kafkalite/cluster/partition/append.py", "Append.finish"),
        ("kafkalite/cluster/metadata/store.py", "MetadataStore.note_directories.noted"),
        ("kafkalite/cluster/metadata/store.py", "convert_outcome.complete"),
        ("kafkalite/server/hosting/partition_creation.py", "PartitionCreator._created"),
        ("kafkalite/server/hosting/partition_creation.py", "PartitionCreator._opening"),
        ("kafkalite/storage/log_creation.py", "LogCreator.create.created"),
        ("kafkalite/storage/manager.py", "LogManager.create.created"),
    }
)
NO_ID = bytes(16)
FOLLOWER = 9
FETCH_S = 0.02
OUT_OF_ORDER = KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@dataclass(frozen=True)
class Case:
    """What the broker has to do for an append.

    Attributes:
        configs: of the topic.
        value_bytes: of each record, which is a batch.
        compression: of the producer.
        creation: whether each append is the first one of a partition.
        part: of the steps, of 3; -1 for all. A restart and a sync cost time for each partition.
        replicated: whether the partition has a follower, which the test fetches as.
    """

    configs: dict[str, str] = field(default_factory=dict)
    value_bytes: int = 100
    compression: str = "none"
    creation: bool = False
    part: int = -1
    replicated: bool = False


CASES = {
    "append": Case(),
    "validation in a job": Case(value_bytes=80_000, compression="gzip"),
    "another codec": Case(configs={"compression.type": "lz4"}),
    "flush": Case(configs={"flush.messages": "1"}),
    "roll": Case(configs={"segment.bytes": "1048576"}, value_bytes=400_000),
    "early write": Case(value_bytes=300_000),
    "follower": Case(replicated=True),
    "follower and flush": Case(configs={"flush.messages": "1"}, replicated=True),
    "new partition, part 0": Case(creation=True, part=0),
    "new partition, part 1": Case(creation=True, part=1),
    "new partition, part 2": Case(creation=True, part=2),
}


class World:
    """A broker in virtual time with an idempotent producer, which sends with exceptions in the steps of the broker."""

    def __init__(self, broker: SimulatedBroker, network: MemoryNetwork, case: Case) -> None:
        self.broker = broker
        self.case = case
        self.random = Random(1)
        self.codes: list[int] = []
        self.topics = self.restarts = 0
        self.sent: dict[str, list[bytes]] = {}
        self.checked: dict[str, int] = {}  # the offset up to which the records of a topic were compared
        self.stepper = Stepper(CREATION if case.creation else SOURCES, WITHOUT)
        environment = Environment(dial=network.dial, random=Random(1), wall_ms=virtual_wall_ms)
        self.producer: Producer[Any, Any] = Producer(
            broker.address, environment=environment, linger_ms=0, batch_size=10, compression_type=case.compression
        )
        self._network = network

    async def create_topic(self) -> None:
        self.topics += 1
        self.sent[self.topic] = []
        entry = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
        configs = [entry(name=name, value=value) for name, value in self.case.configs.items()]
        topic = CreateTopicsRequest.CreatableTopic(
            name=self.topic, num_partitions=1, replication_factor=1, configs=configs
        )
        async with ClientConnection("broker", 9092, timeout_s=60.0, dial=self._network.dial) as client:
            response = await client.call(CreateTopicsRequest(topics=[topic]))
        assert response.topics[0].error_code == 0, response

    @property
    def topic(self) -> str:
        return f"t{self.topics}"

    def partition(self, topic: str) -> Partition:
        found = self.broker.running.replicas.partition(topic, NO_ID, 0, by_id=False)
        assert isinstance(found, Partition), found
        return found

    def log(self, topic: str) -> Log:
        log = self.partition(topic).log
        assert log is not None, topic
        return log

    async def send(self) -> None:
        """Send three batches at once; all are acknowledged in the end."""
        values = [self.random.randbytes(self.case.value_bytes) for _ in range(3)]
        self.sent[self.topic] += values
        waiting = [self.producer.send(self.topic, value, partition=0) for value in values]
        acknowledged = asyncio.ensure_future(awaited(waiting))
        while not (await asyncio.wait({acknowledged}, timeout=1.0))[0]:
            if self.is_offline():
                await self.restart()
        acknowledged.result()

    async def restart(self) -> None:
        self.restarts += 1
        self.broker.kill()
        await self.broker.start()

    def is_offline(self) -> bool:
        """Whether the log directory or the partition was taken offline, because it is unknown what the disk has."""
        return not self.broker.running.logs.online() or self.partition(self.topic).error != 0

    async def prepare(self) -> None:
        """Before an append."""
        if self.case.creation:
            await self.create_topic()
        if self.case.replicated:
            self.add_follower()

    def add_follower(self) -> None:
        """Give the partition a second replica, FOLLOWER; a restart forgets it."""
        partition = self.partition(self.topic)
        if isinstance(partition.role, Leader) and not partition.role.followers:
            own_id, epoch = partition.isr[0], partition.leader_epoch + 1
            replicas = (own_id, FOLLOWER)
            partition.lead(PartitionImage(replicas, replicas, own_id, epoch), lambda: None)

    async def follow(self) -> None:
        """Fetch as the follower, again and again: a fetch that fails is repeated."""
        while True:
            await pass_time(FETCH_S)
            partition = self.partition(self.topic)
            if isinstance(partition.role, Leader) and partition.role.followers and partition.log is not None:
                with suppress(Bug):
                    partition.role.follower_fetched(FOLLOWER, 1, partition.log.log_end_offset, 0, round(1000 * now()))

    async def steps(self) -> list[Step]:
        """The steps of appends, those of a repeated request and of the next segment included."""
        found: dict[Step, None] = {}
        for _ in range(4):
            await self.prepare()
            with self.stepper.found() as steps:
                await self.send()
            found |= dict.fromkeys(steps)
        return list(found) if self.case.part < 0 else list(found)[self.case.part :: 3]

    async def fail_at(self, step: Step) -> bool:
        """Send with an exception in a step, and check the log; False if the step was not reached."""
        self.codes.clear()
        self.restarts = 0
        duplicates, connections = self.duplicates(), self.connections()
        for _ in range(4):  # not each append rolls a segment
            await self.prepare()
            with self.stepper.fails_at(step):
                await self.send()
            if self.stepper.raised:
                break
        if self.log(self.topic).failed:  # a roll syncs its segment beside the acknowledgements
            await self.restart()
        self.check_log(self.topic)
        behind_gap = {OUT_OF_ORDER} if NOT_APPENDED in self.codes else set()  # the other open requests
        assert set(self.codes) <= {0, NOT_APPENDED, UNCONFIRMED, *behind_gap}, self.codes
        kept = connections.keys() <= self.connections().keys()
        if UNCONFIRMED not in self.codes and not self.restarts and kept:
            assert self.duplicates() == duplicates, f"was appended, codes {self.codes}"
        return self.stepper.raised

    def duplicates(self) -> int:
        """Number of duplicate batches."""
        return self.broker.running.logs.duplicates

    def connections(self) -> dict[int, Any]:
        """The open connections by identity; they are kept, as the next one may get the address of a deleted one."""
        return {id(each): each for listener in self.broker._process._listeners for each in listener.connections}

    def check_log(self, topic: str) -> None:
        """Each record is in the log once, in order, and memory, indexes and files agree."""
        partition, log = self.partition(topic), self.log(topic)
        assert (log.queued, log.failed, log.next_offset) == (0, False, log.log_end_offset)
        assert partition.high_watermark == log.log_end_offset
        checked = self.checked.get(topic, 0)  # all records are compared at the end
        assert values_in(log, checked) == self.sent[topic][checked:]
        self.checked[topic] = log.log_end_offset
        for segment in log.segments:
            assert segment.size == segment.opened.size()
        (producer,) = [each for each in log.producers if each.last_offset >= 0]
        assert producer.last_offset == log.log_end_offset - 1


def now() -> float:
    """The time of the virtual loop, in seconds."""
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def following(world: World) -> AsyncIterator[None]:
    """Fetch as the follower of the partition meanwhile."""
    task = asyncio.ensure_future(world.follow()) if world.case.replicated else None
    yield
    if task is not None:
        assert not task.done(), task.exception()
        task.cancel()


async def awaited(waiting: list[Any]) -> None:
    """Wait for the acknowledgements of all records."""
    for each in waiting:
        await each


def values_in(log: Log, offset: int = 0) -> list[bytes | None]:
    """The values of all records from an offset on."""
    found: list[bytes | None] = []
    while offset < log.log_end_offset:
        regions = read_log(log, offset, 1 << 26, log.log_end_offset)
        assert isinstance(regions, list) and regions
        for batch in batches(b"".join(region.read() for region in regions)):
            found += [record.value for record in batch]
            offset = batch.last_offset + 1
    return found


@contextmanager
def noted_codes(monkeypatch: pytest.MonkeyPatch, codes: list[int]) -> Iterator[None]:
    """Collect the codes of all appends."""
    finish = Append.finish

    def noted(append: Append, error: int = 0) -> None:
        codes.append(int(error))
        finish(append, error)

    with monkeypatch.context() as patched:
        patched.setattr(Append, "finish", noted)
        yield


async def fail_in_each_step(data: Path, case: Case, monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Returns the steps that were reached again and have raised."""
    network = MemoryNetwork()
    failed, other = [], []

    def noted(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Bug):
            other.append(context)

    asyncio.get_running_loop().set_exception_handler(noted)  # a broker logs the exceptions of its callbacks
    async with SimulatedBroker(str(data), network) as broker:
        world = World(broker, network, case)
        async with world.producer, following(world):
            await world.create_topic()
            await world.send()
            steps = await world.steps()
            with noted_codes(monkeypatch, world.codes):
                for step in steps:
                    try:
                        if await world.fail_at(step):
                            failed.append(step)
                    except Exception as error:
                        raise AssertionError(f"exception in {step}") from error
            broker.kill()
            await broker.start()
            for topic in world.sent:
                assert values_in(world.log(topic)) == world.sent[topic], "after a kill"
            await world.send()
        await pass_time(1.0)
        world.check_log(world.topic)
    assert not other
    return failed


@pytest.mark.parametrize("name", CASES)
def test_exception_in_a_step_of_an_append_loses_and_duplicates_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, _ = run_virtually(lambda: fail_in_each_step(tmp_path, CASES[name], monkeypatch))
    assert len(failed) > (30 if CASES[name].part < 0 else 20), failed
    done = CliRunner().invoke(command_line, ["log", "verify", str(tmp_path)])
    assert done.exit_code == 0, done.output
