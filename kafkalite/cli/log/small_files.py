"""Reads the smaller files of a partition offline: indexes, aborted transactions, producers, epochs, metadata.

An index is checked by itself and, if they were read, against the batches of its segment.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.log.files import BatchPositions, Defect, EntrySeen, Event, FileSeen
from kafkalite.model import uuid_text
from kafkalite.storage import names
from kafkalite.storage.checkpoints import BadCheckpoint, read_epochs, read_topic_id
from kafkalite.storage.log.index_entries import OFFSET_ENTRY, TIME_ENTRY
from kafkalite.storage.log.producer_snapshots import BadSnapshot, read_snapshot
from kafkalite.storage.log.transaction_index import ENTRY as ABORTED_ENTRY

Reader = Callable[[Disk, Path, BatchPositions | None], Iterator[Event]]


def entries(path: Path, data: bytes, layout: struct.Struct) -> Iterator[Defect | tuple[int, tuple[int, ...]]]:
    """(position, fields) of each entry. Zeros at the end are space that Kafka preallocates, not entries."""
    used = len(data.rstrip(b"\0"))
    end = min(len(data), -(-used // layout.size) * layout.size)
    whole = end - end % layout.size
    for position in range(0, whole, layout.size):
        yield position, layout.unpack_from(data, position)
    if len(data) % layout.size:
        yield Defect(path, len(data) - len(data) % layout.size, f"the size is not a multiple of {layout.size}")


def read_offset_index(disk: Disk, path: Path, locations: BatchPositions | None) -> Iterator[Event]:
    """`.index`: last offsets of batches and where these begin."""
    base, data, last = base_offset(path), disk.read_bytes(str(path)), (-1, -1)
    yield FileSeen(path, len(data))
    for found in entries(path, data, OFFSET_ENTRY):
        if isinstance(found, Defect):
            yield found
            continue
        at, (relative, position) = found
        offset = base + relative
        yield EntrySeen(path, {"offset": offset, "position": position})
        if relative <= last[0] or position <= last[1]:
            yield Defect(path, at, f"offset {offset}, position {position} is not above the previous entry")
        last = relative, position
        if locations is not None and (actual := locations.last_offset_at(position)) != offset:
            reason_text = "no batch starts there" if actual is None else f"the batch there ends with offset {actual}"
            yield Defect(path, at, f"the entry maps offset {offset} to position {position}, but {reason_text}")


def read_time_index(disk: Disk, path: Path, locations: BatchPositions | None) -> Iterator[Event]:
    """`.timeindex`: the highest timestamps so far, and offsets of their batches."""
    base, data, last = base_offset(path), disk.read_bytes(str(path)), (-1, -1)
    yield FileSeen(path, len(data))
    for found in entries(path, data, TIME_ENTRY):
        if isinstance(found, Defect):
            yield found
            continue
        at, (timestamp, relative) = found
        offset = base + relative
        yield EntrySeen(path, {"timestamp": timestamp, "offset": offset})
        if timestamp <= last[0] or relative < last[1]:
            yield Defect(path, at, f"timestamp {timestamp}, offset {offset} is not above the previous entry")
        last = timestamp, relative
        if locations is not None and (actual := locations.max_timestamp_of(offset)) != timestamp:
            reason_text = "no batch has this offset" if actual is None else f"the batch has the maximum {actual}"
            yield Defect(path, at, f"the entry maps timestamp {timestamp} to offset {offset}, but {reason_text}")


def read_aborted(disk: Disk, path: Path, _locations: BatchPositions | None) -> Iterator[Event]:
    """`.txnindex`: aborted transactions (AbortedTxn.java)."""
    data, last = disk.read_bytes(str(path)), -1
    yield FileSeen(path, len(data))
    for found in entries(path, data, ABORTED_ENTRY):
        if isinstance(found, Defect):
            yield found
            continue
        at, (version, producer_id, first, end, stable) = found
        yield EntrySeen(
            path, {"producer_id": producer_id, "first_offset": first, "last_offset": end, "last_stable_offset": stable}
        )
        if version != 0:
            yield Defect(path, at, f"unknown version {version}")
        if not first <= end or end < last:
            yield Defect(path, at, f"offsets {first} to {end} are out of order")
        last = end


def read_producers(disk: Disk, path: Path, _locations: BatchPositions | None) -> Iterator[Event]:
    """`.snapshot`: the producers as of the offset in its name."""
    yield FileSeen(path, disk.size(str(path)))
    try:
        producers = read_snapshot(disk, str(path))
    except BadSnapshot as error:
        yield Defect(path, None, reason(error, path))
        return
    for producer in producers:
        yield EntrySeen(
            path,
            {
                "producer_id": producer.producer_id,
                "epoch": producer.epoch,
                "last_sequence": producer.last_sequence,
                "last_offset": producer.last_offset,
                "last_offset_delta": producer.last_offset_delta,
                "last_timestamp": producer.last_timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "first_offset_of_transaction": producer.first_offset_of_transaction,
            },
        )


def read_epoch_file(disk: Disk, path: Path, _locations: BatchPositions | None) -> Iterator[Event]:
    """`leader-epoch-checkpoint`."""
    yield FileSeen(path, disk.size(str(path)))
    try:
        found = read_epochs(disk, str(path))
    except BadCheckpoint as error:
        yield Defect(path, None, reason(error, path))
        return
    for epoch, start in found:
        yield EntrySeen(path, {"epoch": epoch, "start_offset": start})


def read_metadata(disk: Disk, path: Path, _locations: BatchPositions | None) -> Iterator[Event]:
    """`partition.metadata`: the id of the topic."""
    yield FileSeen(path, disk.size(str(path)))
    try:
        topic_id = read_topic_id(disk, str(path.parent))
    except BadCheckpoint as error:
        yield Defect(path, None, reason(error, path))
        return
    if topic_id is not None:
        yield EntrySeen(path, {"topic_id": uuid_text(topic_id)})


def reason(error: Exception, path: Path) -> str:
    """The error text without the path, which the event contains."""
    return str(error).removeprefix(f"{path}: ")


def base_offset(path: Path) -> int:
    """The offset in a file's name; 0 for any other name."""
    found = names.parse_file_name(path.name)
    return found[0] if found is not None else 0


READERS: dict[str, Reader] = {
    names.INDEX: read_offset_index,
    names.TIME_INDEX: read_time_index,
    names.TXN_INDEX: read_aborted,
    names.SNAPSHOT: read_producers,
}
NAMED_READERS: dict[str, Reader] = {
    names.LEADER_EPOCH_CHECKPOINT: read_epoch_file,
    names.PARTITION_METADATA: read_metadata,
}


def reader_of(path: Path) -> Reader | None:
    """The reader for a file of this name, or None (also for a `.log`)."""
    return NAMED_READERS.get(path.name) or READERS.get(path.suffix)
