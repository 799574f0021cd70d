"""Creates the files of new partitions: in batches, in the background after the topic, at the latest at the first
append.

Invariants:
1. One batch per log directory is in progress at a time. Partitions with a waiting append come first, all that have
   gathered meanwhile, and half as many others, to which the client may append next. Without a waiting append,
   partitions are created in small batches with pauses, so that they do not keep the disk busy.
2. A partition is opened when its files are on the disk and its log directory is recorded: one transaction per 256
   partitions. A crash before leaves any part of the files, and no partition that is offline: a start creates the files
   of an unrecorded partition again.
3. A created partition has no open file until its first append (`LogManager.created`).
   If it cannot be opened for any reason, the waiting appends fail with KAFKA_STORAGE_ERROR, which producers repeat.
4. While files of a partition name are being created, those of a later topic of the same name wait.
5. After an exception in a step it is unknown what the disk and the tree have. The partition is offline then, until the
   next start reads both: no file is removed, and none is created again.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Protocol

from kafkalite.callbacks import call_each
from kafkalite.clock import Clock, Outcome, Timer
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.slicing import Slicer
from kafkalite.storage.log.log import Log
from kafkalite.storage.log_creation import NewPartition
from kafkalite.storage.manager import LogManager

LOGGER = logging.getLogger("kafkalite.server")
BATCH = 1_024  # partitions with a waiting append per batch: their files are synced together
NOTED = 256  # partitions per transaction: more keep the loop longer than 10 ms
BACKGROUND_BATCH = 32
BACKGROUND_S = 0.04  # seconds without a batch before one in the background: at most 800 partitions per second

Opened = Callable[[Log | int], None]


class DirectoryRecords(Protocol):
    """Records the log directories of partitions.

    Attributes:
        keeps: whether the records are kept, so that an unrecorded partition is created again.
    """

    keeps: bool

    def note_directories(
        self, partitions: Iterable[tuple[bytes, int]], directory: str, then: Callable[[int], None]
    ) -> None:
        """Record a log directory for all of these partitions or none.

        Arguments:
            partitions: topic id and index of each.
            directory: id of the log directory.
            then: called with a Kafka error code, 0 when the record is durable.
        """


class CreationQueue:
    """The partitions that are to be created in one log directory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.urgent: deque[Partition] = deque()
        self.background: deque[Partition] = deque()
        self.busy = False
        self.begins_soon = False
        self.not_before = 0.0  # monotonic seconds, of the next batch in the background
        self.timer: Timer | None = None


