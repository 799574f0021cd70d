"""Writes the embedded tree of a broker that was alone into an empty coordination service: it becomes a cluster's.

1. The tree is copied node by node, topics in the first transaction and `/cluster/id` in the last one: a broker refuses
   a tree that has topics and no id. The same call continues an interrupted adoption. A node with other data is not
   replaced.
2. The journal is renamed before the first write, so that the broker does not change it alone any more, and once more
   after the last one. Nothing is deleted.
3. Not copied: the log directories of partitions, which only the embedded tree records; notifications and deleted
   topics, whose readers are gone; `/brokers/seqid`, whose versions are ids that brokers have generated.
4. The embedded tree has no state of a partition that never changed. Its state is written here, so that the controller
   does not take the partition for a new one, which is created empty if a log directory is offline.
5. The producer ids are raised above those in the log directory, and passwords without effect are left out
   (`adopted_nodes`).
"""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk
from kafkalite.callbacks import gather
from kafkalite.clock import Clock, Outcome, Then, await_outcome
from kafkalite.cluster.metadata.image import new_partition
from kafkalite.cluster.metadata.store import state_of
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.errors import NoNodeError
from kafkalite.coordination.tree import Create, Tree
from kafkalite.server.adoption.adopted_nodes import adopted_nodes
from kafkalite.server.process.resources import ADOPTED, ADOPTING, JOURNAL
from kafkalite.storage.dirs.log_directory import LogDirectory

BATCH_NODES, BATCH_BYTES = 500, 500_000  # of a transaction: ZooKeeper rejects requests above 1 MiB
NOT_COPIED = frozenset(("/", znodes.CLUSTER_ID, znodes.DIRECTORIES, znodes.DELETED_TOPICS, znodes.BROKER_SEQUENCE))
WITHOUT_CHILDREN = (znodes.DIRECTORIES, znodes.DELETED_TOPICS, znodes.CONFIG_CHANGES, znodes.BROKER_IDS)
CHOOSE = "choose another path in it, or a new tree"


class TreeAdoptionError(Exception):
    """A tree cannot be adopted; the message is one line with the reason and the next step."""


class AdoptedTree(NamedTuple):
    """The result of an adoption.

    Attributes:
        cluster_id: of the cluster.
        topics: their number.
        written: number of nodes that this call has written.
        passwords: the configs that the cluster did not get, because they are passwords without effect: (path, key).
    """

    cluster_id: str
    topics: int
    written: int
    passwords: list[tuple[str, str]]


