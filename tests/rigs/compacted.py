"""What compaction may leave of a partition: the judge of compacted logs.

Laws, beside those of `model`:
1. A record that is found was sent: at that offset, with that time, key and value. Above `cleaned`, up to where the
   cleaner may have come, batches are whole and without a gap, as in any log.
2. Of each key the newest required record is found, or a newer one. In the place of a tombstone nothing of its key is
   fine, too, but never an older record; that goes for a younger one as well that the cleaner may have met.
3. Below what the cleaner's checkpoint calls clean, a key is there once.
4. A producer's last batch sent again is a duplicate, even when compaction has left nothing in it.
"""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalite._speedups.records.batch_builder import Builder
from kafkalite._speedups.records.batches import Batch
from kafkalite.storage.log.log import Log
from tests.rigs.model import PartitionModel, StoredBatch

KEYS = 8
TOMBSTONES = 0.2
CODECS = (0, 0, 0, 1, 4)


class Sent(NamedTuple):
    """A record; `value` None is a tombstone."""

    timestamp: int
    key: bytes | None
    value: bytes | None


Records = dict[int, Sent]  # by offset


def batch_of(rng: random.Random, timestamp: int, count: int, number: int, **fields: int) -> bytearray:
    """A batch of a few keys, some of its records tombstones."""
    builder = Builder(1 << 20)
    for index in range(count):
        value = None if rng.random() < TOMBSTONES else b"%d-%d" % (number, index)
        builder.append(timestamp + index, b"k%d" % rng.randrange(KEYS), value)
    return bytearray(builder.build(rng.choice(CODECS), **fields))  # type: ignore[arg-type]


def records_of(stored: StoredBatch) -> Records:
    return {record.offset: Sent(record.timestamp, record.key, record.value) for record in Batch(stored.data).records()}


def newest_of(records: Records) -> dict[bytes | None, int]:
    """The highest offset of each key."""
    return {record.key: offset for offset, record in sorted(records.items())}


@dataclass
class CompactedModel(PartitionModel):
    """`high_watermark`: nothing from there on is cleaned; `cleaned`: nothing from there on was ever looked at."""

    high_watermark: int = 0
    cleaned: int = 0
    clean_until: int = 0
    start_moved: bool = False
    records: dict[int, set[Sent]] = field(default_factory=dict)

    @property
    def compacted(self) -> bool:
        return True

    def sends(self, stored: StoredBatch) -> None:
        super().sends(stored)
        for offset, record in records_of(stored).items():
            self.records.setdefault(offset, set()).add(record)

    def starts_at(self, offset: int) -> None:
        super().starts_at(offset)
        self.start_moved = True

    def looked_at(self, log: Log) -> int:
        """The cleaner asks how far it may go."""
        self.cleaned = max(self.cleaned, min(self.high_watermark, log.active.base_offset))
        return self.high_watermark

    def goes_on_from(self, log: Log) -> None:
        super().goes_on_from(log)
        self.high_watermark = min(self.high_watermark, log.log_end_offset)

    # The judge.

    def _all_required(self, log: Log, found: list[StoredBatch], required: list[StoredBatch]) -> None:
        there = merged(found, log.log_start_offset)
        newest = newest_of(there)
        wanted = merged(required, max(self.start, log.log_start_offset))
        for key, offset in newest_of(wanted).items():
            last = newest.get(key, -1)
            gone = last < 0 and (wanted[offset].value is None or self._buried(key, offset))
            assert last >= offset or gone, f"{self}: lost {key!r} at {offset}, its newest is at {last}"
        self._clean(there)

    def _buried(self, key: bytes | None, offset: int) -> bool:
        """Whether the cleaner may have met a younger tombstone: it syncs what it works on, so that one counts."""
        seen = {at: record for at, record in merged(self.written, offset).items() if at < self.cleaned}
        newest = newest_of(seen).get(key, -1)
        return newest > offset and seen[newest].value is None

    def _clean(self, there: Records) -> None:
        if self.start_moved:  # below an old start there may be what no map has seen
            return
        below = [record.key for offset, record in there.items() if offset < self.clean_until]
        assert len(below) == len(set(below)), f"{self}: below {self.clean_until} a key is there twice"

    def _only_what_was_sent(self, found: list[StoredBatch]) -> None:
        for stored in found:
            Batch(stored.data).check_crc()
            for offset, record in records_of(stored).items():
                assert record in self.records.get(offset, set()), f"{self}: {record} at {offset} was never sent"
            whole = stored.data in self.sent.get(stored.base, set())
            assert whole or stored.base < self.cleaned, f"{self}: the batch at {stored.base} was never sent"

    def _may_be_missing(self, offset: int) -> bool:
        return offset < self.cleaned

    def _last_sent(self, found: list[StoredBatch]) -> StoredBatch | None:
        last = super()._last_sent(found)
        if last is None:
            return None
        is_same = self._identity(last.data)
        (data,) = [data for data in self.sent[last.base] if self._identity(data) == is_same]
        return last._replace(data=data)

    def _identity(self, data: bytes) -> tuple[int, ...]:
        batch = Batch(data)
        return batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_offset_delta, batch.leader_epoch


def merged(found: list[StoredBatch], start: int) -> Records:
    """The records of some batches from `start` on."""
    return {offset: record for stored in found for offset, record in records_of(stored).items() if offset >= start}
