"""Compares the batches of the replicas of a partition, as they are read from all of them.

1. Followers append the batches of their leader as they are, so each replica has the same batches, with the same CRCs.
2. Batches are compared in the order of their base offsets: after a difference the comparison continues with the next
   batch that exists.
3. Retention may raise the log start of one replica meanwhile: what lies below the highest log start is not compared.

Pure.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class StoredBatch(NamedTuple):
    """A batch in the log of a replica; `valid`: its CRC matches its bytes."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    size: int
    crc: int
    valid: bool


class Difference(NamedTuple):
    """What is wrong with a replica; `offset`: where."""

    offset: int
    broker: int
    text: str


class BatchComparison:
    """The batches between two offsets.

    Arguments:
        replicas: broker ids; the first one that has a batch is what the others are compared with.
        start, end: the first offset, and the one behind the last.

    Attributes:
        start, end: as far as replicas have records.
        compared: number of batches that were compared.
    """

    def __init__(self, replicas: Sequence[int], start: int, end: int) -> None:
        self.start, self.end = start, end
        self.compared = 0
        self._next = dict.fromkeys(replicas, start)
        self._batches: dict[int, deque[StoredBatch]] = {replica: deque() for replica in replicas}
        self._ended: set[int] = set()

    def next_reads(self) -> dict[int, int]:
        """The replicas whose next batch is not known, with the offset to read at."""
        return {
            replica: max(offset, self.start)
            for replica, offset in self._next.items()
            if not self._batches[replica] and not self._is_read(replica)
        }

    def _is_read(self, replica: int) -> bool:
        return replica in self._ended or max(self._next[replica], self.start) >= self.end

    def add(self, replica: int, batches: Sequence[StoredBatch], high_watermark: int, log_start_offset: int) -> None:
        """Add what a replica has at the wanted offset; nothing means that it has no batch up to the end.

        Arguments:
            replica: broker id.
            batches: the next ones.
            high_watermark, log_start_offset: of the replica.
        """
        self.end = min(self.end, high_watermark)
        self.start = max(self.start, log_start_offset)
        if batches:
            self._batches[replica].extend(batches)
            self._next[replica] = batches[-1].last_offset + 1
        else:
            self._ended.add(replica)

    def raise_start(self, replica: int, log_start_offset: int) -> None:
        """The wanted offset is outside the log of a replica.

        Arguments:
            replica: broker id.
            log_start_offset: of the replica; if it is not above the offset, the log ends before the offset.
        """
        if log_start_offset <= max(self._next[replica], self.start):
            self._ended.add(replica)
        self.start = max(self.start, log_start_offset)

    def drop(self, replica: int) -> None:
        """Compare a replica no longer: it cannot be read."""
        del self._next[replica], self._batches[replica]

    def differences(self) -> Iterator[Difference]:
        """Compare the batches that are known of all replicas; yields what differs."""
        while True:
            for waiting in self._batches.values():
                while waiting and waiting[0].last_offset < self.start:
                    waiting.popleft()
                while waiting and waiting[-1].base_offset >= self.end:
                    waiting.pop()
            if any(not waiting and not self._is_read(replica) for replica, waiting in self._batches.items()):
                return
            first = {replica: waiting[0] for replica, waiting in self._batches.items() if waiting}
            if not first:
                return
            offset = min(batch.base_offset for batch in first.values())
            present = {replica: batch for replica, batch in first.items() if batch.base_offset == offset}
            yield from compare_batches(present, [replica for replica in self._batches if replica not in present])
            for replica in present:
                self._batches[replica].popleft()
            self.compared += 1


def compare_batches(present: Mapping[int, StoredBatch], missing: Sequence[int]) -> Iterator[Difference]:
    """The differences of the batches at one base offset.

    Arguments:
        present: by broker id, at least one.
        missing: the replicas without one.
    """
    model, expected = next(
        ((each, batch) for each, batch in present.items() if batch.valid), next(iter(present.items()))
    )
    offset = expected.base_offset
    for replica, batch in present.items():
        if not batch.valid:
            yield Difference(offset, replica, f"the batch of offsets {offset} to {batch.last_offset} has a wrong CRC")
        elif batch != expected:
            yield Difference(offset, replica, f"the batch at offset {offset} is not that of broker {model}")
    for replica in missing:
        text = f"the batch of offsets {offset} to {expected.last_offset} is missing, broker {model} has it"
        yield Difference(offset, replica, text)
