"""Groups of ZooKeeper-era consumers in the tree of a test server, written as a consumer writes them."""

from collections.abc import Callable, Mapping
from typing import Any

from kafkalite.coordination import znodes
from kafkalite.coordination.tree import ANY_VERSION, Create, Delete, Operation, Set
from kafkalite.coordination.znodes import consumers
from kafkalite.coordination.znodes.consumers import Registration, StreamId
from kafkalite.testing.fake_zookeeper import FakeZooKeeper

Call = Callable[[Callable[[FakeZooKeeper], Any]], Any]


class GroupNodes:
    """Writes the nodes of groups.

    Arguments:
        call: calls a function with the server in its thread: `ZooKeeperThread.call`.
        chroot: of the cluster.
    """

    def __init__(self, call: Call, chroot: str = "") -> None:
        self._call = call
        self._chroot = chroot

    def session(self) -> int:
        """A new session; its ephemeral nodes are those of a consumer."""
        session: int = self._call(lambda server: server.tree.open_session())
        return session

    def end(self, session: int) -> None:
        """End a session, with its ephemeral nodes."""
        self._call(lambda server: server.tree.close_session(session))

    def write(self, below: str, data: bytes = b"", session: int = 0) -> None:
        """Create a node and those above it, or replace its data; an ephemeral node of `session`, if there is one."""

        def apply(server: FakeZooKeeper) -> None:
            tree = server.tree
            writer = session or tree.open_session()
            path = self._chroot + below
            for above in znodes.parents(path):
                if tree.exists(above) is None:
                    tree.multi([Create(above)], writer, 0)
            exists = tree.exists(path) is not None
            change: Operation = Set(path, data, ANY_VERSION) if exists else Create(path, data, ephemeral=bool(session))
            tree.multi([change], writer, 0)

        self._call(apply)

    def read(self, path: str) -> bytes | None:
        """The data of a node; None if it does not exist."""
        path = self._chroot + path
        data: bytes | None = self._call(lambda server: server.tree.get(path)[0] if server.tree.exists(path) else None)
        return data

    def delete(self, path: str) -> None:
        """Delete a node without children."""
        operations = [Delete(self._chroot + path)]
        self._call(lambda server: server.tree.multi(operations, server.tree.open_session(), 0))

    def children(self, path: str) -> list[str]:
        """The names below a node."""
        names: list[str] = self._call(lambda server: server.tree.children(self._chroot + path)[0])
        return names

    def topic(self, name: str, partitions: int) -> None:
        """A topic of the cluster, for commands without brokers."""
        node = znodes.TopicNode(None, dict.fromkeys(range(partitions), (1,)))
        self.write(znodes.topic_path(name), znodes.encode_topic(node))

    def register(self, group: str, consumer_id: str, registration: Registration) -> int:
        """Register a consumer; returns its session."""
        session = self.session()
        data = consumers.encode_registration(registration)
        self.write(consumers.id_path(group, consumer_id), data, session)
        return session

    def own(self, group: str, topic: str, partition: int, stream: StreamId, session: int) -> None:
        """Let a stream own a partition."""
        self.write(consumers.owner_path(group, topic, partition), consumers.encode_owner(stream), session)

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Write the offsets of a topic."""
        for partition, offset in offsets.items():
            self.write(consumers.offset_path(group, topic, partition), consumers.encode_offset(offset))
