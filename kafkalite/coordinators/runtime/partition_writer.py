"""Appends the records of a shard to its partition as batches, in order, and replays them.

The records of a command are one batch, which is split only if it would be larger than `max.message.bytes`; a single
record may be larger. Records of a transaction are a batch of its producer, without a sequence; the marker that ends a
transaction is a control batch. The log checks both before the command runs (`rejection`), and they are appended in the
same step: while appends wait for a job of the partition, the commands are refused. The responses of a command are sent
only after one system call has written all its batches.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkalite.callbacks import FanIn
from kafkalite.cluster.partition.append import Append, OwnAppend
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.replicas import Replicas
from kafkalite.coordinators.runtime.loader import CoordinatorLoader, LoaderHost, LoadQueue
from kafkalite.coordinators.runtime.record_serde import RecordSerde
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import Builder
from kafkalite.state.effects import Now

if TYPE_CHECKING:
    from kafkalite._speedups.storage.producer_state import Verification
    from kafkalite.records.control import TransactionMarker


class WriterHost(LoaderHost, Protocol):
    """The broker, as a writer needs it."""

    replicas: Replicas


class TransactionOfRecords(NamedTuple):
    """The transaction of the records of a command.

    Arguments:
        producer_id, epoch: of the producer.
        verification: with which the records may open it in the log; None: it is open.
    """

    producer_id: int
    epoch: int
    verification: "Verification | None" = None


NO_TRANSACTION = TransactionOfRecords(-1, -1)


class _OwnBatch(NamedTuple):
    data: bytearray
    verification: "Verification | None" = None
    marker_version: int = 0


class PartitionWriter:
    """The log of a shard (`shard.RecordWriter`): a partition of this broker.

    Arguments:
        host: the broker.
        partition: led by this broker.
        serde: converts the records of the topic.
        loads: the queue of replays.
    """

    def __init__(self, host: WriterHost, partition: Partition, serde: RecordSerde, loads: LoadQueue) -> None:
        self._host = host
        self._partition = partition
        self._serde = serde
        self._loads = loads

    def append(
        self,
        records: list[object],
        now: Now,
        transaction: "TransactionOfRecords | TransactionMarker | None",
        done: Callable[[int], None],
    ) -> None:
        """Append the records of one command.

        Arguments:
            records: of the machine.
            now: the time of the command.
            transaction: for which `rejection` has returned 0 in this step; None: the records have no transaction.
            done: called with 0 when all are committed, or with the error code of one that failed.

        Raises: EncodeError, BatchError if a record cannot be stored; nothing was appended then.
        """
        of_records = transaction if isinstance(transaction, TransactionOfRecords) else NO_TRANSACTION
        batches = self._batches(records, now, of_records)
        if len(batches) == 1:
            self._append_one(batches[0], lambda append: done(append.error))
        else:
            errors = FanIn[int](len(batches), lambda codes: done(next(filter(None, codes), 0)))
            for index, batch in enumerate(batches):
                self._append_one(batch, partial(put_error, errors, index))

    def _append_one(self, batch: _OwnBatch, done: Callable[[Append], None]) -> None:
        self._partition.append_internal(OwnAppend(batch.data, done, batch.verification, batch.marker_version))

    def rejection(self, transaction: "TransactionOfRecords | TransactionMarker") -> int:
        """Return the error with which the log would reject records or the marker of a transaction now, 0 = none.

        COORDINATOR_LOAD_IN_PROGRESS while appends wait for a job of the partition: a marker among them may end the
        transaction that the log still has.

        Arguments:
            transaction: of a command.
        """
        partition = self._partition
        log, is_marker = partition.log, not isinstance(transaction, TransactionOfRecords)
        if partition.queues_appends or (log is None and not is_marker):
            return KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if log is None:
            return 0
        if isinstance(transaction, TransactionOfRecords):
            return log.transaction_error(*transaction)
        epoch, coordinator_epoch = transaction.producer_epoch, transaction.coordinator_epoch
        return log.marker_error(transaction.producer_id, epoch, coordinator_epoch, transaction.version)

    def refusal(self) -> int:
        """NOT_ENOUGH_REPLICAS while fewer replicas are in sync than appends with acks=all need, else 0."""
        partition = self._partition
        return KafkaErrorCode.NOT_ENOUGH_REPLICAS if len(partition.isr) < partition.replicas_min else 0

    def replay(self, apply: Callable[[object], None], done: Callable[[int], None]) -> Callable[[], None]:
        """Replay all committed records into `apply`, in the background; then call `done(error)`. Returns its stop.

        Records above the high watermark may be committed later: they are waited for, with NOT_ENOUGH_REPLICAS. A
        partition without a role has its own error: it is offline, or led elsewhere.
        """
        log = self._partition.log
        behind = self.refusal() or (log is not None and self._partition.high_watermark < log.log_end_offset)
        error = self._partition.error or (KafkaErrorCode.NOT_ENOUGH_REPLICAS if behind else 0)
        if error:
            done(error)
            return nothing
        loading = CoordinatorLoader(self._host, self._partition, self._serde, self._loads, apply, done)
        loading.begin()
        return loading.stop

    def write_pending(self) -> None:
        """Write the batches that were appended outside a loop iteration of the network."""
        self._host.replicas.write_pending()

    def _batches(self, records: list[object], now: Now, transaction: TransactionOfRecords) -> list[_OwnBatch]:
        builder, serde, built = Builder(self._partition.config.max_message_bytes), self._serde, list[_OwnBatch]()
        fields, at = NO_TRANSACTION, 0
        while at < len(records):
            if fields is NO_TRANSACTION:
                at = serde.append_plain(builder, records, at, now.wall_ms)
                if at == len(records):
                    break
            record = records[at]
            marker = serde.marker(record)
            if marker is not None:
                built += self._batch_before(builder, fields)
                built.append(_OwnBatch(bytearray(marker.build(now.wall_ms)), marker_version=marker.version))
                fields, at = NO_TRANSACTION, at + 1
                continue
            several = serde.several(record)
            if several is not None:  # too large for one batch
                records, at = [*several, *records[at + 1 :]], 0
                continue
            at += 1
            producer_id = serde.producer(record)
            key, value = serde.encode(record)
            if producer_id != fields.producer_id:
                built += self._batch_before(builder, fields)
                fields = fields_of(producer_id, transaction)
            if builder.append(now.wall_ms, key, value) < 0:
                built.append(self._built(builder, fields))
                builder.append(now.wall_ms, key, value)
        built += self._batch_before(builder, fields)
        return built

    def _batch_before(self, builder: Builder, fields: TransactionOfRecords) -> list[_OwnBatch]:
        """The batch that ends here; none if no record was added to it."""
        return [self._built(builder, fields)] if len(builder) else []

    def _built(self, builder: Builder, fields: TransactionOfRecords) -> _OwnBatch:
        compression = self._serde.compression(self._host.config)
        if fields is NO_TRANSACTION:
            batch = builder.build(compression)
        else:
            batch = builder.build(
                compression,
                producer_id=fields.producer_id,
                producer_epoch=fields.epoch,
                transactional=True,
            )
        builder.clear()
        return _OwnBatch(bytearray(batch), fields.verification)


def fields_of(producer_id: int, transaction: TransactionOfRecords) -> TransactionOfRecords:
    """Return the fields of the batch of a record.

    Arguments:
        producer_id: of the record, -1 = it has no transaction.
        transaction: of the command; its epoch is that of all its records.
    """
    if producer_id < 0:
        return NO_TRANSACTION
    own = producer_id == transaction.producer_id
    return transaction if own else TransactionOfRecords(producer_id, transaction.epoch)


def nothing() -> None:
    """Stop a replay that has not begun."""


def put_error(errors: FanIn[int], index: int, append: Append) -> None:
    """Store the error code of a completed append."""
    errors.put(index, append.error)
