"""Converts the state of transactional ids to the records of `__transaction_state`, as Kafka 4.3 writes them, and back.

Each record is the whole state of one transactional id, so only the last one counts. A record that cannot be decoded, of
a future version for example, stops the loading of its partition: without it, a prepared transaction could be forgotten.

Source: TransactionLog.scala (valueToBytes, readTxnRecordValue) of Apache Kafka.
"""

from collections.abc import Callable

from kafkalite._speedups.codec.transaction_partitions import encode_partitions
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordinators.runtime.loader import RecordError
from kafkalite.protocol.stored.record_types import write
from kafkalite.protocol.stored.transaction_records import (
    STATUSES,
    TransactionLogKey,
    TransactionLogValue,
    read_key,
    read_value,
)
from kafkalite.records import Builder
from kafkalite.state.transactions.metadata import TransactionDeleted, TransactionMetadata
from kafkalite.state.transactions.partitions import NO_INDEXES, NO_PARTITIONS, TransactionPartitions
from kafkalite.state.transactions.states import TransactionState

NO_PRODUCER = -1
NO_COMPRESSION = 0
NO_NEXT_EPOCH = -1
FIRST_VERSION, TAGGED_VERSION = 0, 1
PARTITIONS_AT = 17  # in a value: behind version, producer id, epoch, timeout and status
STATES = tuple(map(TransactionState, STATUSES))  # by status, without a call of the class
EMPTY_ARRAY, EMPTY_COMPACT_ARRAY = 4, 1  # bytes of an array without elements


class TransactionRecordSerde:
    """The serde (`runtime.record_serde.RecordSerde`) of transactions.

    Arguments:
        value_version: returns the version of values that are written: 0 while the finalized `transaction.version` is 0,
            because a broker of that level may read them; later 1.
    """

    unordered = frozenset((TransactionLogKey.type_id.to_bytes(2, "big"),))
    skips_unreadable = False

    def __init__(self, value_version: Callable[[], int] = lambda: TAGGED_VERSION) -> None:
        self._value_version = value_version

    def compression(self, config: BrokerConfig) -> int:
        """None, as in Kafka (TransactionLog.EnforcedCompression)."""
        return NO_COMPRESSION

    def append_plain(self, builder: Builder, records: list[object], at: int, timestamp: int) -> int:
        """Append nothing: records of transactions have no fast path; returns `at`."""
        return at

    def several(self, record: object) -> list[object] | None:
        """None: all partitions of a transaction are in one record."""
        return None

    def producer(self, record: object) -> int:
        """-1: the records are no part of a transaction."""
        return NO_PRODUCER

    def marker(self, record: object) -> None:
        """None: the topic has no markers."""

    def encode(self, record: object) -> tuple[bytes, bytes | None]:
        """The key and the value of a record. Raises: EncodeError, TypeError for a class that is not stored."""
        if isinstance(record, TransactionDeleted):
            return write(TransactionLogKey(transactional_id=record.transactional_id), None)
        if not isinstance(record, TransactionMetadata):
            raise TypeError(f"{type(record).__name__} is not a record of __transaction_state")
        version = self._value_version()
        key, value = write(TransactionLogKey.of(record.transactional_id), encode_value(record), version)
        if not record.partitions or value is None:
            return key, value
        flexible = version >= TAGGED_VERSION
        behind = PARTITIONS_AT + (EMPTY_COMPACT_ARRAY if flexible else EMPTY_ARRAY)
        return key, value[:PARTITIONS_AT] + encode_partitions(record.partitions.by_topic, flexible) + value[behind:]

    def decode(self, key: bytes, value: bytes | None) -> object | None:
        """The record; None for an unknown type. Raises: DecodeError, RecordError."""
        type_id, known = read_key(key)
        if not isinstance(known, TransactionLogKey):
            return None
        if value is None:
            return TransactionDeleted(known.transactional_id)
        stored = read_value(type_id, value)
        assert isinstance(stored, TransactionLogValue)
        return decode_value(known.transactional_id, stored)

    def in_transaction(self, producer_id: int, record: object) -> object | None:
        """None: nothing here is part of a transaction."""
        return None

    def end_transaction(self, producer_id: int, *, committed: bool) -> object:
        """Raises RecordError: the topic has no markers."""
        raise RecordError(f"a transaction marker of producer {producer_id}")


def encode_value(metadata: TransactionMetadata) -> TransactionLogValue:
    """The value of a record without its partitions, which `encode` inserts: they can be 100,000."""
    return TransactionLogValue.of(  # in the order of the declaration, without keywords: each transaction has four
        metadata.producer_id,
        metadata.previous_producer_id,
        metadata.next_producer_id,
        metadata.producer_epoch,
        NO_NEXT_EPOCH,
        metadata.timeout_ms,
        metadata.state,
        None if metadata.state is TransactionState.EMPTY else [],
        metadata.updated_ms,
        metadata.start_ms,
        metadata.version,
    )


def decode_value(transactional_id: str, stored: TransactionLogValue) -> TransactionMetadata:
    """The state of a transactional id. Raises RecordError for a status that Kafka does not store.

    Equal parts are one object, as in the states that the machine makes: a million ids need less memory.
    """
    if stored.transaction_status not in STATUSES:
        raise RecordError(f"status {stored.transaction_status} of {transactional_id!r} is unknown")
    producer_id, previous = stored.producer_id, stored.previous_producer_id
    return TransactionMetadata(
        transactional_id,
        producer_id,
        stored.producer_epoch,
        stored.transaction_timeout_ms,
        stored.transaction_last_update_timestamp_ms,
        STATES[stored.transaction_status],
        partitions_of(stored),
        stored.transaction_start_timestamp_ms,
        producer_id if previous == producer_id else previous,
        stored.next_producer_id,
        version=stored.client_transaction_version,
    )


def partitions_of(stored: TransactionLogValue) -> TransactionPartitions:
    """The partitions of the transaction; most records of a log have none."""
    by_topic: dict[str, frozenset[int]] = {}
    for each in stored.transaction_partitions or ():
        by_topic[each.topic] = by_topic.get(each.topic, NO_INDEXES).union(each.partition_ids)
    return TransactionPartitions(by_topic) if by_topic else NO_PARTITIONS
