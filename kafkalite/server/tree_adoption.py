"""Writes the embedded tree of a broker that was alone into an empty coordination service: it becomes a cluster's.

1. The tree is copied node by node, those above first, and `/cluster/id` last: until then no broker uses the tree, and
   an interrupted adoption is continued by the same call. A node with other data is not replaced.
2. Then the journal is renamed, so that the broker starts only in the cluster. Nothing is deleted.
3. Not copied: the log directories of partitions, which only the embedded tree records; notifications and deleted
   topics, whose readers are gone; `/brokers/seqid`, whose versions are ids that brokers have generated.
4. The embedded tree has no state of a partition that never changed. Its state is written here, so that the controller
   does not take the partition for a new one, which is created empty if a log directory is offline.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk
from kafkalite.callbacks import gather
from kafkalite.clock import Clock, Outcome, completed
from kafkalite.cluster.image import new_partition
from kafkalite.cluster.metadata_store import state_of
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination, Then
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.errors import NoNodeError
from kafkalite.coordination.tree import Create, Tree
from kafkalite.server.resources import JOURNAL

ADOPTED_SUFFIX = ".adopted"
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
    """

    cluster_id: str
    topics: int
    written: int


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
        self._journal = os.path.join(data, JOURNAL)
        self._target = target

    async def run(self) -> AdoptedTree:
        """Write the tree. Raises TreeAdoptionError, CoordinationError, JournalError, ZnodeError, OSError."""
        check_journal(self._disk, self._data)
        service = EmbeddedCoordination.open(self._disk, self._journal, self._clock)
        try:
            result = await self._write(service.tree)
        finally:
            service.close()
        self._disk.rename(self._journal, self._journal + ADOPTED_SUFFIX)
        self._disk.sync_dir(self._data)
        return result

    async def _write(self, tree: Tree) -> AdoptedTree:
        identity, _ = tree.get(znodes.CLUSTER_ID)
        cluster_id, topics = znodes.decode_cluster_id(identity), tree.children(znodes.TOPICS)[0]
        if await self._is_complete(cluster_id):
            return AdoptedTree(cluster_id, len(topics), 0)
        await self._check_children(znodes.BROKER_IDS, [], "brokers")
        await self._check_children(znodes.TOPICS, topics, "other topics")
        written = 0
        for batch in [*batches(tree), [Create(znodes.CLUSTER_ID, identity)]]:
            missing = await self._missing(batch)
            if missing:
                (await completed(partial(self._target.multi, missing))).result()
                written += len(missing)
        return AdoptedTree(cluster_id, len(topics), written)

    async def _is_complete(self, cluster_id: str) -> bool:
        """Whether an earlier call has written everything. Raises TreeAdoptionError: the tree is another cluster's."""
        outcome = await completed(partial(self._target.get, znodes.CLUSTER_ID))
        if isinstance(outcome.error, NoNodeError):
            return False
        found = znodes.decode_cluster_id(outcome.result()[0])
        if found != cluster_id:
            raise TreeAdoptionError(f"the tree belongs to cluster {found}, {self._data} to {cluster_id}; {CHOOSE}")
        return True

    async def _check_children(self, path: str, allowed: list[str], what: str) -> None:
        """Raise TreeAdoptionError if a node has children that are not allowed."""
        outcome = await completed(partial(self._target.children, path))
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
        for node, outcome in zip(batch, (await completed(read)).result(), strict=True):
            if isinstance(outcome.error, NoNodeError):
                missing.append(node)
            elif outcome.result()[0] != node.data:
                raise TreeAdoptionError(f"the tree has another {node.path}; {CHOOSE}")
        return missing

    def _reader(self, path: str) -> Callable[[Then], object]:
        return lambda then: self._target.get(path, then)


def check_journal(disk: Disk, data: str) -> None:
    """Raise TreeAdoptionError: a log directory has no journal."""
    if not disk.exists(os.path.join(data, JOURNAL)):
        raise TreeAdoptionError(f"{data}: has no {JOURNAL}: it is not the log directory of a broker alone")


def batches(tree: Tree) -> Iterator[list[Create]]:
    """Yield the nodes that a cluster gets, in transactions that ZooKeeper accepts; parents come first."""
    batch: list[Create] = []
    size = 0
    for node in copied(tree):
        added = len(node.path) + len(node.data)
        if batch and (len(batch) == BATCH_NODES or size + added > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(node)
        size += added
    yield batch


def copied(tree: Tree) -> Iterator[Create]:
    """Yield the nodes that a cluster gets, with the states of partitions that never changed."""
    for path, node in tree.walk():
        if path not in NOT_COPIED and not path.startswith(tuple(f"{each}/" for each in WITHOUT_CHILDREN)):
            yield Create(path, node.data)
    for name in tree.children(znodes.TOPICS)[0]:
        path = znodes.topic_path(name)
        for index, replicas in znodes.decode_topic(path, tree.get(path)[0]).replicas.items():
            if tree.find(znodes.state_path(name, index)) is None:
                yield Create(znodes.partition_path(name, index), b"")
                state = znodes.encode_state(state_of(new_partition(replicas)))
                yield Create(znodes.state_path(name, index), state)
