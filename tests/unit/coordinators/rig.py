"""A coordinator over a real partition: a faulty disk, virtual time, and jobs that a test may hold back."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.read_ahead import ReadAhead
from kafkalite.cluster.replicas import HostedTopic, Replicas
from kafkalite.cluster.topics.internal_topics import OFFSETS, InternalPartition, InternalTopic
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.topic import TopicConfig
from kafkalite.coordinators.group.serde import GroupRecordSerde
from kafkalite.coordinators.runtime.runtime import CoordinatorRuntime
from kafkalite.coordinators.runtime.shard import Command, Machine
from kafkalite.errors import KafkaErrorCode
from kafkalite.slicing import Slicer
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings, Topic
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import Commit, OffsetSettings, PartitionCommit
from kafkalite.storage.flush.flusher import Flusher
from kafkalite.storage.log.flush_job import JobSyncer
from kafkalite.storage.log.log import Log
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import InlineOffload, VirtualClock
from tests.kit.logs import new_log

M = TypeVar("M", bound=Machine)
COMPACTED = replace(TopicConfig(), cleanup_policy=("compact",))
NOT_HERE, LOADING = KafkaErrorCode.NOT_COORDINATOR, KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class TopicsNow(dict[str, Topic]):
    """Topics as consumer groups see them: none, unless a test makes some."""

    def by_name(self, name: str) -> Topic | None:
        return self.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return next((topic for topic in self.values() if topic.topic_id == topic_id), None)


def groups(topics: TopicsNow | None = None) -> GroupMachine:
    settings = ConsumerGroupSettings()
    consumers = ConsumerGroups(TopicsNow() if topics is None else topics, lambda _: settings)
    return GroupMachine(ClassicSettings(), OffsetSettings(), consumers)


class Answered:
    """A pending response: the result or the error code, set once."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    def answer(self, result: object) -> None:
        assert not self.received, f"told {result} after {self.received}"
        self.received.append(result)

    def fail(self, error: int) -> None:
        self.answer(KafkaErrorCode(error))


class FakeTopics:
    """Creates the internal topic when the test lets it."""

    def __init__(self, create: Callable[[InternalTopic], Refusal | None]) -> None:
        self.asked: list[Callable[[Refusal | None], None]] = []
        self._create = create
        self.topic: InternalTopic | None = None

    def create_internal(self, topic: InternalTopic, then: Callable[[Refusal | None], None]) -> None:
        self.topic = topic
        self.asked.append(then)

    def run_until_idle(self) -> None:
        assert self.topic is not None
        self.asked.pop(0)(self._create(self.topic))


class Rig(Generic[M]):
    """The broker around a runtime, with one partition of `__consumer_offsets` unless a test wants none."""

    reload_on_new_epoch = False

    def __init__(
        self,
        path: Path,
        make_machine: Callable[[], M],
        *,
        config: TopicConfig = COMPACTED,
        settings: Mapping[str, str] | None = None,
        partitions: int = 1,
    ) -> None:
        self.path = path
        self.topic_config = config
        self.disk = FaultyDisk()
        self.clock: Any = VirtualClock()
        self.offload: Any = InlineOffload()
        self.raised: list[BaseException] = []
        self.slicer = Slicer(self.clock, lambda _callback, error: self.raised.append(error))
        self.sync_jobs = InlineOffload()
        self.flusher = Flusher(self.disk, self.clock, JobSyncer(self.disk, self.sync_jobs), self.offline)
        self.replicas = Replicas()
        self.replicas.flusher = self.flusher
        self.mark_dirty = self.replicas.mark_dirty
        self.report = self.replicas.report
        self.config = BrokerConfig({"log.dirs": str(path), **(settings or {})})
        self.read_ahead = ReadAhead(self.offload)
        self.topics = FakeTopics(self._created)
        self.make_machine = make_machine
        self.serde = GroupRecordSerde()
        if partitions:
            self.host(partitions)
        self.runtime = self.new_runtime()

    def new_runtime(self) -> CoordinatorRuntime[M]:
        """A runtime that begins with what is in the logs, as after a restart."""
        timeout_ms = self.config.offsets_commit_timeout_ms
        return CoordinatorRuntime(
            self,  # type: ignore[arg-type]
            OFFSETS,
            self.new_machine,
            self.serde,
            commit_timeout_ms=timeout_ms,
            reload_on_new_epoch=self.reload_on_new_epoch,
        )

    def new_machine(self) -> M:
        """An empty machine."""
        return self.make_machine()

    def host(self, partitions: int) -> None:
        topic = HostedTopic(OFFSETS.name, bytes(16), self.topic_config)
        for index in range(partitions):
            partition = InternalPartition(OFFSETS.name, bytes(16), index, self.topic_config, self, 0, (1,))
            directory = str(self.path / f"{OFFSETS.name}-{index}")
            partition.adopt(new_log(self.disk, directory, OFFSETS.name, index, self.topic_config))
            topic.partitions[partition.index] = partition
        self.replicas.add(topic)

    def _created(self, topic: InternalTopic) -> Refusal | None:
        self.host(topic.partitions(self.config))
        return None

    def offline(self, _path: str, _error: OSError) -> None:
        assert self.partition.log is not None
        self.partition.log.fail()
        self.partition.close(KafkaErrorCode.KAFKA_STORAGE_ERROR)

    def open_log(self, partition: Partition, opened: Callable[[Log | int], None]) -> None:
        raise AssertionError("every partition has a log")

    @property
    def partition(self) -> Partition:
        found = self.replicas.partition(OFFSETS.name, b"", 0, by_id=False)
        assert isinstance(found, Partition)
        return found

    @property
    def log(self) -> Log:
        assert self.partition.log is not None
        return self.partition.log

    def load(self) -> None:
        """Begin to load, and let it end."""
        self.runtime.create_shards()
        self.work()

    def work(self) -> None:
        """Let jobs and what they lead to run, at this moment."""
        while self.offload.drain() + self.sync_jobs.drain():
            self.clock.advance(0)
        self.clock.advance(0)

    def recover(self) -> None:
        """As `work`, until a shard that waits before it reads its log again has done so."""
        self.work()
        self.clock.advance(1_000)
        self.work()

    def restart(self) -> None:
        """What is not in the log is lost."""
        self.runtime.close()
        self.runtime = self.new_runtime()
        self.load()

    def do(self, command: Command[M], shard: int = 0) -> Answered:
        """Submit, in a pass that has not ended yet."""
        waiting = Answered()
        self.runtime.submit(shard, command, waiting)
        return waiting

    def now(self, command: Command[M], shard: int = 0) -> Any:
        """Submit in a pass of its own, and the answer."""
        waiting = self.do(command, shard)
        self.replicas.write_pending()
        self.work()
        assert len(waiting.received) == 1
        return waiting.received[0]


def commit(group: str, offset: int, partitions: int = 1, topic: str = "t") -> Command[GroupMachine]:
    wanted = [PartitionCommit(topic, index, offset) for index in range(partitions)]
    return lambda machine, token, now: machine.offsets.commit(Commit(group, wanted), token, now)


def offsets_of(group: str) -> Command[GroupMachine]:
    """Answers {(topic, partition): offset}."""

    def command(machine: GroupMachine, token: Token, now: Now) -> Effects:
        found = machine.offsets.fetch(group, None, require_stable=False)
        effects = Effects()
        effects.answer(token, {(one.topic, one.partition): one.offset for one in found})
        return effects

    return command


def warnings(caplog: Any) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
