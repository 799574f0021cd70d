"""Reads and writes producer snapshots, `<offset>.snapshot`: the state of the idempotent producers at that offset.

Kafka's layout (ProducerSnapshot.json): int16 version 1, uint32 CRC-32C of the rest, int32 count, entries of 46 bytes.
Snapshots are written at each roll, at the base offset of the new segment, and at a clean stop; each start reads them.
An unreadable snapshot is ignored: recovery reads the batches.

A producer has one entry for each of its last five batches, the last one at the end, so that a retry of any of them is
recognised after a restart. Kafka writes the last batch only. It reads both: of several entries with one producer id it
uses the last one (ProducerStateManager.loadProducerEntry).
"""

import os
import struct

from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.producer_state import Producer
from kafkalite._speedups.wire.crc32c import checksum
from kafkalite.storage import names

Entry = tuple[int, int, int, int, int, int, int, int]
BATCHES_KEPT = 5  # as in _speedups/storage/producer_state.pxd
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
    entries: dict[int, list[Entry]] = {}
    for entry in _ENTRY.iter_unpack(body[_COUNT.size :]):
        entries.setdefault(entry[0], []).append(entry)
    return [_unpack(found) for found in entries.values()]


def _unpack(entries: list[Entry]) -> Producer:
    """The producer of some entries with its id, the last batch last."""
    producer_id, epoch, _, _, _, last_timestamp, coordinator_epoch, first_offset = entries[-1]
    producer = Producer(producer_id, epoch, coordinator_epoch, last_timestamp, max(first_offset, -1))
    for _, of_epoch, last_sequence, last_offset, delta, timestamp, _, _ in entries[-BATCHES_KEPT:]:
        if last_offset >= 0 and of_epoch == epoch:
            producer.restore(last_sequence, last_offset, delta, timestamp)
    return producer


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """Offsets of the snapshot files in a directory, the newest last."""
    parsed = (names.parse_file_name(name) for name in disk.list(directory) if name.endswith(names.SNAPSHOT))
    return sorted(found[0] for found in parsed if found is not None and found[1] == names.SNAPSHOT)