class TreeAdoption:
    """One call of `kafkalite cluster adopt`.

    Arguments:
        disk: holds the log directory.
        clock: for the journal.
        data: the log directory with the journal, which is locked.
        target: the session with the coordination service of the cluster.
    """

    def __init__(self, disk: Disk, clock: Clock, data: str, target: Coordination) -> None:
        self._disk = disk
        self._clock = clock
        self._data = data
        self._target = target

    async def run(self) -> AdoptedTree:
        """Write the tree.

        Raises TreeAdoptionError, CoordinationError, DirectoryError, JournalError, ZnodeError, OSError.
        """
        journal = journal_of(self._disk, self._data)
        service = EmbeddedCoordination.open(self._disk, os.path.join(self._data, journal), self._clock)
        service.close()
        tree = service.tree
        identity, _ = tree.get(znodes.CLUSTER_ID)
        cluster_id, topics = znodes.decode_cluster_id(identity), tree.children(znodes.TOPICS)[0]
        nodes, passwords = adopted_nodes(list(copy_nodes(tree)), self._disk, self._data, self._broker_id())
        written = 0
        if not await self._is_complete(cluster_id):
            written = await self._copy([*batches(nodes), [Create(znodes.CLUSTER_ID, identity)]], topics, journal)
        elif journal == JOURNAL:
            text = f"the tree has cluster {cluster_id}, but {self._data} was not adopted: a copy of it was"
            raise TreeAdoptionError(f"{text}; {CHOOSE}")
        self._rename(ADOPTING, ADOPTED)
        return AdoptedTree(cluster_id, len(topics), written, passwords)

    def _broker_id(self) -> int:
        identity = LogDirectory(self._disk, self._data).identity()
        return 0 if identity is None else identity.broker_id

    async def _copy(self, nodes: list[list[Create]], topics: list[str], journal: str) -> int:
        """Write the nodes that the tree lacks; returns their number. If it has others, nothing is changed."""
        await self._check_children(znodes.BROKER_IDS, [], "brokers")
        await self._check_children(znodes.TOPICS, topics, "other topics")
        for batch in nodes:
            await self._missing(batch)
        self._rename(journal, ADOPTING)
        return sum([await self._write(batch) for batch in nodes])

    def _rename(self, name: str, other: str) -> None:
        if name != other:
            self._disk.rename(os.path.join(self._data, name), os.path.join(self._data, other))
            self._disk.sync_dir(self._data)

    async def _write(self, batch: list[Create]) -> int:
        """Write the nodes of a batch that the tree lacks, in one transaction; returns their number."""
        missing = await self._missing(batch)
        if missing:
            (await await_outcome(partial(self._target.multi, missing))).result()
        return len(missing)

    async def _is_complete(self, cluster_id: str) -> bool:
        """Whether an earlier call has written everything. Raises TreeAdoptionError: the tree is another cluster's."""
        outcome = await await_outcome(partial(self._target.get, znodes.CLUSTER_ID))
        if isinstance(outcome.error, NoNodeError):
            return False
        found = znodes.decode_cluster_id(outcome.result()[0])
        if found != cluster_id:
            raise TreeAdoptionError(f"the tree belongs to cluster {found}, {self._data} to {cluster_id}; {CHOOSE}")
        return True

    async def _check_children(self, path: str, allowed: list[str], what: str) -> None:
        """Raise TreeAdoptionError if a node has children that are not allowed."""
        outcome = await await_outcome(partial(self._target.children, path))
        if isinstance(outcome.error, NoNodeError):
            return
        others = sorted(set(outcome.result()[0]).difference(allowed))
        if others:
            raise TreeAdoptionError(f"the tree has {what}, first {path}/{others[0]}; {CHOOSE}")

    async def _missing(self, batch: list[Create]) -> list[Create]:
        """Return the nodes of a batch that the tree lacks. Raises TreeAdoptionError: one has other data."""

        def read(then: Then) -> None:
            gather([self._reader(each.path) for each in batch], lambda outcomes: then(Outcome(outcomes)))

        missing = []
        for node, outcome in zip(batch, (await await_outcome(read)).result(), strict=True):
            if isinstance(outcome.error, NoNodeError):
                missing.append(node)
            elif outcome.result()[0] != node.data:
                raise TreeAdoptionError(f"the tree has another {node.path}; {CHOOSE}")
        return missing

    def _reader(self, path: str) -> Callable[[Then], object]:
        return lambda then: self._target.get(path, then)


def journal_of(disk: Disk, data: str) -> str:
    """Return the name of the journal, or its name in an interrupted adoption. Raises TreeAdoptionError: none."""
    for name in (JOURNAL, ADOPTING):
        if disk.exists(os.path.join(data, name)):
            return name
    if disk.exists(os.path.join(data, ADOPTED)):
        raise TreeAdoptionError(f"{data}: has no {JOURNAL}: a cluster has adopted it already")
    raise TreeAdoptionError(f"{data}: has no {JOURNAL}: it is not the log directory of a broker alone")


def batches(nodes: Iterable[Create]) -> Iterator[list[Create]]:
    """Yield the nodes that a cluster gets, in transactions that ZooKeeper accepts; parents come first."""
    batch: list[Create] = []
    size = 0
    for node in nodes:
        added = len(node.path) + len(node.data)
        if batch and (len(batch) == BATCH_NODES or size + added > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(node)
        size += added
    yield batch


def copy_nodes(tree: Tree) -> Iterator[Create]:
    """Yield the nodes that a cluster gets, topics first, with the states of partitions that never changed."""
    nodes = [Create(path, node.data) for path, node in tree.walk() if is_copied(path)]
    yield from sorted(nodes, key=lambda node: not is_of_topics(node.path))
    for name in tree.children(znodes.TOPICS)[0]:
        path = znodes.topic_path(name)
        for index, replicas in znodes.decode_topic(path, tree.get(path)[0]).replicas.items():
            if tree.find(znodes.state_path(name, index)) is None:
                yield Create(znodes.partition_path(name, index), b"")
                state = znodes.encode_state(state_of(new_partition(replicas)))
                yield Create(znodes.state_path(name, index), state)


def is_copied(path: str) -> bool:
    """Whether a cluster gets this node."""
    return path not in NOT_COPIED and not path.startswith(tuple(f"{each}/" for each in WITHOUT_CHILDREN))


def is_of_topics(path: str) -> bool:
    """Whether a node is the one of the topics, above it, or below it."""
    return f"{znodes.TOPICS}/".startswith(f"{path}/") or path.startswith(f"{znodes.TOPICS}/")
