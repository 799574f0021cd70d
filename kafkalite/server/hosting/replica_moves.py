"""Moves partitions between the log directories of this broker: what AlterReplicaLogDirs asks for, and the hosted
partitions of `storage/log_move`.

1. A partition without files is created later in the requested directory; the client repeats the request.
2. A request for the current directory cancels the move, one for a third directory begins another move.
3. Moves that a stop or a crash has interrupted begin again at the start.

Source: ReplicaManager.alterReplicaLogDirs.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.replicas import Replicas
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.server.hosting.partition_hosting import PartitionHosting
from kafkalite.storage import names
from kafkalite.storage.log.log import Log
from kafkalite.storage.manager import LogManager

if TYPE_CHECKING:
    from kafkalite.storage.log_move.log_mover import LogMover

LOGGER = logging.getLogger("kafkalite.server")
STORAGE_ERROR = KafkaErrorCode.KAFKA_STORAGE_ERROR
NOT_AVAILABLE = KafkaErrorCode.REPLICA_NOT_AVAILABLE  # clients repeat the request
ANY_UNIQUE = "0" * 32

Done = Callable[[int], object]


class ReplicaMoves:
    """The moves of a broker's partitions.

    Arguments:
        replicas: the hosted partitions.
        logs: the log directories.
        hosting: records the directory of a partition that was moved.
    """

    def __init__(self, replicas: Replicas, logs: LogManager, hosting: PartitionHosting) -> None:
        self._replicas = replicas
        self._logs = logs
        self._hosting = hosting
        self._paused: dict[Log, Partition] = {}  # also where the topic was deleted meanwhile

    @property
    def _mover(self) -> "LogMover":
        """The moves of the logs, which pause the appends of this broker's partitions."""
        mover = self._logs.mover  # created, and imported, with the first move
        mover.ports.partitions = self
        return mover

    # Requests.

    def move(self, key: TopicPartition, path: str, done: Done) -> None:
        """Move a partition to a log directory.

        Arguments:
            key: the partition.
            path: of the log directory, as in DescribeLogDirs.
            done: called once with a Kafka error code; 0: it is there, or the move has begun, and a restart continues.
        """
        error = self._refusal(key, path)
        if error:
            done(error)
            return
        partition = self._replicas.partition(key.topic, b"", key.partition, by_id=False)
        if isinstance(partition, KafkaErrorCode):
            self._logs.prefer(key, path)
            done(partition if partition == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION else NOT_AVAILABLE)
        elif partition.defect:
            done(STORAGE_ERROR)
        elif partition.log is not None:
            self._move_log(partition, partition.log, path, done)
        elif key not in self._logs.created:
            self._logs.prefer(key, path)
            done(NOT_AVAILABLE)
        elif self._logs.created[key] == path:
            done(0)
        else:
            self._open_and_move(partition, path, done)

    def _refusal(self, key: TopicPartition, path: str) -> int:
        """The error of a request that names no usable directory or partition, else 0."""
        if names.future_directory_name(*key, ANY_UNIQUE) is None:
            return KafkaErrorCode.INVALID_TOPIC_EXCEPTION
        if path not in self._logs.directories():
            return KafkaErrorCode.LOG_DIR_NOT_FOUND
        return 0 if self._logs.is_online(path) else STORAGE_ERROR

    def _open_and_move(self, partition: Partition, path: str, done: Done) -> None:
        """Move a partition whose empty log was not opened yet."""

        def opened(error: int) -> None:
            if error or partition.log is None:
                done(NOT_AVAILABLE)
            else:
                self._move_log(partition, partition.log, path, done)

        partition.open(opened)

    def _move_log(self, partition: Partition, log: Log, path: str, done: Done) -> None:
        key = TopicPartition(log.topic, log.partition)
        current = self._logs.moves.get(key)
        if current is not None and current.target == path:
            done(0)
        elif current is not None and not self._mover.cancel(key):
            done(NOT_AVAILABLE)
        elif log.root == path:
            done(0)
        else:
            self._begin(partition, log, path, done)

    def _begin(self, partition: Partition, log: Log, path: str, done: Done) -> None:
        LOGGER.info("%s-%d: moving from %s to %s", log.topic, log.partition, log.root, path)
        self._mover.begin(log, path, partition.topic_id, lambda error: done(0 if error is None else STORAGE_ERROR))

    def begin_again(self) -> None:
        """Begin the moves that the start has found interrupted."""
        interrupted, self._logs.interrupted = self._logs.interrupted, []
        for key, path in interrupted:
            log = self._logs.find(*key)
            topic_id = self._logs.topic_ids.get(key)
            if log is None or topic_id is None:  # without a record; or its files cannot be used
                LOGGER.warning("%s: the move to %s was interrupted and is not repeated; repeat the request", key, path)
                continue
            self._mover.begin(log, path, topic_id, lambda _error: None)

    # The partitions of `storage/log_move`.

    def pause(self, log: Log, paused: Callable[[], object]) -> None:
        """Let appends to a log wait; `paused` is called when none is in progress or unwritten."""
        partition = self._partition(log)
        if partition is None:  # `Partition.adopt` lets its appends wait
            paused()
        else:
            self._paused[log] = partition
            self._hosting.stop_fetching(partition)
            partition.pause(paused)

    def resume(self, log: Log) -> None:
        """Continue with the appends that wait."""
        partition = self._paused.pop(log, None) or self._partition(log)
        if partition is not None:
            partition.resume()
            self._hosting.continue_fetching(partition)

    def moved(self, log: Log) -> None:
        """Record the new directory."""
        partition = self._partition(log)

        def noted(error: int) -> None:
            if error and partition is not None and not partition.defect:
                text = "%s-%d: its log directory cannot be recorded: error %d"
                LOGGER.error(text, log.topic, log.partition, error)

        if partition is not None:
            self._hosting.note_directory(partition, self._logs.directory_id(log.root), noted)

    def _partition(self, log: Log) -> Partition | None:
        found = self._replicas.partition(log.topic, b"", log.partition, by_id=False)
        return found if isinstance(found, Partition) and found.log is log else None
