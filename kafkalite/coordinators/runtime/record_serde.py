"""The interface that converts the records of a machine to the bytes of the log and back."""

from typing import Protocol

from kafkalite.config.broker import BrokerConfig
from kafkalite.records import Builder
from kafkalite.records.control import TransactionMarker


class RecordSerde(Protocol):
    """Converts records of a machine to the bytes of the log and back."""

    unordered: frozenset[bytes]
    """The first bytes of the keys of record types without an order among keys: only the last value of a key counts."""

    skips_unreadable: bool
    """Whether loading skips a record that cannot be decoded or applied; otherwise it fails."""

    def compression(self, config: BrokerConfig) -> int:
        """The codec id of batches."""

    def append_plain(self, builder: Builder, records: list[object], at: int, timestamp: int) -> int:
        """Append the records from index `at` on to a batch without a transaction, as long as they have a fast path and
        fit; returns the index of the first record that was not appended. `timestamp` in ms.
        """

    def several(self, record: object) -> list[object] | None:
        """Split a record into the records that are stored for it; None = one record, by `encode`."""

    def encode(self, record: object) -> tuple[bytes, bytes | None]:
        """The key and the value of a record."""

    def producer(self, record: object) -> int:
        """The producer id of the transaction of a record, -1 = none."""

    def marker(self, record: object) -> TransactionMarker | None:
        """The marker that a record stands for, which is a control batch of its own; None for all other records."""

    def decode(self, key: bytes, value: bytes | None) -> object | None:
        """The record; None for an unknown type. Raises: DecodeError, `loader.RecordError`."""

    def in_transaction(self, producer_id: int, record: object) -> object | None:
        """The record as part of an open transaction; None if such a record cannot be in one."""

    def end_transaction(self, producer_id: int, *, committed: bool) -> object:
        """The record for the marker of a transaction."""
