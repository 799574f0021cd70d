"""Stores the cluster metadata (topics, configs, partition states, producer ids) in Kafka's znodes.

Every change calls `then(error)` exactly once: 0 after the change is durable, otherwise a Kafka error code. An exception
is raised after `then` was called. If the response to a change is lost, the caller receives a retriable error, and the
next read shows whether the change was made. Sources: ZkData.scala, KafkaZkClient.scala.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kafkalite.callbacks import fail_on_exception
from kafkalite.clock import Clock, Outcome, Then, await_outcome
from kafkalite.cluster.configs.expiring_nodes import EXPIRED_MAX, ExpiringNode, ExpiringNodes, deletions
from kafkalite.cluster.configs.reads import Texts, stored_configs, stored_group_configs
from kafkalite.cluster.configs.writes import ConfigChange, ConfigNode, ConfigWriter, Written, topic_node
from kafkalite.cluster.coordination_errors import code_of
from kafkalite.cluster.metadata.image import PartitionImage, TopicImage, new_partition
from kafkalite.cluster.metadata.topic_node_removal import DeletedTopicNodes, TopicNodeRemover
from kafkalite.cluster.producer_id_blocks import RaisedIds, raise_above, raise_operation, raised_ids, take_block
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.bulk_reads import TopicRecord, ensure_nodes, read_topics
from kafkalite.coordination.errors import (
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
)
from kafkalite.coordination.tree import CreatedNode, Operation, Set
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition, uuid_from_text
from kafkalite.rate_limited_log import RateLimitedLog

LOGGER = logging.getLogger("kafkalite.cluster")
NO_PRODUCER_IDS = "%s; no producer ids are assigned until it is repaired"
EXPIRATION_CHECK_S = 60.0  # between searches for expired znodes
EXPIRATION_PAUSE_S = 0.1  # between transactions that delete `EXPIRED_MAX` of them

Done = Callable[[int], None]


class MetadataStore:
    """Reads and writes the znodes of the cluster for one broker.

    Arguments:
        session: an open session with the coordination service.
        clock: for the expiration of znodes; starts the transactions of long deletions.

    Attributes:
        configs: changes the configs of brokers and groups, for a broker that is alone.
        keeps: directories of partitions, see `DirectoryRecords`.
    """

    keeps = True

    def __init__(self, session: Coordination, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._log = RateLimitedLog(LOGGER, clock)
        self.configs = ConfigWriter(session, self._write_configs)
        self._expiring = ExpiringNodes(clock.wall_ms)
        self._noted: dict[bytes, dict[int, str]] = defaultdict(dict)
        self._deleting: set[bytes] = set()  # ids of topics whose deletion is not durable yet
        self._stated: dict[str, set[int]] = defaultdict(set)
        self._deletions = TopicNodeRemover(session, clock, self._nodes_gone)
        self._broker_id = -1

    @property
    def session(self) -> Coordination:
        """The session with the coordination service."""
        return self._session

    # At start.

    async def prepare(self, *more: str) -> None:
        """Create the znodes that always exist, and `more`."""
        await await_completion(lambda then: ensure_nodes(self._session, (*znodes.PERSISTENT, *more), then))

    async def cluster_id(self, fresh: str) -> str:
        """The cluster id; `fresh` if there was none."""
        await await_completion(lambda then: ensure_nodes(self._session, znodes.parents(znodes.CLUSTER_ID), then))
        try:
            await await_completion(
                lambda then: self._session.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(fresh), then)
            )
        except NodeExistsError:
            data, _stat = await await_completion(lambda then: self._session.get(znodes.CLUSTER_ID, then))
            return znodes.decode_cluster_id(data)
        return fresh

    def register(self, broker_id: int) -> None:
        """Use this broker id from now on."""
        self._broker_id = broker_id

    async def topics(self) -> list[TopicImage]:
        """Read all topics, and which partitions have a state and a directory.

        A topic whose deletion is recorded is left out; `finish_deletions` deletes its remaining znodes.
        """
        records: list[TopicRecord] = await await_completion(lambda then: read_topics(self._session, then))
        deleted = {path for path, _ in await self._children(znodes.DELETED_TOPICS)}
        topics = []
        for record in records:
            topic_id = record.node.topic_id
            if topic_id is None:
                continue
            if znodes.deleted_topic_path(topic_id) in deleted:
                noted = dict.fromkeys(record.directories, "")
                self._deletions.add(DeletedTopicNodes(record.name, topic_id, set(record.states), noted))
                continue
            topics.append(image_of(record))
            if record.configs is None:
                LOGGER.error("%s", record.invalid_configs)
            if record.states:
                self._stated[record.name] = set(record.states)
            for partition, directories in record.directories.items():
                if self._broker_id in directories:
                    self._noted[topic_id][partition] = directories[self._broker_id]
        return topics

    def finish_deletions(self) -> None:
        """Delete the remaining znodes of deleted topics, in the background."""
        self._deletions.begin()

    async def free_name(self, name: str) -> None:
        """Wait until a deleted topic of this name has no znodes left. Raises CoordinationError."""
        await await_completion(lambda then: self._deletions.when_gone(name, then))

    def noted_directory(self, topic_id: bytes, partition: int) -> str | None:
        """The recorded directory of a partition on this broker, or None while it has no files."""
        return self._noted[topic_id].get(partition) if topic_id in self._noted else None

    async def broker_configs(self) -> tuple[Texts | None, Texts | None]:
        """Dynamic configs of all brokers, and of this one; None: they cannot be read."""
        default, own = map(znodes.broker_config_path, (None, self._broker_id))
        return await stored_configs(self._session, default), await stored_configs(self._session, own)

    async def group_configs(self) -> dict[str, dict[str, str]]:
        """The configs of every group with configs that can be read."""
        return await stored_group_configs(self._session)

    async def load_notices(self) -> set[bytes]:
        """Read the znodes that expire. Returns the ids of the topics whose deletion they record."""
        changes = await self._children(znodes.CONFIG_CHANGES)
        deleted = await self._children(znodes.DELETED_TOPICS)
        ids = {path: uuid_from_text(path.rpartition("/")[2]) for path, _ in deleted}
        self._expiring.load([*changes, *(notice for notice in deleted if ids[notice[0]] not in self._deletions)])
        return set(ids.values())

    async def _children(self, parent: str) -> list[ExpiringNode]:
        try:
            names, _stat = await await_completion(lambda then: self._session.children(parent, then))
        except NoNodeError:  # a journal that is opened for reading
            return []
        found = []
        for name in names:
            path = f"{parent}/{name}"
            _data, stat = await await_completion(partial(self._session.get, path))
            found.append((path, stat.ctime))
        return found

    async def close(self) -> None:
        """End the session."""
        await await_completion(self._session.close)

    # Topics.

    def create_topic(self, topic: TopicImage, then: Done) -> None:
        """Store a new topic with all its partitions, after the znodes of an earlier topic of this name are deleted."""

        def free(outcome: Outcome) -> None:
            if outcome.error is not None:
                then(code_of(outcome.error))
                return
            operations = znodes.create_topic(topic.name, node_of(topic), topic.configs or {}, states_of(topic))
            self._session.multi(operations, convert_outcome(then, KafkaErrorCode.TOPIC_ALREADY_EXISTS))

        failed = partial(then, KafkaErrorCode.UNKNOWN_SERVER_ERROR)
        self._deletions.when_gone(topic.name, fail_on_exception(free, failed))

    def update_topic(self, topic: TopicImage, then: Done) -> None:
        """Store a topic with additional partitions."""
        self._session.multi(znodes.grow_topic(topic.name, node_of(topic), {}), convert_outcome(then))

    def delete_topic(self, topic: TopicImage, then: Done) -> None:
        """Delete a topic. Many znodes are deleted in the background, after the deletion was recorded."""
        stated, noted = self._stated.get(topic.name, set()), self._noted[topic.topic_id]
        deleted_nodes = DeletedTopicNodes(topic.name, topic.topic_id, stated, noted)
        at_once = deleted_nodes.few
        operations = deleted_nodes.operations()[0] if at_once else []

        self._deleting.add(topic.topic_id)

        def deleted(error: int) -> None:
            self._deleting.discard(topic.topic_id)
            if not error:
                self._stated.pop(topic.name, None)
                if at_once:
                    self._noted.pop(topic.topic_id, None)
                else:
                    self._deletions.add(deleted_nodes)
                    self._deletions.begin()
            then(error)

        self._notify([*operations, znodes.record_deletion(topic.topic_id)], convert_outcome(deleted), keep=not at_once)

    def _nodes_gone(self, deleted_nodes: DeletedTopicNodes) -> None:
        """Let the record of a deletion expire, because the znodes of the topic are deleted."""
        self._noted.pop(deleted_nodes.topic_id, None)
        self._expiring.add(znodes.deleted_topic_path(deleted_nodes.topic_id))

    def change_topic_configs(
        self, name: str, change: ConfigChange, then: Callable[[Written], object], *, validate_only: bool
    ) -> None:
        """Change the configs of a topic."""
        self.configs.change(topic_node(name), change, then, validate_only=validate_only)

    def _write_configs(self, node: ConfigNode, operations: list[Operation], then: Then) -> None:
        """Change a config node; the change of a topic is notified, as in Kafka's tree."""
        if node.owner:
            self._notify([*operations, node.notice()], then)
        else:
            self._session.multi(operations, then)

    def _notify(self, operations: list[Operation], then: Then, *, keep: bool = False) -> None:
        """Run a transaction whose last operation creates a znode that expires; also delete expired ones.

        Arguments:
            operations: of the transaction.
            then: called with the outcome.
            keep: whether that znode does not expire yet.
        """
        expired = self._expiring.take_expired()

        def ended(outcome: Outcome) -> None:
            if outcome.error is None and not keep:
                created: CreatedNode = outcome.value[len(operations) - 1]
                self._expiring.add(created.path)
            then(outcome)

        def ended_with_expired(outcome: Outcome) -> None:
            if isinstance(outcome.error, NoNodeError):  # another broker deleted one of them, or the change is wrong
                self._delete_one_by_one(expired)
                self._session.multi(operations, ended)
                return
            if outcome.error is not None:
                self._expiring.put_back(expired)
            ended(outcome)

        if not expired:
            self._session.multi(operations, ended)
            return
        self._session.multi([*operations, *deletions(expired)], ended_with_expired)

    def delete_expired(self) -> None:
        """Delete expired znodes, now and from now on: without it, they would wait for the next change."""
        expired = self._expiring.take_expired()
        if expired:
            self._session.multi(deletions(expired), partial(self._expired_deleted, expired))
        else:
            self._delete_expired_after(EXPIRATION_CHECK_S)

    def _expired_deleted(self, expired: Sequence[ExpiringNode], outcome: Outcome) -> None:
        if isinstance(outcome.error, NoNodeError):
            self._delete_one_by_one(expired)
        elif outcome.error is not None:
            self._expiring.put_back(expired)
        more = outcome.error is None and len(expired) == EXPIRED_MAX
        self._delete_expired_after(EXPIRATION_PAUSE_S if more else EXPIRATION_CHECK_S)

    def _delete_expired_after(self, seconds: float) -> None:
        self._clock.call_at(self._clock.monotonic() + seconds, self.delete_expired)

    def _delete_one_by_one(self, expired: Sequence[ExpiringNode]) -> None:
        """Delete expired znodes, some of which may not exist any more."""

        def deleted(notice: ExpiringNode, outcome: Outcome) -> None:
            if outcome.error is not None and not isinstance(outcome.error, NoNodeError):
                self._expiring.put_back([notice])

        for notice in expired:
            self._session.delete(notice[0], partial(deleted, notice))

    async def change_leader_epochs(
        self, epochs: Mapping[TopicPartition, PartitionImage], later: Callable[[Sequence[Operation]], object]
    ) -> bool:
        """Store the states of these partitions in one transaction.

        Arguments:
            epochs: the partitions by topic and index.
            later: called with the operations if the disk is full; they become durable with the next change.

        Returns whether it is durable. Raises CoordinationError.
        """
        operations = [one for key, partition in epochs.items() for one in self.keep_state(*key, state_of(partition))]
        try:
            await await_completion(lambda then: self._session.multi(operations, then))
        except ConnectionLossError:
            if self._session.lost:
                raise
            later(operations)
            return False
        return True

    def keep_state(self, topic: str, partition: int, state: znodes.PartitionState) -> list[Operation]:
        """The operations that store the state of a partition; the caller runs them now."""
        if partition in self._stated[topic]:
            return [Set(znodes.state_path(topic, partition), znodes.encode_state(state))]
        self._stated[topic].add(partition)
        return znodes.create_partitions(topic, {partition: state})

    def note_directories(self, partitions: Iterable[tuple[bytes, int]], directory: str, then: Done) -> None:
        """Record the log directory of partitions, in one transaction: all or none.

        Arguments:
            partitions: topic id and index of each, new or moved. A deletion that is requested meanwhile also deletes
                its znode.
            directory: the id of the log directory.
            then: called with 0 or a Kafka error code.
        """
        recorded = list(partitions)
        # Such a transaction fails; until then, deletions of the other topics would expect these znodes.
        if any(topic_id in self._deletions or topic_id in self._deleting for topic_id, _ in recorded):
            then(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        before = [self.noted_directory(*each) for each in recorded]
        for topic_id, partition in recorded:
            self._noted[topic_id][partition] = directory

        def noted(error: int) -> None:
            if error:
                for (topic_id, partition), earlier in zip(recorded, before, strict=True):
                    if topic_id in self._noted and earlier is not None:
                        self._noted[topic_id][partition] = earlier
                    elif topic_id in self._noted:
                        self._noted[topic_id].pop(partition, None)
            then(error)

        operations = [
            znodes.note_directory(*each, self._broker_id, directory, again=earlier is not None)
            for each, earlier in zip(recorded, before, strict=True)
        ]
        self._session.multi(operations, convert_outcome(noted))

    # Brokers.

    def take_producer_ids(self, then: Callable[[range | None], None]) -> None:
        """Allocate the next block of producer ids by compare-and-set; `then` receives None after a failure."""
        take_block(self._session, self._broker_id, then, self._report_producer_ids)

    def _report_producer_ids(self, error: znodes.ZnodeError) -> None:
        """The node is invalid. Clients ask for ids again and again."""
        self._log(logging.ERROR, "producer ids", NO_PRODUCER_IDS, error)

    async def raise_producer_ids(
        self, found: int, *, later: Callable[[Sequence[Operation]], object] | None = None, force: bool = False
    ) -> RaisedIds | None:
        """Let the next block of producer ids begin above the largest id in logs; `raise_above` describes it.

        Arguments:
            found: the largest id in logs, -1 for none.
            later: called with the operation if the disk is full; it becomes durable with the next change.
            force: raise in any case, because the tree is known to be older than the logs.

        Returns the raise, None if none was necessary or the node is invalid: then it assigns no ids. Raises
        CoordinationError.
        """
        raising = partial(raise_above, self._session, self._broker_id, found, force=force)
        try:
            raised: RaisedIds | None = await await_completion(lambda then: raising(then=then))
        except znodes.ZnodeError as error:
            LOGGER.error(NO_PRODUCER_IDS, error)
            return None
        except ConnectionLossError:
            if later is None or self._session.lost:
                raise
            data, stat = await await_completion(partial(self._session.get, znodes.PRODUCER_ID_BLOCK))
            raised = raised_ids(data, found, force=force)
            if raised is not None:
                later([raise_operation(self._broker_id, raised, stat.version)])
        return raised


async def await_completion(call: Callable[[Then], object]) -> Any:
    """Make a call to the coordination service and wait for its result. Raises the error of the call."""
    return (await await_outcome(call)).result()


def convert_outcome(then: Done, exists: int = KafkaErrorCode.UNKNOWN_SERVER_ERROR) -> Then:
    """Convert an outcome to a Kafka error code for `then`; `exists`: the code if a znode exists already."""

    def complete(outcome: Outcome) -> None:
        error: int = KafkaErrorCode.UNKNOWN_SERVER_ERROR  # after an exception
        try:
            error = 0 if outcome.error is None else code_of(outcome.error, exists)
        finally:
            then(error)

    return complete


def node_of(topic: TopicImage) -> znodes.TopicNode:
    """The znode of a topic."""
    return znodes.TopicNode(topic.topic_id, {at: part.replicas for at, part in enumerate(topic.partitions)})


def state_of(partition: PartitionImage) -> znodes.PartitionState:
    """The state of a partition as it is stored."""
    return znodes.PartitionState(partition.leader, partition.leader_epoch, partition.isr)


def states_of(topic: TopicImage) -> dict[int, znodes.PartitionState]:
    """The states of all partitions that differ from a new one."""
    return {
        at: state_of(partition)
        for at, partition in enumerate(topic.partitions)
        if partition is not new_partition(partition.replicas) and partition != new_partition(partition.replicas)
    }


def image_of(record: TopicRecord) -> TopicImage:
    """The image of a stored topic; a partition without a state is a new one."""
    assert record.node.topic_id is not None
    partitions = tuple(partition_of(record, index) for index in sorted(record.node.replicas))
    return TopicImage(record.name, record.node.topic_id, partitions, record.configs)


def partition_of(record: TopicRecord, index: int) -> PartitionImage:
    replicas = record.node.replicas[index]
    if index not in record.states:
        return new_partition(replicas)
    state, _version = record.states[index]
    return PartitionImage(replicas, state.isr, state.leader, state.leader_epoch)
