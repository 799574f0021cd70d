"""What compaction leaves, in plain Python: random histories, and the batches that stay of them by Kafka's rules."""

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafkalite._speedups.records.batch_builder import Builder
from kafkalite._speedups.records.batches import Batch, Record, batches
from kafkalite._speedups.storage.file import Disk
from kafkalite.config.topic import TopicConfig
from kafkalite.records.control import ControlType, Marker, build_marker, control_type
from kafkalite.storage import names
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.segment import Segment
from tests.kit.logs import new_log

CONFIG = replace(TopicConfig(), segment_bytes=3_000, index_interval_bytes=400, cleanup_policy=("compact",))
Aborted = tuple[int, int, int, int]
Kept = tuple[int, int, int, int, int, int, int, int, bool, bool, tuple[tuple[object, ...], ...]]


@dataclass
class History:
    """A log being written by several producers, and the state that a cleaner needs."""

    log: Log
    random: random.Random
    keys: int = 12
    codecs: tuple[int, ...] = (0, 0, 1, 2, 3, 4)
    timestamp: int = 1_000_000
    aborted: list[Aborted] = field(default_factory=list)
    last: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    _open: dict[int, int] = field(default_factory=dict)
    _sequences: dict[int, int] = field(default_factory=dict)

    def append(self, batch: bytes | bytearray) -> int:
        """Write one batch; answers its base offset."""
        offset = self.log.append(bytearray(batch), None, 3)
        assert offset >= 0
        assert self.log.write() == 0
        return offset

    def batch(self, producer_id: int = -1, *, transactional: bool = False) -> None:
        """A batch of one to five records, some of them tombstones."""
        builder = Builder(1 << 20)
        count = self.random.randint(1, 5)
        for _ in range(count):
            self.timestamp += self.random.randint(0, 5)
            key = b"key-%d" % self.random.randrange(self.keys)
            value = None if self.random.random() < 0.2 else self.random.randbytes(self.random.randint(0, 60))
            headers = [("h", b"x")] if self.random.random() < 0.2 else []
            builder.append(self.timestamp, key, value, headers)
        sequence = self._sequences.get(producer_id, 0)
        offset = self.append(
            builder.build(
                self.random.choice(self.codecs),
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=sequence if producer_id >= 0 else -1,
                transactional=transactional,
            )
        )
        if producer_id >= 0:
            self._sequences[producer_id] = sequence + count
            self.last[producer_id] = (producer_id, offset + count - 1, 0)
        if transactional:
            self._open.setdefault(producer_id, offset)

    def end(self, producer_id: int, kind: ControlType) -> None:
        """End the transaction of a producer."""
        first = self._open.pop(producer_id, -1)
        offset = self.append(build_marker(Marker(kind, 0), producer_id, 0, self.timestamp))
        if kind is ControlType.ABORT and first >= 0:
            stable = min(self._open.values(), default=offset + 1)
            self.aborted.append((producer_id, first, offset, stable))

    def step(self) -> None:
        """Something random."""
        chance = self.random.random()
        if self._open and chance < 0.2:
            kind = self.random.choice(list(ControlType))
            self.end(self.random.choice(list(self._open)), kind)
        elif chance < 0.5:
            self.batch(self.random.randrange(7, 10), transactional=True)
        elif chance < 0.7:
            self.batch(self.random.randrange(1, 4))
        else:
            self.batch()

    def end_and_roll(self) -> None:
        """End what is open, and roll, so that all of it may be cleaned."""
        for producer_id in list(self._open):
            self.end(producer_id, self.random.choice(list(ControlType)))
        self.log.roll(self.log.log_end_offset)


def written(directory: Path, seed: int, steps: int, config: TopicConfig = CONFIG) -> History:
    """A log with a random history, all of it in closed segments but for an empty active one."""
    history = History(new_log(Disk(), str(directory), "t", 0, config), random.Random(seed))
    for _ in range(steps):
        history.step()
    history.end_and_roll()
    return history


def batches_of(segments: list[Segment]) -> list[Batch]:
    """Every batch of some segments; each has a right CRC."""
    found = [batch for segment in segments for batch in batches(Path(segment.path(names.LOG)).read_bytes())]
    for batch in found:
        batch.check_crc()
    return found


def record_of(record: Record) -> tuple[object, ...]:
    return record.offset, record.timestamp, record.key, record.value, record.headers


