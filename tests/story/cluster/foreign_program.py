"""A foreign program that writes invalid nodes to the tree of a simulated cluster."""

from __future__ import annotations

from kafkalite.coordination import znodes
from kafkalite.coordination.errors import NoNodeError
from kafkalite.coordination.tree import Create, Delete, Set, Tree
from kafkalite.coordination.znodes.controller import CONTROLLER
from kafkalite.testing.simulated_cluster import SimulatedCluster
from tests.kit.znode_fields import TOPIC, cases, nodes

# `/controller` is a lock, its data is not read; without a valid `/controller_epoch`, the fence, none is elected.
FENCES = (CONTROLLER,)
VALID = ("rack missing", "rack = 'None'")  # while some brokers have no rack, topics are refused, as in Kafka
CASES = [case for node in nodes() if node.path not in FENCES for case in cases(node) if case.field not in VALID]
FOREIGN = (
    (f"{znodes.TOPICS}/bad name", b'{"version":3,"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"0":[1]}}'),
    (f"{znodes.DELETE_TOPICS}/bad name", b""),
    (f"{znodes.TOPICS}/no-id", b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAA","partitions":{"0":[1]}}'),
    (f"{znodes.TOPICS}/far", b'{"version":1,"partitions":{"200000":[1]}}'),
    (f"{znodes.TOPICS}/wide", b'{"version":1,"partitions":{"0":[99999999999]}}'),
    (f"{znodes.BROKER_IDS}/7", b'{"version":5,"endpoints":[]}'),
    (f"{znodes.BROKER_IDS}/9999999999", b'{"version":5,"endpoints":["PLAINTEXT://h:1"],"rack":"rack"}'),
)
FOREIGN_TOPICS = frozenset({TOPIC, "bad name", "no-id", "far", "wide"})


class ForeignProgram:
    """A client of the tree that writes what it likes.

    Arguments:
        cluster: with the tree.

    Attributes:
        session_id: of its session.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._zookeeper = cluster.zookeeper
        self.session_id = cluster.zookeeper.tree.open_session()

    @property
    def tree(self) -> Tree:
        return self._zookeeper.tree

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a node, and those above it."""
        above = [each for each in znodes.parents(path) if self.tree.find(each) is None]
        last = Create(path, data) if self.tree.find(path) is None else Set(path, data)
        self._apply(*map(Create, above), last)

    def delete(self, path: str) -> None:
        """Delete a node, and those below it."""
        try:
            names, _ = self.tree.children(path)
        except NoNodeError:
            return
        for name in names:
            self.delete(f"{path}/{name}")
        self._apply(Delete(path))

    def depose(self) -> None:
        """Have another controller elected."""
        self.delete(CONTROLLER)

    def _apply(self, *operations: Create | Set | Delete) -> None:
        self.tree.multi(list(operations), self.session_id, self._zookeeper.clock.wall_ms())
        self._zookeeper.fire()
