"""All shards of one coordinator: one for each partition of its internal topic, loaded from it and kept in it.

```python
runtime.submit(
    runtime.shard_for(group), lambda machine, token, now: machine.classic.heartbeat(request, token, now), waiting
)
```
A command decides, its records are appended as one batch and applied, its answers leave when they are committed; `shard`
holds the laws. The topic is made on first use, and nothing is kept before that.
Source: CoordinatorRuntime.java, AutoTopicCreationManager of Apache Kafka.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from kafkalite._speedups.groups.offset_commit_record import java_hash
from kafkalite.callbacks import call_each
from kafkalite.cluster.internal_topics import InternalTopic
from kafkalite.cluster.topics import Refusal, TopicManager
from kafkalite.coordinators.runtime.context import Command, CommandCompletion, CoordinatorContext, Machine
from kafkalite.coordinators.runtime.loader import LoadQueue
from kafkalite.coordinators.runtime.partition_writer import PartitionWriter, RecordSerde
from kafkalite.coordinators.runtime.partition_writer import WriterHost as JournalHost
from kafkalite.errors import ErrorWithReason, KafkaErrorCode
from kafkalite.slicing import Slicer
from kafkalite.state.effects import ResolvePatterns

__all__ = ["CommandCompletion", "CoordinatorRuntime"]

FAILURE_LOG_S = 60.0
LOGGER = logging.getLogger("kafkalite.coordinators")
M = TypeVar("M", bound=Machine)


class RuntimeHost(JournalHost, Protocol):
    """The broker around."""

    topics: TopicManager
    slicer: Slicer


class CoordinatorRuntime(Generic[M]):
    """The shards of a coordinator.

    Arguments:
        host: the broker.
        topic: the internal topic that holds the records.
        make_machine: an empty machine for a shard.
        codec: records from and to bytes.

    Attributes:
        ask: called with a shard and a question of its machine; answer it by `submit`.
    """

    def __init__(
        self, host: RuntimeHost, topic: InternalTopic, make_machine: Callable[[], M], codec: RecordSerde
    ) -> None:
        self._host = host
        self._topic = topic
        self._make_machine = make_machine
        self._codec = codec
        self._shards: list[CoordinatorContext[M]] = []
        self._loads = LoadQueue()
        self._closed = False
        self._creating: list[Callable[[int], None]] | None = None
        self._logged: dict[str, float] = {}  # the last failure to create the topic, and when it was logged
        self.ask: Callable[[int, ResolvePatterns], None] = unasked

    # What callers need.

    def shard_for(self, key: str) -> int:
        """The shard of a group or a transactional id, as every Kafka finds it."""
        count = len(self._shards) or self._topic.partitions(self._host.config)
        return abs(java_hash(key)) % count if count > 1 else 0

    def shards(self) -> Sequence[int]:
        """All shards of this broker, loaded or not; none while the topic does not exist."""
        return range(len(self._shards))

    def machine(self, shard: int) -> M | None:
        """What a loaded shard knows, to look at: for metrics. It may be told of what changed around it, where that
        leads to no record. Clients are answered by `submit`.
        """
        return self._shards[shard].machine

    def committed_machine(self, key: str) -> M | None:
        """The machine of a key's shard, unless it is loading or a record of it is not committed yet: what a command
        without records would be answered from at once.
        """
        return self._shards[self.shard_for(key)].committed_machine if self._shards else None

    def now_ms(self) -> int:
        """The time of commands."""
        return int(self._host.clock.monotonic() * 1000)

    def ensure_topic(self, then: Callable[[int], None]) -> None:
        """Make the topic if there is none; `then(error)` when it is there: 0, or an error code with its reason."""
        if self._closed:
            then(KafkaErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif self._shards:
            then(0)
        elif self._creating is not None:
            self._creating.append(then)
        else:
            self._creating = [then]
            self._host.topics.create_internal(self._topic, self._created)

    def submit(
        self, shard: int, command: Command[M], waiting: CommandCompletion | None = None, *, producer_epoch: int = -1
    ) -> None:
        """Run a command on a shard's machine; `waiting` is the token, and hears of it now or later, exactly once.

        Arguments:
            shard: from `shard_for` or `shards`.
            command: called with the machine, the token and the time, at once or never.
            waiting: None = nobody waits; such a command waits itself until the shard is loaded.
            producer_epoch: of the transaction that the records belong to.

        `waiting.fail` gets COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, or
        UNKNOWN_SERVER_ERROR when the command raised; what it raised is raised, too. In a pass the records are written
        at its end; who comes outside one calls `flush`.
        """
        if shard < len(self._shards):
            self._shards[shard].submit(command, waiting, producer_epoch)
        elif self._closed:
            if waiting is not None:
                waiting.fail(KafkaErrorCode.NOT_COORDINATOR)
        elif waiting is not None:
            self.ensure_topic(partial(self._submit_created, shard, command, waiting, producer_epoch))

    def write_pending(self) -> None:
        """Write what commands outside a pass have appended."""
        self._host.replicas.write_pending()

    # What the broker tells.

    def create_shards(self) -> None:
        """Have a shard for each partition of the topic there is; called at start and when the topic changes."""
        topic = self._host.replicas.find(self._topic.name, b"", by_id=False)
        if isinstance(topic, int) or self._closed:
            return
        for partition in topic.partitions[len(self._shards) :]:
            journal = PartitionWriter(self._host, partition, self._codec, self._loads)
            timeout_ms = self._host.config.offsets_commit_timeout_ms
            shard = CoordinatorContext(
                partition.index, self._make_machine, journal, self._host.clock, self._ask, timeout_ms, self._host.slicer
            )
            self._shards.append(shard)
            shard.load()

    def close(self) -> None:
        """Take no command any more; all who wait hear NOT_COORDINATOR."""
        self._closed = True
        call_each(CoordinatorContext.close, self._shards)
        creating, self._creating = self._creating or [], None
        call_each(lambda then: then(KafkaErrorCode.COORDINATOR_NOT_AVAILABLE), creating)

    def _ask(self, shard: int, question: ResolvePatterns) -> None:
        self.ask(shard, question)

    def _created(self, refusal: Refusal | None) -> None:
        self.create_shards()  # it may have been there already
        error = 0
        if not self._shards:
            reason = (
                "it is not hosted here" if refusal is None else refusal.message or KafkaErrorCode(refusal.error).name
            )
            self._log_failure(reason)
            error = ErrorWithReason(KafkaErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
        creating, self._creating = self._creating or [], None
        call_each(lambda then: then(error), creating)
        self.write_pending()

    def _log_failure(self, reason: str) -> None:
        """Log why the topic cannot be created: each reason once a minute, as clients ask again many times a second."""
        now = self._host.clock.monotonic()
        if now - self._logged.get(reason, -FAILURE_LOG_S) >= FAILURE_LOG_S:
            self._logged = {reason: now}
            LOGGER.error("%s cannot be created: %s; each request retries", self._topic.name, reason)

    def _submit_created(
        self, shard: int, command: Command[M], waiting: CommandCompletion, producer_epoch: int, error: int
    ) -> None:
        if error or shard >= len(self._shards):
            waiting.fail(error or KafkaErrorCode.NOT_COORDINATOR)
        else:
            self._shards[shard].submit(command, waiting, producer_epoch)


def unasked(shard: int, question: ResolvePatterns) -> None:
    """Nobody resolves patterns yet."""
    raise RuntimeError(f"no coordinator handles {question} of shard {shard}")