def facts(batch: Batch) -> Kept:
    """What must be right of a batch that stayed. The delete horizon and the timestamps give the time base."""
    horizon = batch.base_timestamp if batch.delete_horizon else -1
    return (
        batch.base_offset, batch.last_offset, batch.leader_epoch, batch.producer_id, batch.producer_epoch,
        batch.base_sequence, horizon, batch.max_timestamp, batch.transactional, batch.control,
        tuple(record_of(record) for record in batch),
    )  # fmt: skip


class Oracle:
    """The rules of LogCleaner.scala and MemoryRecords.filterTo, over whole lists."""

    def __init__(self, aborted: list[Aborted], last: list[tuple[int, int, int]], now: int, retention: int) -> None:
        self.aborted = sorted(aborted, key=lambda entry: entry[1])
        self.last = {producer_id: (offset, epoch) for producer_id, offset, epoch in last}
        self.now = now
        self.retention = retention
        self.kept_aborted: list[Aborted] = []

    def gone(self, found: list[Batch]) -> dict[int, bool]:
        """By base offset: whether the batch was aborted, or is a marker with nothing left of its transaction."""
        waiting, ongoing, committed = list(self.aborted), dict[int, list[object]](), set[int]()
        answers = {}
        self.kept_aborted = []
        for batch in found:
            if batch.control or batch.transactional:
                while waiting and waiting[0][1] <= batch.last_offset:
                    entry = waiting.pop(0)
                    ongoing.setdefault(entry[0], [entry, False])
            if batch.control:
                kinds = [control_type(record) for record in batch]
                if not kinds:
                    answers[batch.base_offset] = True
                elif kinds[0] == ControlType.ABORT:
                    state = ongoing.pop(batch.producer_id, None)
                    if state is not None and state[1]:
                        self.kept_aborted.append(state[0])  # type: ignore[arg-type]
                    answers[batch.base_offset] = state is None or not state[1]
                else:
                    answers[batch.base_offset] = batch.producer_id not in committed
                    committed.discard(batch.producer_id)
            elif batch.transactional and batch.producer_id in ongoing:
                ongoing[batch.producer_id][1] = True
                answers[batch.base_offset] = True
            else:
                if batch.transactional:
                    committed.add(batch.producer_id)
                answers[batch.base_offset] = False
        return answers

    def newest(self, found: list[Batch], start: int) -> dict[bytes, int]:
        """The map of the first pass."""
        gone = self.gone(found)
        return {
            record.key: record.offset
            for batch in found
            if not batch.control and not gone[batch.base_offset]
            for record in batch
            if record.key is not None and record.offset >= start
        }

    def clean(self, found: list[Batch], start: int, upper: int) -> list[Kept]:
        """What stays when the offsets from `start` to below `upper` are dirty; the last batch is the group's last."""
        newest = self.newest(found, start)
        gone = self.gone(found)
        return [
            kept
            for batch in found
            if (kept := self.clean_batch(batch, gone[batch.base_offset], newest, batch is found[-1], upper))
        ]

    def clean_batch(self, batch: Batch, gone: bool, newest: dict[bytes, int], final: bool, upper: int) -> Kept | None:
        horizon = batch.base_timestamp if batch.delete_horizon else -1
        passed = batch.delete_horizon and horizon <= self.now
        records = [] if gone and (not batch.control or passed) else list(batch)
        if not batch.control:
            records = [
                record
                for record in records
                if record.key is not None
                and record.offset >= newest.get(record.key, -1)
                and (record.value is not None or not passed)
            ]
        if not records and not (final or self.is_last(batch) or batch.last_offset + 1 == upper):
            return None
        timestamp = batch.max_timestamp
        if records:
            timestamp = max(record.timestamp for record in records)
            meets = any(record.value is None for record in records) or (batch.control and gone)
            if meets and not batch.delete_horizon:
                horizon = self.now + self.retention
        else:
            horizon = -1
        return (
            batch.base_offset, batch.last_offset, batch.leader_epoch, batch.producer_id, batch.producer_epoch,
            batch.base_sequence, horizon, timestamp, batch.transactional, batch.control,
            tuple(record_of(record) for record in records),
        )  # fmt: skip

    def is_last(self, batch: Batch) -> bool:
        if batch.producer_id not in self.last:
            return False
        offset, epoch = self.last[batch.producer_id]
        if offset >= 0:
            return batch.last_offset == offset
        return batch.control and batch.producer_epoch == epoch
