"""Builds and reads control batches: one record that ends a transaction of a producer in a partition.

Key: int16 version 0, int16 type. Value of a transaction marker: int16 version 0, int32 coordinator epoch. Types 2 to 6
belong to KRaft and are returned unchanged. Sources: ControlRecordType.java, EndTransactionMarker.java.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from kafkalite._speedups.records.batch_builder import Builder
from kafkalite._speedups.records.batches import Record
from kafkalite._speedups.records.validator import BatchError
from kafkalite.errors import KafkaErrorCode

KEY = struct.Struct(">hh")
MARKER = struct.Struct(">hi")
VERSION = 0


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """The end of a transaction, and the epoch of the coordinator that ended it."""

    type: ControlType
    coordinator_epoch: int


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction in some partitions, as the coordinator decides it (WriteTxnMarkers).

    Arguments:
        producer_id, producer_epoch: the producer; with version 2, the epoch after that of the batches.
        committed: False = aborted.
        coordinator_epoch: of the coordinator; partitions reject the markers of an older one.
        version: 0 or 1: the epoch of the batches is accepted; 2: it must be greater (KIP-890, KIP-1228).
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    version: int = 0

    def build(self, timestamp: int) -> bytes:
        """The control batch of one partition; `timestamp` in ms."""
        marker = Marker(ControlType.COMMIT if self.committed else ControlType.ABORT, self.coordinator_epoch)
        return build_marker(marker, self.producer_id, self.producer_epoch, timestamp)


def build_marker(marker: Marker, producer_id: int, producer_epoch: int, timestamp: int) -> bytes:
    """The control batch of one partition: as in Kafka without sequence, with transactional and control bits.

    Arguments:
        marker: the type of the record.
        producer_id, producer_epoch: the producer whose transaction ends.
        timestamp: in ms.
    """
    builder = Builder()
    key, value = KEY.pack(VERSION, marker.type), MARKER.pack(VERSION, marker.coordinator_epoch)
    builder.append(timestamp, key, value)
    return builder.build(
        producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=-1, transactional=True, control=True
    )


def control_type(record: Record) -> int:
    """The type of a control record. Raises: BatchError if the key is malformed."""
    if record.key is None or len(record.key) < KEY.size:
        raise BatchError(KafkaErrorCode.INVALID_RECORD, "a control record's key needs a version and a type")
    version, kind = KEY.unpack_from(record.key)
    if version < VERSION:
        raise BatchError(KafkaErrorCode.INVALID_RECORD, f"version {version} of the key of a control record is invalid")
    return int(kind)


def read_marker(record: Record) -> Marker | None:
    """The marker in a record of a control batch; None for other types.

    Later versions may have more fields after these (EndTransactionMarker.deserializeValue).
    Raises: BatchError if key or value are malformed.
    """
    kind = control_type(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < MARKER.size:
        raise BatchError(KafkaErrorCode.INVALID_RECORD, "a transaction marker needs a version and a coordinator epoch")
    version, coordinator_epoch = MARKER.unpack_from(record.value)
    if version < VERSION:
        raise BatchError(KafkaErrorCode.INVALID_RECORD, f"version {version} of a transaction marker is invalid")
    return Marker(ControlType(kind), coordinator_epoch)