class PartitionCreator:
    """Creates the files of partitions, and opens created ones at their first append.

    Arguments:
        clock: for the pauses in the background.
        slicer: opens logs within the time budget of a loop iteration.
        logs: the log directories.
        notes: records the directory of each partition.
    """

    def __init__(self, clock: Clock, slicer: Slicer, logs: LogManager, notes: DirectoryRecords) -> None:
        self._clock = clock
        self._slicer = slicer
        self._logs = logs
        self._notes = notes
        self._queues: dict[str, CreationQueue] = {}
        self._queued: dict[Partition, CreationQueue] = {}
        self._opened: dict[Partition, Opened] = {}  # with a waiting append
        self._in_progress: dict[TopicPartition, Partition] = {}  # files or records
        self._closed = False
        self._log = RateLimitedLog(LOGGER, clock)

    def add(self, partition: Partition) -> None:
        """Create the files of a partition in the background, unless an append has already created them."""
        key = TopicPartition(partition.topic, partition.index)
        created = key in self._logs.created and key not in self._in_progress
        if created or partition.log is not None or partition in self._queued or self._in_progress.get(key) is partition:
            return
        queue = self._enqueue(partition)
        if queue is not None:
            queue.background.append(partition)
            queue.not_before = queue.not_before or self._clock.monotonic() + BACKGROUND_S
            self._begin_soon(queue)  # the caller sets the leader epoch, with which the files begin

    def open(self, partition: Partition, opened: Opened) -> None:
        """Open the log of a partition; its files are created next if there are none.

        Arguments:
            partition: to open.
            opened: called once, with the log or with a Kafka error code.
        """
        if partition.defect:
            opened(partition.defect)
            return
        self._opened[partition] = opened
        key = TopicPartition(partition.topic, partition.index)
        if self._in_progress.get(key) is partition:
            return
        if key in self._logs.created and key not in self._in_progress:
            self._open_later(partition)
            return
        queue = self._queued.get(partition) or self._enqueue(partition)
        if queue is None:
            self._end(partition, KafkaErrorCode.KAFKA_STORAGE_ERROR)
        else:
            queue.urgent.append(partition)
            self._begin_soon(queue)

    def drop(self, partition: Partition) -> bool:
        """Forget a partition without a log whose topic was deleted; returns whether its files are deleted here."""
        key = TopicPartition(partition.topic, partition.index)
        if self._in_progress.get(key) is partition:
            return True  # at the end of its creation
        queue = self._queued.pop(partition, None)
        if queue is not None:
            self._logs.reserve(queue.path, -1)
        if key in self._logs.created and key not in self._in_progress:
            self._logs.delete_created(*key, partition.config.file_delete_delay_ms)
        elif partition not in self._opened:
            return False
        self._end(partition, partition.error)
        return True

    def close(self) -> None:
        """Start no further batch."""
        self._closed = True
        for queue in self._queues.values():
            if queue.timer is not None:
                queue.timer.cancel()

    # Batches.

    def _enqueue(self, partition: Partition) -> CreationQueue | None:
        """Choose the log directory of a partition; None where all are offline."""
        path = self._logs.take_directory(TopicPartition(partition.topic, partition.index))
        if path is None:
            return None
        self._logs.reserve(path, 1)
        queue = self._queues.setdefault(path, CreationQueue(path))
        self._queued[partition] = queue
        return queue

    def _begin_soon(self, queue: CreationQueue) -> None:
        """Start the next batch in the next loop iteration: with all appends of this one."""

        def begin() -> None:
            queue.begins_soon = False
            self._begin(queue)

        if not (queue.busy or queue.begins_soon):
            self._clock.call_at(self._clock.monotonic(), begin)
            queue.begins_soon = True

    def _begin(self, queue: CreationQueue) -> None:
        """Start the next batch of a log directory, if there is one."""
        if queue.busy or self._closed:
            return
        try:
            self._begin_batch(queue)
        except Exception:
            if not queue.busy:  # the waiting appends of this directory are sent again, and try again
                lost = [each for each in self._opened if not self._is_in_progress(each, queue)]
                call_each(lambda partition: self._end(partition, KafkaErrorCode.KAFKA_STORAGE_ERROR), lost)
            raise

    def _is_in_progress(self, partition: Partition, without: CreationQueue) -> bool:
        """Whether a partition with a waiting append is queued in another log directory, or has files."""
        key = TopicPartition(partition.topic, partition.index)
        return self._queued.get(partition, without) is not without or key in self._logs.created

    def _begin_batch(self, queue: CreationQueue) -> None:
        now = self._clock.monotonic()
        batch = self._take(queue, queue.urgent, BATCH)
        if batch:  # the next ones in the background come with it: the client may append to them next
            batch += self._take(queue, queue.background, min((len(batch) + 1) // 2, BATCH - len(batch)))
        elif queue.background and now < queue.not_before:
            self._wake(queue)
        else:
            batch = self._take(queue, queue.background, BACKGROUND_BATCH)
        if not batch:
            return
        queue.busy = True
        try:
            for partition in batch:
                self._in_progress[TopicPartition(partition.topic, partition.index)] = partition
            wanted = [
                NewPartition(partition.topic, partition.index, partition.topic_id, partition.first_epoch)
                for partition in batch
            ]
            created = partial(self._created, queue, batch)
            self._logs.create(queue.path, wanted, created, recorded=self._notes.keeps)
        except Exception:
            self._created(queue, batch, Outcome(value={}, error=OSError("the job could not begin")))
            raise

    def _take(self, queue: CreationQueue, waiting: deque[Partition], count: int) -> list[Partition]:
        """Take up to `count` partitions that are still to be created; one whose name is in progress goes to the end."""
        batch: list[Partition] = []
        for _ in range(len(waiting)):
            if len(batch) == count:
                break
            partition = waiting.popleft()
            if self._queued.get(partition) is not queue:
                continue  # taken from the other deque, or dropped
            if (partition.topic, partition.index) in self._in_progress:
                waiting.append(partition)
            else:
                del self._queued[partition]
                batch.append(partition)
        return batch

    def _wake(self, queue: CreationQueue) -> None:
        def fire() -> None:
            queue.timer = None
            self._begin(queue)

        if queue.timer is None:
            queue.timer = self._clock.call_at(queue.not_before, fire)

    def _created(self, queue: CreationQueue, batch: Sequence[Partition], outcome: Outcome) -> None:
        try:
            self._run(batch, partial(self._record_created, queue, batch, outcome))
        finally:
            self._begin(queue)

    def _record_created(self, queue: CreationQueue, batch: Sequence[Partition], outcome: Outcome) -> None:
        """Record a batch whose files are on the disk, and fail partitions that could not be created."""
        queue.busy = False
        queue.not_before = self._clock.monotonic() + BACKGROUND_S
        self._logs.reserve(queue.path, -len(batch))
        failures = {} if outcome.error is not None else outcome.value
        made = []
        for partition in batch:
            error = outcome.error or failures.get(TopicPartition(partition.topic, partition.index))
            if error is None:
                made.append(partition)
            else:
                self._failed(queue.path, partition, error)
        self._note_in_parts(queue, made)
        if outcome.error is not None and not isinstance(outcome.error, OSError):
            raise outcome.error

    def _failed(self, path: str, partition: Partition, error: BaseException) -> None:
        # On a full disk this happens for each partition: one line a minute for each directory and error number.
        site = f"create {path} {getattr(error, 'errno', None)}"
        text = "%s-%d: cannot create the files: %s"
        self._log(logging.ERROR, site, text, partition.topic, partition.index, error)
        if isinstance(error, OSError) and not isinstance(error, FileExistsError):  # the disk is sound then
            self._logs.report_disk_error(path, error)
        self._leave(partition)
        self._end(partition, KafkaErrorCode.KAFKA_STORAGE_ERROR)

    # Recording them.

    def _note_in_parts(self, queue: CreationQueue, made: Sequence[Partition]) -> None:
        """Record the first created partitions, and the others in the next loop iterations."""
        if len(made) > NOTED:
            self._clock.call_at(self._clock.monotonic(), partial(self._note_in_parts, queue, made[NOTED:]))
        self._run(made[:NOTED], partial(self._note, queue, made[:NOTED]))

    def _note(self, queue: CreationQueue, made: Sequence[Partition]) -> None:
        """Record the directory of all created partitions; those whose topic was deleted meanwhile are removed."""
        live = [partition for partition in made if not partition.defect]
        call_each(lambda partition: self._noted(partition, 0), [one for one in made if one.defect])
        if not live:
            return

        def noted(error: int) -> None:
            if error == KafkaErrorCode.UNKNOWN_SERVER_ERROR:  # it is unknown whether the tree has the records
                call_each(self._take_offline, live)
            elif error and len(live) > 1:  # one topic was deleted, or all: each by itself shows which
                call_each(lambda partition: self._run([partition], partial(self._note, queue, [partition])), live)
            else:
                call_each(lambda partition: self._noted(partition, error), live)

        topic_partitions = [(partition.topic_id, partition.index) for partition in live]
        directory = self._logs.directory_id(queue.path)
        self._notes.note_directories(topic_partitions, directory, lambda error: self._run(live, partial(noted, error)))

    def _noted(self, partition: Partition, error: int) -> None:
        self._run([partition], partial(self._end_creation, partition, error))
        call_each(self._begin, list(self._queues.values()))  # a partition of the same name may wait

    def _end_creation(self, partition: Partition, error: int) -> None:
        if self._in_progress.get(TopicPartition(partition.topic, partition.index)) is not partition:
            return  # an exception has taken it offline meanwhile
        error = error or partition.defect
        if error:
            self._logs.delete_created(partition.topic, partition.index, partition.config.file_delete_delay_ms)
        self._leave(partition)
        if error:
            self._end(partition, error)
        elif partition in self._opened:
            self._open_later(partition)

    def _run(self, partitions: Sequence[Partition], step: Callable[[], object]) -> None:
        """Run a step of creations; if it raises, those partitions that have no log by then are offline."""
        try:
            step()
        except Exception:
            call_each(self._take_offline, partitions)
            raise

    def _take_offline(self, partition: Partition) -> None:
        key = TopicPartition(partition.topic, partition.index)
        if partition.log is not None or self._queued.get(partition) is not None:
            return
        if key in self._logs.created and key not in self._in_progress and partition not in self._opened:
            return  # it is recorded, and its first append opens it
        self._leave(partition)
        if not partition.defect:
            partition.close(KafkaErrorCode.KAFKA_STORAGE_ERROR)
        self._log(
            logging.ERROR, "offline", "%s-%d is offline until the broker is started again: an exception ended the "
            "creation of its files", partition.topic, partition.index,
        )  # fmt: skip
        self._end(partition, KafkaErrorCode.KAFKA_STORAGE_ERROR)

    def _leave(self, partition: Partition) -> None:
        self._in_progress.pop(TopicPartition(partition.topic, partition.index), None)

    # Opening them.

    def _open_later(self, partition: Partition) -> None:
        self._run([partition], lambda: self._slicer.run(self._opening(partition), raise_error))

    def _opening(self, partition: Partition) -> Generator[None, None, None]:
        """Open the log of a created partition, in one step."""
        self._run([partition], partial(self._open, partition))
        yield

    def _open(self, partition: Partition) -> None:
        key = TopicPartition(partition.topic, partition.index)
        if partition.defect or key not in self._logs.created:
            self._end(partition, partition.defect or KafkaErrorCode.KAFKA_STORAGE_ERROR)
            return
        path = self._logs.created[key]
        try:
            log = self._logs.open_created(*key, partition.config)
        except OSError as error:
            self._log(logging.ERROR, f"cannot open {path}", "%s-%d: cannot open the log: %s", *key, error)
            self._logs.report_disk_error(path, error)
            self._end(partition, KafkaErrorCode.KAFKA_STORAGE_ERROR)
            return
        self._end(partition, log)

    def _end(self, partition: Partition, result: Log | int) -> None:
        opened = self._opened.pop(partition, None)
        if opened is None:
            return
        if isinstance(result, int):  # producers repeat no error of the coordination service
            result = partition.error or KafkaErrorCode.KAFKA_STORAGE_ERROR
        opened(result)


def raise_error(outcome: Outcome) -> None:
    """Raise the error of opening a log, to be logged."""
    outcome.result()
