"""Appends the records of a shard to its partition as batches, in order, and replays them.

The records of a command are one batch, which is split only if it would be larger than `max.message.bytes`; a single
record may be larger. Records of a transaction are a batch of its producer, without a sequence; the marker that ends a
transaction is a control batch. The responses of a command are sent only after one system call has written all its
batches.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from kafkalite.callbacks import FanIn
from kafkalite.cluster.partition.append import Append, OwnAppend
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.replicas import Replicas
from kafkalite.coordinators.runtime.loader import CoordinatorLoader, LoaderHost, LoadQueue
from kafkalite.coordinators.runtime.record_serde import RecordSerde
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import Builder
from kafkalite.state.effects import Now


class WriterHost(LoaderHost, Protocol):
    """The broker, as a writer needs it."""

    replicas: Replicas


class _Fields(NamedTuple):
    producer_id: int
    producer_epoch: int


NO_TRANSACTION = _Fields(-1, -1)


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

    def append(self, records: list[object], now: Now, producer_epoch: int, done: Callable[[int], None]) -> None:
        """Append the records of one command.

        Arguments:
            records: of the machine.
            now: the time of the command.
            producer_epoch: of their transaction, -1 = none.
            done: called with 0 when all are committed, or with the error code of one that failed.

        Raises: EncodeError, BatchError if a record cannot be stored; nothing was appended then.
        """
        batches = self._batches(records, now, producer_epoch)
        if len(batches) == 1:
            self._partition.append_internal(OwnAppend(batches[0], lambda append: done(append.error)))
        else:
            errors = FanIn[int](len(batches), lambda codes: done(next(filter(None, codes), 0)))
            for index, batch in enumerate(batches):
                self._partition.append_internal(OwnAppend(batch, partial(put_error, errors, index)))

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

    def _batches(self, records: list[object], now: Now, producer_epoch: int) -> list[bytearray]:
        builder, serde, built = Builder(self._partition.config.max_message_bytes), self._serde, list[bytearray]()
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
                built.append(bytearray(marker.build(now.wall_ms)))
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
                fields = _Fields(producer_id, producer_epoch) if producer_id >= 0 else NO_TRANSACTION
            if builder.append(now.wall_ms, key, value) < 0:
                built.append(self._built(builder, fields))
                builder.append(now.wall_ms, key, value)
        built += self._batch_before(builder, fields)
        return built

    def _batch_before(self, builder: Builder, fields: _Fields) -> list[bytearray]:
        """The batch that ends here; none if no record was added to it."""
        return [self._built(builder, fields)] if len(builder) else []

    def _built(self, builder: Builder, fields: _Fields) -> bytearray:
        compression = self._serde.compression(self._host.config)
        if fields is NO_TRANSACTION:
            batch = builder.build(compression)
        else:
            batch = builder.build(
                compression,
                producer_id=fields.producer_id,
                producer_epoch=fields.producer_epoch,
                transactional=True,
            )
        builder.clear()
        return bytearray(batch)


def nothing() -> None:
    """Stop a replay that has not begun."""


def put_error(errors: FanIn[int], index: int, append: Append) -> None:
    """Store the error code of a completed append."""
    errors.put(index, append.error)
