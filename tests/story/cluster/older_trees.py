"""An operator restores a copy of the tree that is some seconds old.

A tree without topics that an administrator has created, or with those that were deleted, breaks what was acknowledged.
So the tree is restored only if it has the same topics and partitions as the current one. What is older are the states
of partitions with their leader epochs, the epoch of the controller, and the assigned producer ids.

A client may have learned a leader epoch that its leader has not: from another broker, in the moment after the election.
No broker then knows that the epoch of an older tree is too low, and the client ignores it, as Java's clients do. So the
tree is restored only while every leader has its present epoch.

A power failure may remove leader epochs from the logs that clients have seen. The kinds of a run with older trees have
no power failures: `LOSSES`.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkalite.cluster.partition.partition import Partition
from kafkalite.coordination import znodes
from kafkalite.coordination.tree import TreeNode
from tests.story.cluster.saved_tree import SavedTree
from tests.story.cluster.world import ClusterWorld

AGES_S = (0.05, 0.3, 1.0, 3.0)


class OlderTrees:
    """The restored trees of one run.

    Arguments:
        world: the cluster.
    """

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._saving = False

    def restore_later(self) -> None:
        """Copy the tree now, and restore it some time later."""
        if not self._saving:
            self._saving = True
            saved, known = SavedTree(self._world.zookeeper), self._known()
            age_s = self._world.random.choice(AGES_S)
            self._world.loop.call_later(age_s, self._restore, saved, known)

    def heal(self) -> None:
        """Restore no tree any more."""
        self._saving = False

    def _restore(self, saved: SavedTree, known: list[str]) -> None:
        if self._saving and known == self._known() and self._leaders_have_their_epochs():
            saved.restore()
            self._world.trace.restored()
            self._world.count("older trees")
        self._saving = False

    def _leaders_have_their_epochs(self) -> bool:
        """Whether every partition has a leader, which leads in the epoch of the tree; no with an invalid node."""
        tree = self._world.zookeeper.tree
        topics = tree.find(znodes.TOPICS)
        keys = [
            (topic, int(index))
            for topic in (topics.children if topics is not None else ())
            if (above := tree.find(f"{znodes.topic_path(topic)}/partitions")) is not None
            for index in above.children
        ]
        try:
            return all(self._leader_has_epoch(*key) for key in keys)
        except znodes.ZnodeError:
            return False

    def _leader_has_epoch(self, topic: str, index: int) -> bool:
        path = znodes.state_path(topic, index)
        node = self._world.zookeeper.tree.find(path)
        if node is None:  # no client knows it
            return True
        state = znodes.decode_state(path, node.data)
        broker = self._world.brokers.get(state.leader)
        if broker is None or not broker.is_running:
            return False
        found = broker.running.replicas.partition(topic, b"", index, by_id=False)
        return isinstance(found, Partition) and found.leader_epoch == state.leader_epoch

    def _known(self) -> list[str]:
        """The paths of topics, partitions and deletions, and the assignments."""
        tree = self._world.zookeeper.tree
        found = []
        for path in (znodes.TOPICS, znodes.DELETE_TOPICS):
            node = tree.find(path)
            if node is not None:
                found += below(node, path, path)
        return found


def below(node: TreeNode, path: str, top: str) -> Iterator[str]:
    """The paths below a node; with the contents of its children if it is the top."""
    for name, child in sorted(node.children.items()):
        yield f"{path}/{name} {child.data!r}" if path == top else f"{path}/{name}"
        yield from below(child, f"{path}/{name}", top)
