"""The shards of a coordinator: one for each partition of its internal topic, which stores the records of the shard.

```python
runtime.submit(
    runtime.partition_for(group), lambda machine, token, now: machine.classic.heartbeat(request, token, now), completion
)
```
The records of a command are applied and appended as one batch; its answers leave when they are committed (`shard`
lists the invariants). The topic is created on first use.

A shard is where its partition is led. A broker that is alone has all of them. In a cluster, `elected` and `resigned`
follow the leaderships of this broker, and requests for a shard elsewhere fail with NOT_COORDINATOR.

Source: CoordinatorRuntime.java, AutoTopicCreationManager of Apache Kafka.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from kafkalite._speedups.wire.java_hash import java_hash
from kafkalite.callbacks import call_each
from kafkalite.clock import Outcome
from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.topics.internal_topics import InternalTopic
from kafkalite.cluster.topics.manager import TopicManager
from kafkalite.coordinators.runtime.loader import LoadQueue
from kafkalite.coordinators.runtime.partition_writer import PartitionWriter, WriterHost
from kafkalite.coordinators.runtime.record_serde import RecordSerde
from kafkalite.coordinators.runtime.shard import Command, CommandCompletion, CoordinatorShard, Machine
from kafkalite.errors import ErrorWithReason, KafkaErrorCode
from kafkalite.slicing import Slicer, Steps

if TYPE_CHECKING:
    from kafkalite.coordinators.runtime.shard import Transaction

FAILURE_LOG_S = 60.0
LOGGER = logging.getLogger("kafkalite.coordinators")
M = TypeVar("M", bound=Machine)


class RuntimeHost(WriterHost, Protocol):
    """The broker, as a runtime needs it."""

    topics: TopicManager
    slicer: Slicer


class _Parts(NamedTuple, Generic[M]):
    """The arguments of a runtime that its shards need."""

    make_machine: Callable[[], M]
    serde: RecordSerde
    commit_timeout_ms: int
    reload_on_new_epoch: bool


class CoordinatorRuntime(Generic[M]):
    """The shards of a coordinator.

    Arguments:
        host: the broker.
        topic: the internal topic that holds the records.
        make_machine: creates an empty machine for a shard.
        serde: converts records to bytes and back.
        commit_timeout_ms: how long an answer may wait until its records are committed.
        reload_on_new_epoch: whether a new leader epoch under the same leader loads the shard again: the epoch is part
            of what its machine writes. Otherwise it changes nothing.

    In a cluster, `partitions_changed` is called before any shard is needed.

    Attributes:
        ask: called with a partition and a request of its machine; `submit` returns the result to the machine.
    """

    def __init__(
        self,
        host: RuntimeHost,
        topic: InternalTopic,
        make_machine: Callable[[], M],
        serde: RecordSerde,
        *,
        commit_timeout_ms: int,
        reload_on_new_epoch: bool = False,
    ) -> None:
        self._host = host
        self._topic = topic
        self._parts = _Parts(make_machine, serde, commit_timeout_ms, reload_on_new_epoch)
        self._shards: dict[int, CoordinatorShard[M]] = {}
        self._epochs: dict[int, int] = {}  # of the leaderships, by shard
        self._count = topic.partitions(host.config)  # of the shards on all brokers
        self._in_cluster = False
        self._loads = LoadQueue()
        self._closed = False
        self._creating: deque[Callable[[int], None]] | None = None  # wait for the topic, in their order
        self._logged: dict[str, float] = {}  # the last failure to create the topic, and when it was logged
        self.ask: Callable[[int, Any], None] = unasked

    @property
    def _is_known(self) -> bool:
        """Whether the topic exists, in a cluster."""
        return self._in_cluster and self._count > 0

    # commands

    def partition_for(self, key: str) -> int:
        """The partition of a group or a transactional id, by Kafka's hash; -1 = the number of partitions is not known,
        which is possible in a cluster.
        """
        count = self._count
        return abs(java_hash(key)) % count if count > 1 else count - 1

    def partitions(self) -> Sequence[int]:
        """The partitions that have a shard on this broker, loaded or not; none while the topic does not exist."""
        return list(self._shards)

    def machine(self, partition: int) -> M | None:
        """The machine of a loaded shard of this broker, for metrics and for notifications that lead to no record.
        Requests of clients use `submit`, so that they see committed state only.
        """
        found = self._shards.get(partition)
        return None if found is None else found.machine

    def committed_machine(self, key: str) -> M | None:
        """The machine of a key's shard, None while it is loading, elsewhere, or one of its records is not committed: a
        command without records would be answered from it at once.
        """
        found = self._shards.get(self.partition_for(key))
        return None if found is None else found.committed_machine

    def leader_epoch(self, partition: int) -> int:
        """The leader epoch of a shard of this broker, in which its machine was created."""
        return self._epochs[partition]

    def now_ms(self) -> int:
        """The time of commands, in ms on the monotonic clock."""
        return int(self._host.clock.monotonic() * 1000)

    def ensure_topic(self, then: Callable[[int], None]) -> None:
        """Create the topic unless it exists, then call `then(error)`: 0, or an error code with its reason."""
        if self._closed:
            then(KafkaErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif self._creating is not None:
            self._creating.append(then)
        elif self._shards or self._is_known:
            then(0)
        else:
            self._creating = deque((then,))
            self._host.topics.create_internal(self._topic, self._created)

    def submit(
        self,
        partition: int,
        command: Command[M],
        completion: CommandCompletion | None = None,
        *,
        transaction: "Transaction" = None,
        is_query: bool = False,
    ) -> None:
        """Run a command on a shard's machine.

        Arguments:
            partition: of the topic, from `partition_for` or `partitions`.
            command: called with the machine, the token and the time, immediately or never.
            completion: the token, completed exactly once, now or later. Without it the command has no response; it is
                delayed until the shard is loaded, and dropped if the shard is elsewhere.
            transaction: of the records, or the marker that the command appends; None = none. `completion` fails with
                the error with which the log would reject them.
            is_query: it changes nothing, so it runs also while too few replicas are in sync.

        `completion.fail` receives COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, or
        UNKNOWN_SERVER_ERROR if the command raises; the exception propagates. Records are written at the end of the loop
        iteration of the network; callers outside of it call `write_pending`.
        """
        found = self._shards.get(partition)
        if found is not None and (self._creating is None or completion is None):
            found.submit(command, completion, transaction, is_query=is_query)
        elif completion is not None:
            if self._closed or (self._is_known and self._creating is None):
                completion.fail(KafkaErrorCode.NOT_COORDINATOR)
            else:
                self.ensure_topic(partial(self._submit_created, partition, command, completion, transaction))

    def write_pending(self) -> None:
        """Write the records of commands that ran outside a loop iteration of the network."""
        self._host.replicas.write_pending()

    # events of the broker

    def create_shards(self) -> None:
        """Create a shard for each partition of the topic that this broker leads and that has none; called at start and
        when the topic changes.
        """
        topic = self._host.replicas.find(self._topic.name, b"", by_id=False)
        if isinstance(topic, KafkaErrorCode) or self._closed:
            return
        if not self._in_cluster:
            self._count = len(topic.partitions)
        for partition in list(topic.partitions.values()):
            if partition.index not in self._shards and partition.error != KafkaErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.elected(partition)

    def elected(self, partition: Partition) -> None:
        """This broker leads a partition of the topic: create its shard, and load it; or it leads it in a new epoch.

        While records of earlier leaders are not committed yet, the shard has no state: it is loaded at the next call.
        """
        if self._closed:
            return
        shard, before = self._shards.get(partition.index), self._epochs.get(partition.index)
        self._epochs[partition.index] = partition.leader_epoch
        if shard is None:
            shard = self._shards[partition.index] = self._new_shard(partition)
        elif self._parts.reload_on_new_epoch and before != partition.leader_epoch:
            shard.reload()
        if shard.is_unloaded and not partition.is_behind:
            shard.load()

    def _new_shard(self, partition: Partition) -> CoordinatorShard[M]:
        writer = PartitionWriter(self._host, partition, self._parts.serde, self._loads)
        return CoordinatorShard(
            partition.index,
            self._parts.make_machine,
            writer,
            self._host.clock,
            self._ask,
            self._parts.commit_timeout_ms,
            self._host.slicer,
        )

    def resigned(self, partition: int) -> None:
        """This broker leads a partition of the topic no more: drop its shard; pending requests fail with
        NOT_COORDINATOR.
        """
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close()

    def partitions_changed(self, count: int) -> None:
        """The topic of a cluster has this number of partitions now; 0 = it does not exist, or is not known yet."""
        self._in_cluster, self._count = True, count

    def close(self) -> None:
        """Reject all commands; pending ones fail with NOT_COORDINATOR."""
        self._closed = True
        call_each(CoordinatorShard.close, self._shards.values())
        creating, self._creating = self._creating or (), None
        call_each(lambda then: then(KafkaErrorCode.COORDINATOR_NOT_AVAILABLE), creating)

    def _ask(self, partition: int, question: Any) -> None:
        self.ask(partition, question)

    def _created(self, refusal: Refusal | None) -> None:
        self.create_shards()  # the topic may have existed before
        error = 0
        if not self._shards and not self._is_known:
            reason = (
                "it has no leader yet" if refusal is None else refusal.message or KafkaErrorCode(refusal.error).name
            )
            if refusal is not None:
                self._log_failure(reason)
            error = ErrorWithReason(KafkaErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
        self._continue_waiting(error)

    def _continue_waiting(self, error: int) -> None:
        """Continue the requests that wait for the topic, within the time budget of a loop iteration: there may be
        hundreds, and some take milliseconds. Later requests queue behind them.
        """

        def end(outcome: Outcome) -> None:
            if self._creating:  # a request has raised: the others continue
                self._continue_waiting(error)
            outcome.result()

        self._host.slicer.run(self._continuing(error), end)

    def _continuing(self, error: int) -> Steps:
        while self._creating:
            self._creating.popleft()(error)
            self.write_pending()
            yield
        self._creating = None

    def _log_failure(self, reason: str) -> None:
        """Log why the topic cannot be created: each reason once a minute, as clients ask again many times a second."""
        now = self._host.clock.monotonic()
        if now - self._logged.get(reason, -FAILURE_LOG_S) >= FAILURE_LOG_S:
            self._logged = {reason: now}
            LOGGER.error("%s cannot be created: %s; each request retries", self._topic.name, reason)

    def _submit_created(
        self,
        partition: int,
        command: Command[M],
        completion: CommandCompletion,
        transaction: "Transaction",
        error: int,
    ) -> None:
        found = self._shards.get(partition)
        if error or found is None:
            completion.fail(error or KafkaErrorCode.NOT_COORDINATOR)
        else:
            found.submit(command, completion, transaction)


def unasked(partition: int, question: object) -> None:
    """The initial `ask`: no coordinator answers questions yet."""
    raise RuntimeError(f"no coordinator handles {question} of partition {partition}")
