"""What the cluster keeps in the coordination service, in the words of topics and brokers: Kafka's znodes behind one
door.

Every change ends with `then(error)`, 0 once it is durable, whatever is raised on the way (then it is raised, too); the
first end counts. When the answer to a change is lost, the caller gets a
retriable error and the next look tells the truth. Sources: ZkData.scala, KafkaZkClient.scala.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kafkalite.callbacks import fail_on_exception
from kafkalite.clock import Clock, Outcome
from kafkalite.cluster.change_notifications import ChangeNotifications, Notice, deletions
from kafkalite.cluster.image import PartitionImage, TopicImage, new_partition
from kafkalite.cluster.topic_node_removal import DeletedTopicNodes, TopicNodeRemover
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination, Then
from kafkalite.coordination.bulk_reads import TopicRecord, ensure_nodes, read_topics
from kafkalite.coordination.errors import (
    BadVersionError,
    ConnectionLossError,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
)
from kafkalite.coordination.tree import CreatedNode, Operation, Set
from kafkalite.errors import ErrorWithReason, KafkaErrorCode
from kafkalite.model import uuid_from_text

PRODUCER_IDS_BLOCK = 1000  # ProducerIdsBlock.java

Done = Callable[[int], None]


class MetadataStore:
    """The cluster's nodes, seen by one broker.

    Arguments:
        session: an open session with the coordination service.
        clock: the time at which notifications expire; it begins the transactions of long deletions.
    """

    def __init__(self, session: Coordination, clock: Clock) -> None:
        self._session = session
        self._notices = ChangeNotifications(clock.wall_ms)
        self._noted: dict[bytes, dict[int, str]] = defaultdict(dict)
        self._deleting: set[bytes] = set()  # topic ids whose deletion was asked for and is not durable yet
        self._stated: dict[str, set[int]] = defaultdict(set)
        self._deletions = TopicNodeRemover(session, clock, self._nodes_gone)
        self._broker_id = -1

    # At start.

    async def prepare(self) -> None:
        """Make the nodes that always exist."""
        await await_completion(lambda then: ensure_nodes(self._session, znodes.PERSISTENT, then))

    async def cluster_id(self, fresh: str) -> str:
        """The cluster's id; `fresh` becomes it when there is none yet."""
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
        """Speak as this broker from now on."""
        self._broker_id = broker_id

    async def topics(self) -> list[TopicImage]:
        """Every topic as the service has it; remembers which partitions have a state, and a directory noted.

        A topic whose deletion is recorded is not there; `finish_deletions` deletes the nodes that are left of it.
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
            if record.states:
                self._stated[record.name] = set(record.states)
            for partition, directories in record.directories.items():
                if self._broker_id in directories:
                    self._noted[topic_id][partition] = directories[self._broker_id]
        return topics

    def finish_deletions(self) -> None:
        """Delete the nodes that are left of deleted topics, in the background."""
        self._deletions.begin()

    async def free_name(self, name: str) -> None:
        """Return when no node of a deleted topic of this name is left; raises CoordinationError."""
        await await_completion(lambda then: self._deletions.when_gone(name, then))

    def noted_directory(self, topic_id: bytes, partition: int) -> str | None:
        """The directory noted for a partition on this broker, or None while it has no files."""
        return self._noted[topic_id].get(partition) if topic_id in self._noted else None

    async def broker_configs(self) -> tuple[dict[str, str], dict[str, str]]:
        """Dynamic configs of all brokers, and of this one."""
        return await self._configs(None), await self._configs(self._broker_id)

    async def _configs(self, broker_id: int | None) -> dict[str, str]:
        path = znodes.broker_config_path(broker_id)
        try:
            data, _stat = await await_completion(lambda then: self._session.get(path, then))
        except NoNodeError:
            return {}
        return znodes.decode_configs(path, data)

    async def group_configs(self) -> dict[str, dict[str, str]]:
        """The configs of every group that has any."""
        names, _stat = await await_completion(lambda then: self._session.children(znodes.GROUP_CONFIGS, then))
        found: dict[str, dict[str, str]] = {}
        for name in names:
            path = f"{znodes.GROUP_CONFIGS}/{name}"
            data, _stat = await await_completion(partial(self._session.get, path))
            found[znodes.group_of(name)] = znodes.decode_configs(path, data)
        return found

    async def load_notices(self) -> set[bytes]:
        """Read the nodes that expire. Returns the ids of the topics whose deletion they record."""
        changes = await self._children(znodes.CONFIG_CHANGES)
        deleted = await self._children(znodes.DELETED_TOPICS)
        ids = {path: uuid_from_text(path.rpartition("/")[2]) for path, _ in deleted}
        self._notices.load([*changes, *(notice for notice in deleted if ids[notice[0]] not in self._deletions)])
        return set(ids.values())

    async def _children(self, parent: str) -> list[Notice]:
        try:
            names, _stat = await await_completion(lambda then: self._session.children(parent, then))
        except NoNodeError:  # a journal that is only read
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
        """Keep a new topic with all its partitions, when the nodes of an earlier one of its name are gone."""

        def free(outcome: Outcome) -> None:
            if outcome.error is not None:
                then(code_of(outcome.error))
                return
            operations = znodes.create_topic(topic.name, node_of(topic), topic.configs, states_of(topic))
            self._session.multi(operations, answered(then, KafkaErrorCode.TOPIC_ALREADY_EXISTS))

        failed = partial(then, KafkaErrorCode.UNKNOWN_SERVER_ERROR)
        self._deletions.when_gone(topic.name, fail_on_exception(free, failed))

    def update_topic(self, topic: TopicImage, then: Done) -> None:
        """Keep a topic that has more partitions than before; they are new ones."""
        self._session.multi(znodes.grow_topic(topic.name, node_of(topic), {}), answered(then))

    def delete_topic(self, topic: TopicImage, then: Done) -> None:
        """Forget a topic with everything below it. Many nodes are deleted in the background, after the record."""
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

        self._notify([*operations, znodes.record_deletion(topic.topic_id)], answered(deleted), keep=not at_once)

    def _nodes_gone(self, deleted_nodes: DeletedTopicNodes) -> None:
        """The record of a deletion may expire."""
        self._noted.pop(deleted_nodes.topic_id, None)
        self._notices.add(znodes.deleted_topic_path(deleted_nodes.topic_id))

    def configure_topic(self, name: str, configs: Mapping[str, str], then: Done) -> None:
        """Keep a topic's configs."""
        self._notify(znodes.configure_topic(name, configs), answered(then))

    def _notify(self, operations: list[Operation], then: Then, *, keep: bool = False) -> None:
        """Do a transaction whose last operation creates a node that expires; expired ones are deleted with it.

        `keep`: that node does not expire yet.
        """
        expired = self._notices.take_expired()

        def ended(outcome: Outcome) -> None:
            if outcome.error is None and not keep:
                created: CreatedNode = outcome.value[len(operations) - 1]
                self._notices.add(created.path)
            then(outcome)

        def ended_with_expired(outcome: Outcome) -> None:
            if isinstance(outcome.error, NoNodeError):  # another broker deleted one of them, or the change is wrong
                self._delete_one_by_one(expired)
                self._session.multi(operations, ended)
                return
            if outcome.error is not None:
                self._notices.put_back(expired)
            ended(outcome)

        if not expired:
            self._session.multi(operations, ended)
            return
        self._session.multi([*operations, *deletions(expired)], ended_with_expired)

    def _delete_one_by_one(self, expired: Sequence[Notice]) -> None:
        """Delete expired nodes of which some may not exist any more."""

        def deleted(notice: Notice, outcome: Outcome) -> None:
            if outcome.error is not None and not isinstance(outcome.error, NoNodeError):
                self._notices.put_back([notice])

        for notice in expired:
            self._session.delete(notice[0], partial(deleted, notice))

    async def change_leader_epochs(
        self, epochs: Mapping[tuple[str, int], PartitionImage], later: Callable[[Sequence[Operation]], object]
    ) -> bool:
        """Keep the states of these partitions, by topic and index, in one transaction.

        Arguments:
            later: called where the disk is full; it makes the change durable with the next one.

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
        """The operations that keep the state of a partition, which the caller does at once."""
        if partition in self._stated[topic]:
            return [Set(znodes.state_path(topic, partition), znodes.encode_state(state))]
        self._stated[topic].add(partition)
        return znodes.create_partitions(topic, {partition: state})

    def note_directories(self, partitions: Iterable[tuple[bytes, int]], directory: str, then: Done) -> None:
        """Record where the files of partitions are, in one transaction: all or none.

        Arguments:
            partitions: topic id and index of each. A deletion asked for meanwhile removes its node, too.
            directory: the id of the log directory.
        """
        recorded = list(partitions)
        # Such a transaction fails, and until then deletions of the other topics would count on their nodes.
        if any(topic_id in self._deletions or topic_id in self._deleting for topic_id, _ in recorded):
            then(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        for topic_id, partition in recorded:
            self._noted[topic_id][partition] = directory

        def noted(error: int) -> None:
            if error:
                for topic_id, partition in recorded:
                    if topic_id in self._noted:
                        self._noted[topic_id].pop(partition, None)
            then(error)

        operations = [znodes.note_directory(*each, self._broker_id, directory) for each in recorded]
        self._session.multi(operations, answered(noted))

    # Brokers.

    def configure_broker(self, broker_id: int | None, configs: Mapping[str, str], then: Done) -> None:
        """Keep the dynamic configs of one broker, or of all (None)."""
        self._configure(znodes.broker_config_path(broker_id), configs, then)

    def configure_group(self, group: str, configs: Mapping[str, str], then: Done) -> None:
        """Keep the configs of a group, which need not exist; none = forget it."""
        if configs:
            self._configure(znodes.group_config_path(group), configs, then)
            return

        def gone(outcome: Outcome) -> None:
            answered(then)(Outcome() if isinstance(outcome.error, NoNodeError) else outcome)

        path = znodes.group_config_path(group)
        self._session.delete(path, fail_on_exception(gone, lambda: then(KafkaErrorCode.UNKNOWN_SERVER_ERROR)))

    def _configure(self, path: str, configs: Mapping[str, str], then: Done) -> None:
        data = znodes.encode_configs(configs)

        def made(outcome: Outcome) -> None:
            if isinstance(outcome.error, NodeExistsError):
                self._session.set(path, data, answered(then))
            else:
                answered(then)(outcome)

        self._session.create(path, data, fail_on_exception(made, lambda: then(KafkaErrorCode.UNKNOWN_SERVER_ERROR)))

    def take_producer_ids(self, then: Callable[[range | None], None]) -> None:
        """Take the next block of producer ids by compare-and-set; None when that failed."""

        def read(outcome: Outcome) -> None:
            if outcome.error is not None:
                then(None)
                return
            data, stat = outcome.value
            last = znodes.decode_producer_ids(data)
            first = 0 if last is None else last.last + 1
            block = range(first, first + PRODUCER_IDS_BLOCK)
            node = znodes.ProducerIdBlock(self._broker_id, block.start, block.stop - 1)
            self._session.set(
                znodes.PRODUCER_ID_BLOCK,
                znodes.encode_producer_ids(node),
                lambda kept: self._taken(block, kept, then),
                stat.version,
            )

        self._session.get(znodes.PRODUCER_ID_BLOCK, fail_on_exception(read, lambda: then(None)))

    def _taken(self, block: range, outcome: Outcome, then: Callable[[range | None], None]) -> None:
        if isinstance(outcome.error, BadVersionError):  # another broker was faster
            self.take_producer_ids(then)
        else:
            then(block if outcome.error is None else None)


async def await_completion(call: Callable[[Then], object]) -> Any:
    """Make a call to the service and wait for its result; raises what it raises."""
    ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    call(ended.set_result)
    return (await ended).result()


def answered(then: Done, exists: int = KafkaErrorCode.UNKNOWN_SERVER_ERROR) -> Then:
    """Turn an outcome into a Kafka error code; `exists`: the code when a node was there already."""

    def complete(outcome: Outcome) -> None:
        error: int = KafkaErrorCode.UNKNOWN_SERVER_ERROR  # unless the outcome says what became of it
        try:
            error = 0 if outcome.error is None else code_of(outcome.error, exists)
        finally:
            then(error)

    return complete


def code_of(error: BaseException, exists: int = KafkaErrorCode.UNKNOWN_SERVER_ERROR) -> int:
    """The Kafka error code of a failed call; what is no failure of the service is raised."""
    if isinstance(error, NodeExistsError):
        return exists
    if isinstance(error, NoNodeError):
        return KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if isinstance(error, BadVersionError):
        return KafkaErrorCode.NOT_CONTROLLER
    if isinstance(error, CoordinationError):
        return ErrorWithReason(KafkaErrorCode.KAFKA_STORAGE_ERROR, failure_of(error))
    raise error


def failure_of(error: CoordinationError) -> str:
    """Why the service did not keep a change, for clients: without paths."""
    cause = error.__cause__
    detail = cause.strerror if isinstance(cause, OSError) and cause.strerror else error.words
    return f"the metadata cannot be written: {detail}"


def node_of(topic: TopicImage) -> znodes.TopicNode:
    """A topic's node."""
    return znodes.TopicNode(topic.topic_id, {at: part.replicas for at, part in enumerate(topic.partitions)})


def state_of(partition: PartitionImage) -> znodes.PartitionState:
    """A partition's state."""
    return znodes.PartitionState(partition.leader, partition.leader_epoch, partition.isr)


def states_of(topic: TopicImage) -> dict[int, znodes.PartitionState]:
    """The states of the partitions that are not new."""
    return {
        at: state_of(partition)
        for at, partition in enumerate(topic.partitions)
        if partition is not new_partition(partition.replicas) and partition != new_partition(partition.replicas)
    }


def image_of(record: TopicRecord) -> TopicImage:
    """A topic as the image has it; a partition without a state is a new one."""
    assert record.node.topic_id is not None
    partitions = tuple(partition_of(record, index) for index in sorted(record.node.replicas))
    return TopicImage(record.name, record.node.topic_id, partitions, dict(record.configs))


def partition_of(record: TopicRecord, index: int) -> PartitionImage:
    replicas = record.node.replicas[index]
    if index not in record.states:
        return new_partition(replicas)
    state, _version = record.states[index]
    return PartitionImage(replicas, state.isr, state.leader, state.leader_epoch)
