"""Moves logs between the log directories of a broker (AlterReplicaLogDirs), one at a time to each directory.

The others wait in the order of their requests; their future directories exist, so that a start continues with them.

Source: ReplicaManager.alterReplicaLogDirs.
"""

import os
from collections import defaultdict, deque
from collections.abc import Callable

from kafkalite.model import TopicPartition
from kafkalite.storage import checkpoints, names
from kafkalite.storage.log.log import Log
from kafkalite.storage.log_move import relocation
from kafkalite.storage.log_move.log_move import LogMove
from kafkalite.storage.log_move.ports import MovePorts


class LogMover:
    """The moves of a broker.

    Arguments:
        ports: what moves use.
        moves: those that have not ended, by partition; the log manager reads them.

    Attributes:
        moves: those that have not ended, by partition.
    """

    def __init__(self, ports: MovePorts, moves: dict[TopicPartition, LogMove]) -> None:
        self.ports = ports
        self.moves = moves
        self._queues: dict[str, deque[LogMove]] = defaultdict(deque)  # by target; the first one is running

    def begin(self, log: Log, target: str, topic_id: bytes, begun: Callable[[OSError | None], object]) -> None:
        """Move a log that has no move, to an online log directory.

        Arguments:
            topic_id: of its topic.
            begun: called when the future directory exists: from now on a restart continues. With an error the move has
                ended.
        """
        ports = self.ports
        name = names.future_directory_name(log.topic, log.partition, ports.random.bytes(16).hex())
        assert name is not None, "the caller has checked the length of the topic"
        move = LogMove(log, target, os.path.join(target, name), ports, self._ended)
        self.moves[move.key] = move
        ports.logs.reserve(target, 1)

        def created(error: OSError | None) -> None:
            if error is None:
                self._queues[target].append(move)
                self._start(target)
            begun(error)

        move.create(checkpoints.topic_id_text(topic_id), created)

    def _start(self, target: str) -> None:
        queue = self._queues[target]
        if queue:
            queue[0].copy_next()

    def _ended(self, move: LogMove, old_directory: str | None) -> None:
        if self.moves.get(move.key) is move:
            del self.moves[move.key]
        queue = self._queues[move.target]
        if move in queue:
            queue.remove(move)
        if old_directory is None and move.log.root != move.target:
            self.ports.logs.reserve(move.target, -1)
        elif old_directory is not None:
            relocation.remove_old(self.ports, move.log, move.source, old_directory)
            self.ports.partitions.moved(move.log)
        if not self.ports.closed:
            self._start(move.target)

    def cancel(self, key: TopicPartition) -> bool:
        """End the move of a partition and remove its copy; returns False if there is one that cannot be cancelled."""
        move = self.moves.get(key)
        if move is not None:
            move.cancel()
        return key not in self.moves

    def forget(self, log: Log) -> None:
        """End the move of a log that is no longer managed; its copy is not used by any start."""
        move = self.moves.get(TopicPartition(log.topic, log.partition))
        if move is not None and move.log is log:
            move.forget()

    def directory_failed(self, path: str) -> None:
        """End the moves from and to a log directory that is offline."""
        for move in [move for move in self.moves.values() if path in (move.source, move.target)]:
            move.abandon()

    def close(self) -> None:
        """Start no further step: the broker stops. The next start begins again."""
        self.ports.closed = True
