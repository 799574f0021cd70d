"""Reads logs by fetches: committed records as Kafka's consumers do, and all batches with their markers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafkalite.errors import KafkaErrorCode, KafkaTimeoutError
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkalite.records import batches
from tests.kit.server import fetch_request, fetched
from tests.kit.transactions.history import History, Partition, number_of
from tests.kit.transactions.markers import Entry, entries_of
from tests.kit.transactions.wire import GROUP, MOVED, NO_CONNECTION, Retries, Wire, pause

COMMITTED = 1
FETCH_VERSION, OFFSETS_VERSION = 12, 7
FETCH_BYTES = 1 << 20
BACKOFF_S = 0.05


class Fetched(NamedTuple):
    """Committed records as (offset, number), the offset of the next fetch, and the ends of the log."""

    records: list[tuple[int, int]]
    next_offset: int
    last_stable_offset: int
    high_watermark: int


async def fetch_part(wire: Wire, partition: Partition, offset: int, *, committed: bool, size: int = FETCH_BYTES) -> Any:
    """One fetch of a partition from its leader. Raises NO_CONNECTION, also for errors of the partition."""
    request = fetch_request(
        partition[0], (partition[1], offset), isolation_level=COMMITTED if committed else 0, partition_max_bytes=size
    )
    part = fetched(await wire.call(await wire.leader(partition), request, FETCH_VERSION))[partition]
    if part.error_code:
        wire.forget_leaders([partition])
        raise KafkaTimeoutError(f"{partition}: error {part.error_code}")
    return part


async def fetch_committed(wire: Wire, partition: Partition, offset: int, size: int = FETCH_BYTES) -> Fetched:
    """The committed records from an offset on. Raises NO_CONNECTION.

    Source: CompletedFetch.java of Apache Kafka: a batch of a producer between the first offset of an aborted
    transaction and its marker is dropped.
    """
    part = await fetch_part(wire, partition, offset, committed=True, size=size)
    aborted = sorted((each.first_offset, each.producer_id) for each in part.aborted_transactions or ())
    dropped: set[int] = set()
    records: list[tuple[int, int]] = []
    next_offset = offset
    for batch in batches(part.records or b""):
        while aborted and aborted[0][0] <= batch.last_offset:
            dropped.add(aborted.pop(0)[1])
        next_offset = batch.last_offset + 1
        if batch.control:
            dropped.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in dropped):
            records += [(each.offset, number_of(each.value)) for each in batch if each.offset >= offset]
    return Fetched(records, max(next_offset, offset), part.last_stable_offset, part.high_watermark)


class CommittedReader:
    """Follows partitions from their beginning, with isolation level read_committed.

    Arguments:
        wire: its connections.
        history: notes what it reads.
        name: of the reader.
        partitions: that it reads.
    """

    def __init__(self, wire: Wire, history: History, name: str, partitions: Iterable[Partition]) -> None:
        self._wire = wire
        self._history = history
        self._name = name
        self.positions: dict[Partition, int] = dict.fromkeys(partitions, 0)
        history.reading(name, self.positions)

    async def run(self, is_running: Callable[[], bool], pause_s: Callable[[], float]) -> None:
        """Read all partitions in turns."""
        while is_running():
            for partition in self.positions:
                try:
                    await self.read_some(partition)
                except NO_CONNECTION:
                    await pause(BACKOFF_S)
            await pause(pause_s())

    async def read_some(self, partition: Partition) -> Fetched:
        """One fetch. Raises NO_CONNECTION."""
        found = await fetch_committed(self._wire, partition, self.positions[partition])
        for offset, number in found.records:
            self._history.read(self._name, partition, offset, number)
        self.positions[partition] = found.next_offset
        return found

    async def read_to_end(self, retries: Retries) -> None:
        """Read until all partitions are read to their high watermarks. Raises KafkaTimeoutError after the deadline."""
        for partition in self.positions:
            while True:
                cause: object
                try:
                    found = await self.read_some(partition)
                    if found.next_offset >= found.high_watermark:
                        break
                    cause = f"{partition}: LSO {found.last_stable_offset} below {found.high_watermark}"
                    if found.records:
                        continue
                except NO_CONNECTION as error:
                    cause = error
                await retries.wait(cause)


async def read_entries(wire: Wire, partitions: Iterable[Partition]) -> dict[Partition, list[Entry]]:
    """The transactional batches and markers of logs that do not change. Raises NO_CONNECTION."""
    logs: dict[Partition, list[Entry]] = {}
    for partition in partitions:
        log = logs[partition] = []
        offset = 0
        while True:
            part = await fetch_part(wire, partition, offset, committed=False, size=FETCH_BYTES)
            if not part.records:
                break
            log += [each for each in entries_of(part.records) if each.last_offset >= offset]
            offset = batches(part.records)[-1].last_offset + 1
    return logs


async def wait_stable(wire: Wire, partition: Partition, retries: Retries) -> tuple[int, int]:
    """Wait until the last stable offset of a partition is its high watermark; returns both.

    Raises:
        KafkaTimeoutError: they differ at the deadline.
    """
    while True:
        try:
            part = await fetch_part(wire, partition, 0, committed=True, size=1)
            ends: tuple[int, int] = part.last_stable_offset, part.high_watermark
            if ends[0] == ends[1]:
                return ends
            cause: object = f"{partition}: LSO {ends[0]} below {ends[1]}"
        except NO_CONNECTION as error:
            cause = error
        await retries.wait(cause)


async def committed_offsets(
    wire: Wire, group: str, partitions: Iterable[Partition], retries: Retries
) -> Mapping[Partition, int]:
    """The stable committed offset of each partition, 0 = none. Raises KafkaTimeoutError after the deadline."""
    kind = OffsetFetchRequest.OffsetFetchRequestTopic
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    asked = [kind(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    request = OffsetFetchRequest(group_id=group, topics=asked, require_stable=True)
    while True:
        try:
            found = await wire.coordinated(GROUP, group, request, OFFSETS_VERSION)
            parts = {(topic.name, part.partition_index): part for topic in found.topics for part in topic.partitions}
            codes = {found.error_code, *(part.error_code for part in parts.values())} - {KafkaErrorCode.NONE}
            if not codes:
                return {each: max(part.committed_offset, 0) for each, part in parts.items()}
            if codes & MOVED:
                wire.forget_coordinator(GROUP, group)
            cause: object = codes
        except NO_CONNECTION as error:
            cause = error
        await retries.wait(cause)
