"""Reads the groups of ZooKeeper-era consumers: registered consumers, owners of partitions, offsets.

1. A node that disappears while the group is read counts as missing: consumers come and go meanwhile.
2. A node with invalid content is a problem that names its path; the others are read.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import NoNodeError
from kafkalite.coordination.tree import Stat
from kafkalite.coordination.znodes import ZnodeError, consumers
from kafkalite.coordination.znodes.brokers import BrokerRegistration, decode_registration, registration_path
from kafkalite.coordination.znodes.names import is_number
from kafkalite.model import TopicPartition
from kafkalite_sdk.zk.znode_calls import Reads, ZnodeCalls

Node = tuple[bytes, Stat]
T = TypeVar("T")
NO_OFFSET = -1


class RegisteredConsumer(NamedTuple):
    """A consumer id below `/consumers/G/ids`.

    Attributes:
        subscription: what it reads.
        session_id: of the session that created the node; 0 = the node is not ephemeral.
    """

    subscription: consumers.Registration
    session_id: int


class Owner(NamedTuple):
    """The owner of a partition.

    Attributes:
        stream: of a consumer.
        session_id: of the session that created the node; 0 = the node is not ephemeral.
        czxid: transaction that created the node.
    """

    stream: consumers.StreamId
    session_id: int
    czxid: int


class StoredOffset(NamedTuple):
    """An offset in the tree: the next record to read, and the transaction that wrote it."""

    offset: int
    mzxid: int


class ZooKeeperGroup(NamedTuple):
    """A group as the tree has it.

    Attributes:
        group: its id.
        consumers: by consumer id.
        owners: of partitions.
        offsets: of partitions; without nodes that are invalid, and without -1, which Java takes as no offset.
        offset_versions: of all nodes of offsets, also of those that are invalid.
        old_offsets: paths of offsets with names BROKER-PARTITION, as Kafka before 0.8 wrote them.
        problems: by path of a node that cannot be read, the reason.
    """

    group: str
    consumers: Mapping[str, RegisteredConsumer]
    owners: Mapping[TopicPartition, Owner]
    offsets: Mapping[TopicPartition, StoredOffset]
    offset_versions: Mapping[TopicPartition, int]
    old_offsets: tuple[str, ...]
    problems: Mapping[str, str]


class Brokers(NamedTuple):
    """The registered brokers by id, and by path the reason why a registration cannot be read."""

    registrations: Mapping[int, BrokerRegistration]
    problems: Mapping[str, str]


class ZooKeeperGroups:
    """Reads groups with one session.

    Arguments:
        session: with ZooKeeper, or with the served tree.
        timeout_s: of each step.

    Every method raises CoordinationError, and TimeoutError.

    Attributes:
        calls: of the session.
    """

    def __init__(self, session: Coordination, timeout_s: float) -> None:
        self.calls = ZnodeCalls(session, timeout_s)

    async def names(self) -> list[str]:
        """The ids of all groups, in order. Raises NoNodeError: no cluster or consumer has used this chroot."""
        return sorted(await self.calls.children(consumers.CONSUMERS))

    async def read(self, group: str) -> ZooKeeperGroup:
        """Read a group. Raises NoNodeError: it does not exist. ValueError: no group can have this id."""
        consumers.check_group(group)
        if await self.calls.exists(consumers.group_path(group)) is None:
            raise NoNodeError(consumers.group_path(group))
        problems: dict[str, str] = {}
        members = await self._members(group, problems)
        owner_nodes, _ = await self._partitions(consumers.owners_path(group), problems)
        owners = decode_each(owner_nodes, read_owner, problems)
        nodes, old = await self._partitions(consumers.offsets_path(group), problems)
        stored = decode_each(nodes, read_offset, problems)
        return ZooKeeperGroup(
            group,
            members,
            by_partition(owners),
            {each: offset for each, offset in by_partition(stored).items() if offset.offset >= 0},
            {each: stat.version for each, (_, stat) in by_partition(nodes).items()},
            tuple(old),
            problems,
        )

    async def partitions(self) -> tuple[dict[str, list[int]], dict[str, str]]:
        """The partitions of all topics, and by path the reason why a topic cannot be read."""
        found = await self.calls.children_of_each([znodes.TOPICS])
        topics = found.values.get(znodes.TOPICS, [])
        reads = await self.calls.get_each(map(znodes.topic_path, topics))
        problems = forbidden_of(reads)
        nodes = decode_each(reads.values, lambda path, data, _: znodes.decode_topic(path, data), problems)
        return {path.rpartition("/")[2]: sorted(node.replicas) for path, node in nodes.items()}, problems

    async def brokers(self) -> Brokers:
        """The registered brokers."""
        found = await self.calls.children_of_each([znodes.BROKER_IDS])
        ids = [name for name in found.values.get(znodes.BROKER_IDS, []) if is_number(name)]
        reads = await self.calls.get_each(registration_path(int(name)) for name in ids)
        problems = forbidden_of(reads)
        nodes = decode_each(
            reads.values, lambda path, data, _: decode_registration(int(path.rpartition("/")[2]), data), problems
        )
        return Brokers({int(path.rpartition("/")[2]): node for path, node in nodes.items()}, problems)

    async def _members(self, group: str, problems: dict[str, str]) -> dict[str, RegisteredConsumer]:
        path = consumers.ids_path(group)
        listed = await self._children([path], problems)
        reads = await self.calls.get_each(f"{path}/{name}" for name in listed.get(path, ()))
        problems |= forbidden_of(reads)
        nodes = decode_each(reads.values, read_consumer, problems)
        return {each.rpartition("/")[2]: node for each, node in nodes.items()}

    async def _partitions(self, path: str, problems: dict[str, str]) -> tuple[dict[str, Node], list[str]]:
        """Read the nodes T/P below a node.

        Arguments:
            path: of the node above the topics.
            problems: receives the reasons why nodes cannot be read, by path.
        Returns: data and metadata by path, and the paths with names BROKER-PARTITION.
        """
        topics = (await self._children([path], problems)).get(path, ())
        listed = await self._children([f"{path}/{topic}" for topic in topics], problems)
        paths, old = [], []
        for above, names in listed.items():
            for name in names:
                if consumers.partition_of(name) is not None:
                    paths.append(f"{above}/{name}")
                elif consumers.is_broker_partition(name):
                    old.append(f"{above}/{name}")
                else:
                    problems[f"{above}/{name}"] = "the name is not a partition"
        reads = await self.calls.get_each(paths)
        problems |= forbidden_of(reads)
        return reads.values, old

    async def _children(self, paths: Iterable[str], problems: dict[str, str]) -> dict[str, list[str]]:
        reads = await self.calls.children_of_each(paths)
        problems |= forbidden_of(reads)
        return {path: sorted(names) for path, names in reads.values.items()}


def partition_at(path: str) -> TopicPartition:
    """The partition of a node T/P."""
    _, topic, name = path.rsplit("/", 2)
    return TopicPartition(topic, int(name))


def by_partition(nodes: Mapping[str, T]) -> dict[TopicPartition, T]:
    """What nodes T/P have, in the order of the partitions."""
    found = {partition_at(path): value for path, value in nodes.items()}
    return {each: found[each] for each in sorted(found)}


def decode_each(
    found: Mapping[str, Node], read: Callable[[str, bytes, Stat], T], problems: dict[str, str]
) -> dict[str, T]:
    """Decode nodes; the reasons why some are invalid are added to `problems`, by path."""
    nodes: dict[str, T] = {}
    for path, (data, stat) in found.items():
        try:
            nodes[path] = read(path, data, stat)
        except ZnodeError as error:
            problems[path] = str(error).removeprefix(f"{path}: ")
    return nodes


def forbidden_of(reads: Reads) -> dict[str, str]:
    """The problems of nodes without permission, by path."""
    return dict.fromkeys(reads.forbidden, "no permission to read it")


def read_consumer(path: str, data: bytes, stat: Stat) -> RegisteredConsumer:
    """Raises ZnodeError."""
    return RegisteredConsumer(consumers.decode_registration(path, data), stat.ephemeral_owner)


def read_owner(path: str, data: bytes, stat: Stat) -> Owner:
    """Raises ZnodeError."""
    return Owner(consumers.decode_owner(path, data), stat.ephemeral_owner, stat.czxid)


def read_offset(path: str, data: bytes, stat: Stat) -> StoredOffset:
    """Raises ZnodeError, also for a negative offset other than -1."""
    offset = consumers.decode_offset(path, data)
    if offset < NO_OFFSET:
        raise ZnodeError(f"{path}: the offset is {offset}")
    return StoredOffset(offset, stat.mzxid)
