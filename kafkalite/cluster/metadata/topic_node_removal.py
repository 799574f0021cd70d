"""Deletes the znodes of deleted topics, in several transactions, after the deletion was recorded.

One transaction for 10,000 partitions would block the loop for 300 ms, and ZooKeeper accepts at most 1 MB.

1. A topic whose deletion is recorded does not exist, even if it has znodes left. Before that, all its znodes exist.
2. The record begins to expire when the znodes are deleted. The next start deletes those that are left.
3. The znodes of the topic itself are deleted last. A topic of the same name is created after that.
4. After a failed transaction (a full disk), the other znodes stay until a topic of this name is created, or until the
   next start.
"""

import logging
from collections.abc import Callable
from itertools import islice

from kafkalite.clock import Clock, Outcome, Then
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.tree import Operation

LOGGER = logging.getLogger("kafkalite.cluster")
PARTITIONS_AT_ONCE = 200  # of one transaction: some 3 ms on the loop

Ended = Then


class DeletedTopicNodes:
    """The remaining znodes of one deleted topic.

    Arguments:
        name, topic_id: of the topic.
        stated: the partitions with a state znode; deleted ones are removed from it.
        noted: the log directory of each partition with a directory znode; deleted ones are removed from it.
    """

    def __init__(self, name: str, topic_id: bytes, stated: set[int], noted: dict[int, str]) -> None:
        self.name = name
        self.topic_id = topic_id
        self._stated = stated
        self._noted = noted
        self.waiting: list[Ended] = []
        self.busy = False

    @property
    def few(self) -> bool:
        """Whether one transaction deletes all nodes."""
        return len(self._stated) + len(self._noted) <= PARTITIONS_AT_ONCE

    def operations(self) -> tuple[list[Operation], Callable[[], None]]:
        """The next transaction, and a function to call when it is durable."""
        stated = list(islice(self._stated, PARTITIONS_AT_ONCE))
        noted = list(islice(self._noted, PARTITIONS_AT_ONCE - len(stated)))
        operations = [*znodes.delete_states(self.name, stated), *znodes.delete_notes(self.topic_id, noted)]
        if self.few:
            operations += znodes.delete_empty_topic(self.name, self.topic_id)

        def gone() -> None:
            self._stated.difference_update(stated)
            for partition in noted:
                self._noted.pop(partition, None)

        return operations, gone


class TopicNodeRemover:
    """Deletes the nodes of topics whose deletion is recorded.

    Arguments:
        session: of the coordination service.
        clock: starts each transaction in a separate loop iteration.
        gone: called when all znodes of a topic are deleted.
    """

    def __init__(self, session: Coordination, clock: Clock, gone: Callable[[DeletedTopicNodes], object]) -> None:
        self._session = session
        self._clock = clock
        self._gone = gone
        self._remains: dict[str, DeletedTopicNodes] = {}
        self._ids: set[bytes] = set()

    def __contains__(self, topic_id: bytes) -> bool:
        """Whether the topic of this id is deleted, but has znodes left."""
        return topic_id in self._ids

    def add(self, deleted_nodes: DeletedTopicNodes) -> None:
        """Add a topic whose deletion is recorded."""
        self._remains[deleted_nodes.name] = deleted_nodes
        self._ids.add(deleted_nodes.topic_id)

    def begin(self) -> None:
        """Delete the nodes of all topics, in the background."""
        for deleted_nodes in list(self._remains.values()):
            self._begin(deleted_nodes)

    def when_gone(self, name: str, then: Ended) -> None:
        """Call `then` when an earlier topic of this name has no znodes left, or with the error of their deletion."""
        deleted_nodes = self._remains.get(name)
        if deleted_nodes is None:
            then(Outcome())
        else:
            deleted_nodes.waiting.append(then)
            self._begin(deleted_nodes)

    def _begin(self, deleted_nodes: DeletedTopicNodes) -> None:
        if not deleted_nodes.busy:
            deleted_nodes.busy = True
            self._clock.call_at(self._clock.monotonic(), lambda: self._delete(deleted_nodes))

    def _delete(self, deleted_nodes: DeletedTopicNodes) -> None:
        """Run the next transaction."""
        last = deleted_nodes.few
        operations, gone = deleted_nodes.operations()

        def deleted(outcome: Outcome) -> None:
            deleted_nodes.busy = False
            if outcome.error is None:
                gone()
            if outcome.error is None and not last:
                self._begin(deleted_nodes)
            else:
                self._end(deleted_nodes, outcome)

        self._session.multi(operations, deleted)

    def _end(self, deleted_nodes: DeletedTopicNodes, outcome: Outcome) -> None:
        if outcome.error is None:
            del self._remains[deleted_nodes.name]
            self._ids.discard(deleted_nodes.topic_id)
            self._gone(deleted_nodes)
        else:
            LOGGER.warning(
                "deleted topic %s: the next start deletes its remaining nodes: %s", deleted_nodes.name, outcome.error
            )
        waiting, deleted_nodes.waiting = deleted_nodes.waiting, []
        for then in waiting:
            then(Outcome(error=outcome.error))
