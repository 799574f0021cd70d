"""Transactions made by hand, as coordinators and producers would write them, and a plain model of what they mean."""

import random
from dataclasses import replace
from pathlib import Path

from kafkalite._speedups.storage.file import Disk
from kafkalite.records.control import ControlType, Marker, build_marker
from kafkalite.storage.log.log import Log
from tests.kit import logs
from tests.unit.storage.damage import CONFIG, batch


def begin(log: Log, producer: int, sequence: int, count: int = 2, *, epoch: int = 0, transactional: bool = True) -> int:
    """Append one batch of a producer; the answer of `Log.append`."""
    fields = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
    return log.append(batch(count, transactional=transactional, **fields), None, 0)


def end(log: Log, producer: int, kind: ControlType, *, epoch: int = 0, coordinator: int = 0, timestamp: int = 5) -> int:
    """Append a marker; the answer of `Log.append`."""
    return log.append(bytearray(build_marker(Marker(kind, coordinator), producer, epoch, timestamp)), None, 0)


def abort(log: Log, producer: int, *, epoch: int = 0, coordinator: int = 0) -> int:
    return end(log, producer, ControlType.ABORT, epoch=epoch, coordinator=coordinator)


def commit(log: Log, producer: int, *, epoch: int = 0, coordinator: int = 0) -> int:
    return end(log, producer, ControlType.COMMIT, epoch=epoch, coordinator=coordinator)


Entry = tuple[int, int, int, int, int, int, int]


def producers_of(log: Log) -> dict[int, Entry]:
    """The state of each producer in a snapshot."""
    return {
        one.producer_id: (
            one.epoch,
            one.last_sequence,
            one.last_offset,
            one.last_offset_delta,
            one.last_timestamp,
            one.coordinator_epoch,
            one.first_offset_of_transaction,
        )
        for one in log.producers
        if one.last_offset >= 0 or one.coordinator_epoch >= 0
    }


class History:
    """Random producers at work on one log, and what must be true of it: modelled from the responses.

    `aborted`: (producer, first, marker) in the order of the markers; `open`: first offset of each open transaction.
    """

    def __init__(self, log: Log, seed: int) -> None:
        self.log = log
        self.chance = random.Random(seed)
        self.next_sequence: dict[int, int] = {}
        self.open: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []
        self.epochs: dict[int, int] = {}
        self.coordinator = 0

    def step(self) -> None:
        """One batch or marker of a producer, or the end of an iteration."""
        producer = self.chance.randrange(6)
        what = self.chance.random()
        if what < 0.55:
            self._send(producer)
        elif what < 0.75 and producer in self.open:
            self._end(producer)
        elif what < 0.8:
            assert self.log.append(batch(self.chance.randint(1, 3)), None, 0) >= 0
        else:
            assert self.log.write() == 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        assert self.log.write() == 0

    def _send(self, producer: int) -> None:
        transactional = producer in self.open or producer % 3 != 0
        epoch, sequence = self.epochs.get(producer, 0), self.next_sequence.get(producer, 0)
        if producer not in self.open and self.chance.random() < 0.05:
            epoch, sequence = epoch + 1, 0
        count = self.chance.randint(1, 5)
        offset = begin(self.log, producer, sequence, count, epoch=epoch, transactional=transactional)
        assert offset >= 0
        self.epochs[producer], self.next_sequence[producer] = epoch, sequence + count
        if transactional:
            self.open.setdefault(producer, offset)

    def _end(self, producer: int) -> None:
        self.coordinator += self.chance.random() < 0.1
        kind = self.chance.choice(list(ControlType))
        offset = end(self.log, producer, kind, epoch=self.epochs[producer], coordinator=self.coordinator)
        assert offset >= 0
        first = self.open.pop(producer)
        if kind == ControlType.ABORT:
            self.aborted.append((producer, first, offset))


def new_log(directory: Path, disk: Disk | None = None, *, segment_bytes: int = 20_000) -> Log:
    """An empty log."""
    return logs.new_log(disk or Disk(), str(directory), "t", 0, replace(CONFIG, segment_bytes=segment_bytes))
