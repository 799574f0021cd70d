"""Every change of the tree of a simulated cluster: its digest, and that one controller writes in each epoch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from kafkalite.coordination.errors import CoordinationError
from kafkalite.coordination.tree import Check, Create, Delete, Operation, Set, Tree
from kafkalite.coordination.znodes import decode_state
from kafkalite.coordination.znodes.controller import CONTROLLER_EPOCH, decode_controller_epoch

PARTITIONS = re.compile(r"/brokers/topics/[^/]+/partitions(/.+)?")
TOPIC = re.compile(r"/(brokers/topics|admin/delete_topics)/[^/]+")


class Trace:
    """Observes the transactions of a tree.

    Arguments:
        tree: the tree.

    Attributes:
        winners: the session that has won each controller epoch.
        won: called at the end of each election.
        foreign: the sessions of programs that are no brokers.
        violations: what must not happen, in order.
        writes: number of transactions that only a controller writes: nodes of partitions, deletions of topics.
        fenced, rejected: number of transactions of controllers of earlier epochs, and of others that were refused
            because a node has changed.
    """

    def __init__(self, tree: Tree) -> None:
        self.winners: dict[int, int] = {}
        self.won: list[Callable[[], object]] = []
        self.foreign: set[int] = set()
        self.violations: list[str] = []
        self.writes = self.fenced = self.rejected = 0
        self._tree = tree
        self._digest = hashlib.sha256()
        self._multi = tree.multi
        tree.multi = self._observed  # type: ignore[method-assign]

    @property
    def digest(self) -> str:
        """Of all changes until now."""
        return self._digest.hexdigest()

    def restored(self) -> None:
        """An older tree was restored: the controller epochs after its own are won again."""
        node = self._tree.find(CONTROLLER_EPOCH)
        last = -1 if node is None else decode_controller_epoch(node.data)
        self.winners = {epoch: session_id for epoch, session_id in self.winners.items() if epoch <= last}

    def _observed(self, operations: Sequence[Operation], session_id: int, now_ms: int) -> Any:
        raised = raises_epoch(self._tree, operations)
        try:
            results = self._multi(operations, session_id, now_ms)
        except CoordinationError as error:
            self._refused(operations[0], error.at)
            raise
        self._digest.update(repr((now_ms, session_id, operations)).encode())
        for operation in operations:
            if isinstance(operation, Create | Set) and operation.path == CONTROLLER_EPOCH:
                self._won(decode_controller_epoch(operation.data), session_id)
        if not raised and session_id not in self.foreign and any(map(of_controller, operations)):
            self._written(session_id)
        return results

    def _refused(self, first: Operation, at: int) -> None:
        if isinstance(first, Check) and first.path == CONTROLLER_EPOCH:
            self.fenced += at == 0
            self.rejected += at > 0

    def _won(self, epoch: int, session_id: int) -> None:
        if epoch <= max(self.winners, default=-1):
            self.violations.append(f"controller epoch {epoch} is won again, by session {session_id}")
        self.winners[epoch] = session_id
        for call in list(self.won):
            call()

    def _written(self, session_id: int) -> None:
        self.writes += 1
        epoch = max(self.winners)
        winner = self.winners[epoch]
        if winner != session_id:
            self.violations.append(f"session {session_id} writes in epoch {epoch}, which session {winner} has won")


def raises_epoch(tree: Tree, operations: Sequence[Operation]) -> bool:
    """Whether a broker raises the leader epoch of a partition to the last one of its log, and changes nothing else."""
    if len(operations) != 1 or not isinstance(operations[0], Set) or not PARTITIONS.fullmatch(operations[0].path):
        return False
    path = operations[0].path
    node = tree.find(path)
    if node is None:
        return False
    before, after = decode_state(path, node.data), decode_state(path, operations[0].data)
    return before.leader_epoch < after.leader_epoch and before == after._replace(leader_epoch=before.leader_epoch)


def of_controller(operation: Operation) -> bool:
    """Whether only a controller makes this change."""
    if isinstance(operation, Delete) and TOPIC.fullmatch(operation.path):
        return True
    return not isinstance(operation, Check) and PARTITIONS.fullmatch(operation.path) is not None
