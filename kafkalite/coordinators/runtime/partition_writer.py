"""The records of a shard as batches of its partition: appended in order, and read again from the beginning.

One command's records are one batch, cut only where it would be larger than `max.message.bytes`; a single record may be
larger than that. All batches of a command are written by the same system call or have none of their answers sent.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from kafkalite.callbacks import FanIn
from kafkalite.cluster.append import Append, OwnAppend
from kafkalite.cluster.partition import Partition
from kafkalite.cluster.replicas import Replicas
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordinators.runtime.loader import CoordinatorLoader, LoadQueue
from kafkalite.coordinators.runtime.loader import LoaderHost as LoadingHost
from kafkalite.records import Builder
from kafkalite.state.effects import Now

__all__ = ["PartitionWriter", "RecordSerde"]


class RecordSerde(Protocol):
    """Records of a machine from and to the bytes of the log."""

    unordered: frozenset[bytes]
    """Record types, as keys begin with them, of which the last value of a key counts, whatever stands between."""

    def compression(self, config: BrokerConfig) -> int:
        """The codec id of batches."""

    def append_plain(self, builder: Builder, records: list[object], at: int, timestamp: int) -> int:
        """Append the records from `at` on to a batch without a transaction, as long as they are of the many that have
        a fast way, and fit; where it stopped.
        """

    def several(self, record: object) -> list[object] | None:
        """The records of the log that this one stands for, None where it is one itself; only the latter are encoded."""

    def encode(self, record: object) -> tuple[bytes, bytes | None]:
        """Key and value."""

    def producer(self, record: object) -> int:
        """The producer id of the transaction that the record is part of, -1 = none."""

    def decode(self, key: bytes, value: bytes | None) -> object | None:
        """The record; None for a type that is not known. Raises: DecodeError, `loading.RecordError`."""

    def in_transaction(self, producer_id: int, record: object) -> object | None:
        """The record as part of an open transaction; None where such a record has no place."""

    def ended(self, producer_id: int, *, committed: bool) -> object:
        """The record that stands for the marker of a transaction."""


class WriterHost(LoadingHost, Protocol):
    """The broker around."""

    replicas: Replicas


class _Fields(NamedTuple):
    producer_id: int
    producer_epoch: int


NO_TRANSACTION = _Fields(-1, -1)


class PartitionWriter:
    """`shard.Journal` on a partition of this broker.

    Arguments:
        host: the broker.
        partition: led by this broker.
        codec: of the topic.
        loads: where replays take turns.
    """

    def __init__(self, host: WriterHost, partition: Partition, codec: RecordSerde, loads: LoadQueue) -> None:
        self._host = host
        self._partition = partition
        self._codec = codec
        self._loads = loads

    def append(self, records: list[object], now: Now, producer_epoch: int, done: Callable[[int], None]) -> None:
        """Append the records of one command; `done(error)` when all are committed, or one of them failed.

        Raises: EncodeError, BatchError for what cannot be stored; nothing was appended then.
        """
        batches = self._batches(records, now, producer_epoch)
        if len(batches) == 1:
            self._partition.append_internal(OwnAppend(batches[0], lambda append: done(append.error)))
        else:
            errors = FanIn[int](len(batches), lambda codes: done(next(filter(None, codes), 0)))
            for index, batch in enumerate(batches):
                self._partition.append_internal(OwnAppend(batch, partial(put_error, errors, index)))

    def replay(self, apply: Callable[[object], None], done: Callable[[int], None]) -> Callable[[], None]:
        """Read all that is committed into `apply`, in the background; `done(error)` at the end. Answers how to stop."""
        loading = CoordinatorLoader(self._host, self._partition, self._codec, self._loads, apply, done)
        loading.begin()
        return loading.stop

    def write_pending(self) -> None:
        """Write what was appended outside a pass."""
        self._host.replicas.write_pending()

    def _batches(self, records: list[object], now: Now, producer_epoch: int) -> list[bytearray]:
        builder, codec, built = Builder(self._partition.config.max_message_bytes), self._codec, list[bytearray]()
        fields, at = NO_TRANSACTION, 0
        while at < len(records):
            if fields is NO_TRANSACTION:
                at = codec.append_plain(builder, records, at, now.wall_ms)
                if at == len(records):
                    break
            record = records[at]
            several = codec.several(record)
            if several is not None:  # it does not fit as a whole
                records, at = [*several, *records[at + 1 :]], 0
                continue
            at += 1
            producer_id = codec.producer(record)
            key, value = codec.encode(record)
            if producer_id != fields.producer_id:
                if len(builder):
                    built.append(self._built(builder, fields))
                fields = _Fields(producer_id, producer_epoch) if producer_id >= 0 else NO_TRANSACTION
            if builder.append(now.wall_ms, key, value) < 0:
                built.append(self._built(builder, fields))
                builder.append(now.wall_ms, key, value)
        built.append(self._built(builder, fields))
        return built

    def _built(self, builder: Builder, fields: _Fields) -> bytearray:
        compression = self._codec.compression(self._host.config)
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


def put_error(errors: FanIn[int], index: int, append: Append) -> None:
    """Put the error code of an append that has ended."""
    errors.put(index, append.error)
