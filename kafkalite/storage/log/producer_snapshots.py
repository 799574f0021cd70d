"""Reads and writes producer snapshots, `<offset>.snapshot`: the state of the idempotent producers at that offset.

Kafka's layout (ProducerSnapshot.json): int16 version 1, uint32 CRC-32C of the rest, int32 count, entries of 46 bytes.
It contains only the last batch of each producer. Snapshots are written at each roll, at the base offset of the new
segment, and at a clean stop; each start reads them. An unreadable snapshot is ignored: recovery reads the batches.
"""

import os
import struct

from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.producer_state import Producer
from kafkalite._speedups.wire.crc32c import checksum
from kafkalite.storage import names

VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class BadSnapshot(ValueError):
    """The bytes are not a valid producer snapshot; the message contains the path."""


def write_packed(disk: Disk, directory: str, offset: int, packed: bytes, *, sync: bool = True) -> None:
    """Write the snapshot of the producers at `offset`.

    Arguments:
        disk, directory: of the partition.
        offset: of the snapshot.
        packed: the result of `ProducerState.pack` at that offset.
        sync: whether the file is also synced.

    Raises OSError.
    """
    path = os.path.join(directory, names.file_name(offset, names.SNAPSHOT))
    disk.write_atomic(path, snapshot_content(packed), sync=sync)


def snapshot_content(packed: bytes) -> bytes:
    """The content of the snapshot file of packed producers."""
    return _HEAD.pack(VERSION, checksum(packed)) + packed


def read_snapshot(disk: Disk, path: str) -> list[Producer]:
    """The producers of a snapshot file. Raises BadSnapshot, OSError."""
    data = disk.read_bytes(path)
    if len(data) < _HEAD.size + _COUNT.size:
        raise BadSnapshot(f"{path}: too short")
    version, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    (count,) = _COUNT.unpack_from(body)
    if version != VERSION or crc != checksum(body) or len(body) != _COUNT.size + count * _ENTRY.size:
        raise BadSnapshot(f"{path}: wrong version, checksum or length")
    return [_unpack(fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size :])]


def _unpack(fields: tuple[int, int, int, int, int, int, int, int]) -> Producer:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = fields
    producer = Producer(producer_id, epoch, coordinator_epoch, timestamp, max(first_offset, -1))
    if last_offset >= 0:
        producer.restore(last_sequence, last_offset, delta, timestamp)
    return producer


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """Offsets of the snapshot files in a directory, the newest last."""
    parsed = (names.parse_file_name(name) for name in disk.list(directory) if name.endswith(names.SNAPSHOT))
    return sorted(found[0] for found in parsed if found is not None and found[1] == names.SNAPSHOT)
