"""A copy of the tree of a simulated ZooKeeper, which is restored later: an operator restores an older backup."""

from __future__ import annotations

from copy import copy

from kafkalite.coordination.tree import NO_SESSION, TreeNode, WatchTable
from kafkalite.testing.fake_zookeeper import FakeZooKeeper


class SavedTree:
    """The tree of a server now, without ephemeral nodes.

    Arguments:
        zookeeper: the server.
    """

    def __init__(self, zookeeper: FakeZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._root = lasting(zookeeper.tree.root)
        self._zxid = zookeeper.tree.zxid

    def restore(self) -> None:
        """Replace the tree. All sessions are unknown from now on, and their connections are reset."""
        zookeeper = self._zookeeper
        tree = zookeeper.tree
        for session in zookeeper.sessions.values():
            if session.timer is not None:
                session.timer.cancel()
            if session.connection is not None:
                session.connection.session = None
                session.connection.transport.abort()
            tree.sessions.pop(session.session_id, None)
        zookeeper.sessions.clear()
        zookeeper.restores += 1
        tree.data_watches, tree.child_watches, tree.fired = WatchTable(), WatchTable(), []
        tree.root, tree.zxid = lasting(self._root), self._zxid


def lasting(node: TreeNode) -> TreeNode:
    """A copy of a node with the nodes below it that are not ephemeral."""
    found = copy(node)
    found.children = {name: lasting(child) for name, child in node.children.items() if child.owner == NO_SESSION}
    return found
