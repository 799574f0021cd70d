"""The log of one replica of a partition as its files have it, whether or not its broker runs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kafkalite._speedups.records.batches import batches
from kafkalite.storage import names

SUFFIX, SWAP = names.LOG, names.SWAP


class StoredBatch(NamedTuple):
    """A batch of a log: its offsets, the leader epoch in which it was appended, and its bytes."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    data: bytes

    def __str__(self) -> str:
        (batch,) = batches(self.data)
        producer = f"producer {batch.producer_id} epoch {batch.producer_epoch} sequence {batch.base_sequence}"
        return f"{self.base_offset} to {self.last_offset}, leader epoch {self.leader_epoch}, {producer}"


class ReplicaLog(NamedTuple):
    """The log of one replica.

    Arguments:
        start_offset: where its first segment begins.
        batches: in order.
        active_offset: where its last segment begins.
    """

    start_offset: int
    batches: tuple[StoredBatch, ...]
    active_offset: int

    @property
    def end_offset(self) -> int:
        """The offset of the next record; compaction may have removed those before it."""
        return max(self.active_offset, self.batches[-1].last_offset + 1 if self.batches else 0)


def read_log(directory: Path) -> ReplicaLog | None:
    """Return the log in a directory of a partition, None if it has no segment."""
    segments = {int(path.stem): path for path in directory.glob(f"*{SUFFIX}")}
    for path in directory.glob(f"*{SUFFIX}{SWAP}"):  # a compaction has renamed the segments that it replaces
        segments.setdefault(int(path.name.partition(".")[0]), path)
    if not segments:
        return None
    found: list[StoredBatch] = []
    for base_offset in sorted(segments):
        data = segments[base_offset].read_bytes()
        for batch in batches(data):
            end = batch.position + batch.size
            stored = StoredBatch(batch.base_offset, batch.last_offset, batch.leader_epoch, data[batch.position : end])
            found.append(stored)
    return ReplicaLog(min(segments), tuple(found), max(segments))


def latest_values(log: ReplicaLog, end_offset: int) -> dict[bytes | None, bytes]:
    """Return the last value of each key below an offset; keys whose last value is None are left out."""
    latest: dict[bytes | None, bytes] = {}
    for stored in log.batches:
        (batch,) = batches(stored.data)
        for record in () if batch.control else batch.records():
            if record.offset >= end_offset:
                continue
            latest.pop(record.key, None)
            if record.value is not None:
                latest[record.key] = record.value
    return latest
