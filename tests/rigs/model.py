"""What was sent to a partition, what was acknowledged and what was promised to survive: the judge of all rigs here.

Invariants:
1. A batch is `sent` from the moment its offset is known, `written` once the write succeeded, and promised below
   `promised`: what the log itself says is on the disk (its recovery point).
2. After a kill everything written is required, after a power cut everything promised; below the log start nothing is.
3. Nothing else may be found but whole batches that were sent, at their offsets, in order, without a gap.
"""

import itertools
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from kafkalite._speedups.records.batches import Batch, batches
from kafkalite.storage.log.log import OFFSET_MAX, Log


class StoredBatch(NamedTuple):
    """A batch at its place; `data` are its bytes as in the file."""

    base: int
    last: int
    data: bytes


@dataclass
class PartitionModel:
    """One partition; `start`: below it records may be gone."""

    topic: str
    partition: int
    topic_id: bytes
    sent: dict[int, set[bytes]] = field(default_factory=dict)
    written: list[StoredBatch] = field(default_factory=list)
    promised: int = 0
    start: int = 0
    producer_id: int = 7
    sequence: int = 0
    truncated: bool = False
    created: bool = False
    deleted: bool = False

    gaps_until: ClassVar[int] = OFFSET_MAX  # where batches may go: below it a gap between segments is normal

    @property
    def compacted(self) -> bool:
        """Whether batches may go or be emptied."""
        return False

    # What is done to it.

    def sends(self, stored: StoredBatch) -> None:
        self.sent.setdefault(stored.base, set()).add(stored.data)

    def writes(self, stored: list[StoredBatch]) -> None:
        self.written += stored

    def promises(self, offset: int) -> None:
        self.promised = max(self.promised, offset)

    def truncates(self, offset: int) -> None:
        """Said before it is done: from now on nothing from `offset` on is required."""
        self.written = [stored for stored in self.written if stored.last < offset]
        self.promised = min(self.promised, offset)
        self.start = min(self.start, offset)
        self.truncated = True

    def starts_at(self, offset: int) -> None:
        """Said before it is done: from now on nothing below `offset` is required."""
        self.start = max(self.start, offset)

    # What is found.

    def required(self, *, power_cut: bool) -> list[StoredBatch]:
        """What must be there."""
        if self.deleted:
            return []
        return [
            stored
            for stored in self.written
            if stored.last >= self.start and (not power_cut or stored.last < self.promised)
        ]

    def judge(self, log: Log, *, power_cut: bool) -> None:
        """Compare the log with the possible ones; AssertionError describes the difference."""
        found = read_all(log)
        self._only_what_was_sent(found)
        self._in_order(log, found)
        self._all_required(log, found, self.required(power_cut=power_cut))
        assert log.log_start_offset <= log.recovery_point <= log.log_end_offset, f"{self}: its offsets are out of order"
        for segment in log.segments:
            newest = max([-1, *(batch.max_timestamp for batch in segment.batches())])
            assert segment.max_timestamp == newest, f"{self}: segment {segment.base_offset} lies about its time"
        self._producers(log, found)

    def _all_required(self, log: Log, found: list[StoredBatch], required: list[StoredBatch]) -> None:
        missing = [stored for stored in required if stored not in found]
        assert not missing, f"{self}: lost {[stored[:2] for stored in missing]}"

    def _only_what_was_sent(self, found: list[StoredBatch]) -> None:
        for stored in found:
            Batch(stored.data).check_crc()
            allowed = self.sent.get(stored.base, set())
            assert stored.data in allowed, f"{self}: the batch at {stored.base} was never sent"

    def _may_be_missing(self, offset: int) -> bool:
        return False

    def _in_order(self, log: Log, found: list[StoredBatch]) -> None:
        for before, after in itertools.pairwise(found):
            gap = after.base - before.last - 1
            ordered = gap == 0 or (gap > 0 and self._may_be_missing(after.base - 1))
            assert ordered, f"{self}: {after.base} comes after {before.last}"
        if found:
            assert log.log_end_offset == found[-1].last + 1, f"{self}: ends at {log.log_end_offset}"

    def _producers(self, log: Log, found: list[StoredBatch]) -> None:
        """The last batch sent again is a duplicate and keeps its offset."""
        last = self._last_sent(found) if found and not self.truncated else None
        if last is not None and Batch(last.data).producer_id >= 0:
            offset = log.append(bytearray(last.data), None, log.epochs.latest)
            assert (offset, log.pending_bytes) == (last.base, 0), f"{self}: the duplicate of {last.base} got {offset}"

    def _last_sent(self, found: list[StoredBatch]) -> StoredBatch | None:
        return found[-1]

    def goes_on_from(self, log: Log) -> None:
        """What was found is what is there from now on."""
        self.written = read_all(log)
        self.start = log.log_start_offset
        self.promised = min(self.promised, log.log_end_offset)
        self.truncated = False
        if self.written:
            last = Batch(self.written[-1].data)
            self.producer_id, self.sequence = last.producer_id, last.base_sequence + last.last_offset_delta + 1
        else:
            self.producer_id, self.sequence = self.producer_id + 1, 0

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} (promised {self.promised}, start {self.start})"


def read_all(log: Log) -> list[StoredBatch]:
    """Every batch of a log, from its first segment on."""
    found: list[StoredBatch] = []
    for segment in log.segments:
        data = segment.opened.pread(segment.size, 0)
        found += [
            StoredBatch(each.base_offset, each.last_offset, data[each.position : each.position + each.size])
            for each in batches(data)
        ]
    return found
