"""The replay of a shard: its partition is read from the beginning, in the background.

Laws:
1. Memory is bounded: two shards are loaded at a time, each with one chunk of `offsets.load.buffer.size`, or one batch
   where that is larger, and what law 4 holds back. Reading is a job; records are applied in slices of about a
   millisecond, between which the loop serves others.
2. What cannot be read as a record is skipped: one warning names offset and type of the first, one line counts all.
   Only a partition that cannot be read fails the replay.
3. While any shard is loading, the garbage collector is off: all that is loaded stays. Where the process is ours, it is
   then frozen: the first collection behind a load of a million offsets took 117 ms.
4. Of the records of a type that has no order among its keys only the last one of each key counts. They are held back,
   up to a bound, so that one that a later record replaces is never decoded: that is most of a log of commits.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kafkalite._speedups.storage.page_cache import ReadAttempt
from kafkalite.clock import Clock, Offload, Outcome, Timer
from kafkalite.cluster.partition import Partition
from kafkalite.cluster.partition_reads import read
from kafkalite.cluster.read_ahead import ReadAhead
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import DecodeError, KafkaErrorCode
from kafkalite.gc_pause import PAUSE
from kafkalite.records import Batch, BatchError, Record
from kafkalite.records.control import ControlType, read_marker

if TYPE_CHECKING:
    from kafkalite.coordinators.runtime.partition_writer import RecordSerde

__all__ = ["CoordinatorLoader", "LoadQueue", "RecordError"]

LOGGER = logging.getLogger("kafkalite.coordinators")
LOADS_AT_ONCE = 2
TYPE_SIZE = 2
NOTHING = object()
# A slice takes a millisecond or two: so many records are looked at, or applied.
SLICE_WEIGHT = 2_000
ORDERED_WEIGHT = 20  # a record that is applied at once, against one that is only looked at
HELD_RECORDS_MAX = 200_000
HELD_BYTES_MAX = 32 * 1024 * 1024
APPLIED_PER_SLICE = 100


class RecordError(ValueError):
    """A record that decodes, but says what cannot be."""


class LoaderHost(Protocol):
    """The broker around."""

    config: BrokerConfig
    read_ahead: ReadAhead

    @property
    def clock(self) -> Clock: ...

    @property
    def offload(self) -> Offload: ...


class Region(Protocol):
    """A run of bytes in a file."""

    def read(self) -> bytes: ...


class LoadQueue:
    """The replays of a coordinator: some at a time, the others in the order they came."""

    def __init__(self, at_once: int = LOADS_AT_ONCE) -> None:
        self._free = at_once
        self._queue: deque[CoordinatorLoader] = deque()
        self._beginning = False

    def begin(self, loading: "CoordinatorLoader") -> None:
        """Start it when there is room."""
        self._queue.append(loading)
        self._start()

    def ended(self, loading: "CoordinatorLoader") -> None:
        """It is over, or nobody wants it any more."""
        if loading in self._queue:
            self._queue.remove(loading)
        else:
            self._free += 1
            self._start()

    def _start(self) -> None:
        if self._beginning:  # one that ends at once comes by here: a loop, for there may be many
            return
        self._beginning = True
        try:
            while self._queue and self._free:
                self._free -= 1
                self._queue.popleft().start()
        finally:
            self._beginning = False


class CoordinatorLoader:
    """One replay.

    Arguments:
        host: the broker.
        partition: what is read, up to its high watermark of now.
        codec: records from bytes.
        loads: where it takes its turn.
        apply: gets each record, in order.
        done: called once with 0 or an error code, unless stopped before; perhaps before `begin` returns.
    """

    def __init__(
        self,
        host: LoaderHost,
        partition: Partition,
        codec: "RecordSerde",
        loads: LoadQueue,
        apply: Callable[[object], None],
        done: Callable[[int], None],
    ) -> None:
        self._host = host
        self._partition = partition
        self._codec = codec
        self._loads = loads
        self._begun = False
        self._apply = apply
        self._done: Callable[[int], None] | None = done
        self._offset = 0
        self._end = 0
        self._name = f"{partition.topic}-{partition.index}"
        self._skipped = 0
        self._held: dict[bytes, Record] = {}  # by key (law 4)
        self._held_bytes = 0
        self._slice: Timer | None = None

    def begin(self) -> None:
        """Take a turn."""
        self._loads.begin(self)

    def start(self) -> None:
        """Begin to read."""
        self._begun = True
        self._offset = self._partition.log_start_offset
        self._end = self._partition.high_watermark
        PAUSE.begin()
        self._next()

    def stop(self) -> None:
        """Give up; nobody is told."""
        if self._slice is not None:
            self._slice.cancel()
        if self._done is not None:
            self._done = None
            self._leave()

    def _finish(self, error: int) -> None:
        done, self._done = self._done, None
        assert done is not None, "a replay ends once"
        if self._skipped > 1:
            LOGGER.warning("%s: %d records were skipped", self._name, self._skipped)
        try:
            done(error)
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._begun:
            PAUSE.end()
        self._loads.ended(self)

    def _next(self, read_ahead: Outcome | None = None) -> None:
        if self._done is None:
            return
        if read_ahead is not None and read_ahead.error is not None:
            self._unreadable(read_ahead.error)
            return
        if self._offset >= self._end and not self._partition.error:
            self._go_on(self._apply_held(), partial(self._finish, 0))
            return
        size = self._host.config.offsets_load_buffer_size
        attempt = ReadAttempt(self._offset, size, read_ahead=None if read_ahead is None else read_ahead.value)
        found = read(self._partition, attempt, committed_only=False)
        if found.error:
            self._finish(found.error)
        elif found.miss is not None:
            self._host.read_ahead.read(found.miss, self._next)
        elif not found.regions:  # compaction has emptied the rest
            self._go_on(self._apply_held(), partial(self._finish, 0))
        else:
            self._host.offload.run(read_all, found.regions, done=self._chunk)

    def _unreadable(self, error: BaseException) -> None:
        LOGGER.error("%s: cannot be loaded: %s", self._name, error)
        self._finish(KafkaErrorCode.KAFKA_STORAGE_ERROR)
        if not isinstance(error, OSError):
            raise error

    def _chunk(self, outcome: Outcome) -> None:
        if self._done is None:
            return
        if outcome.error is not None:
            self._unreadable(outcome.error)
        else:
            self._go_on(self._records(outcome.value), self._next)

    def _go_on(self, steps: Iterator[None], then: Callable[[], None]) -> None:
        """Apply a slice, then let the loop serve others; `then` after the last one."""
        self._slice = None
        try:
            next(steps)
        except StopIteration:
            then()
        except BatchError as error:  # no batch begins where one should
            self._unreadable(OSError(f"damaged behind offset {self._offset}: {error}"))
        else:
            self._slice = self._host.clock.call_at(self._host.clock.monotonic(), self._go_on, steps, then)

    def _records(self, chunk: bytes) -> Iterator[None]:
        """Apply the records of a chunk, with a pause after each slice."""
        held, unordered, taken, position = self._held, self._codec.unordered, 0, 0
        while position < len(chunk):
            batch = Batch(chunk, position)
            position += batch.size
            ordered = batch.transactional
            if held and ordered:  # what is pending has an order
                yield from self._apply_held()
            for record in self._readable(batch):
                key = record.key
                if key is not None and key[:TYPE_SIZE] in unordered and not ordered:
                    before = held.get(key)
                    self._held_bytes += len(record.value or b"")
                    self._held_bytes += len(key) if before is None else -len(before.value or b"")
                    held[key] = record
                    taken += 1
                else:
                    self._take(batch, record)
                    taken += ORDERED_WEIGHT
            if taken >= SLICE_WEIGHT:
                taken = 0
                yield
            self._offset = batch.last_offset + 1
        if len(held) > HELD_RECORDS_MAX or self._held_bytes > HELD_BYTES_MAX:
            yield from self._apply_held()

    def _apply_held(self) -> Iterator[None]:
        for at, record in enumerate(self._held.values()):
            self._decode(record, self._codec.decode)
            if at % APPLIED_PER_SLICE == APPLIED_PER_SLICE - 1:
                yield
        self._held.clear()
        self._held_bytes = 0

    def _readable(self, batch: Batch) -> list[Record]:
        try:
            batch.check_crc()
            records = batch.records()
        except BatchError as error:
            self._skip(batch.base_offset, f"a batch that cannot be read ({error})")
            return []
        return records if batch.base_offset >= self._offset else [r for r in records if r.offset >= self._offset]

    def _take(self, batch: Batch, record: Record) -> None:
        if batch.control:
            self._decode(record, partial(self._marker, batch, record))
        elif batch.transactional:
            self._decode(record, partial(self._pending, batch.producer_id))
        else:
            self._decode(record, self._codec.decode)

    def _marker(self, batch: Batch, record: Record, _key: bytes, _value: bytes | None) -> object | None:
        marker = read_marker(record)
        if marker is None:
            return NOTHING
        return self._codec.ended(batch.producer_id, committed=marker.type is ControlType.COMMIT)

    def _pending(self, producer_id: int, key: bytes, value: bytes | None) -> object | None:
        decoded = self._codec.decode(key, value)
        return None if decoded is None else self._codec.in_transaction(producer_id, decoded)

    def _decode(self, record: Record, decode: Callable[[bytes, bytes | None], object | None]) -> None:
        if record.key is None:
            self._skip(record.offset, "a record without a key")
            return
        try:
            decoded = decode(record.key, record.value)
        except (DecodeError, RecordError, BatchError) as error:
            self._skip(record.offset, f"a record of type {type_of(record.key)} ({error})")
            return
        if decoded is None:
            self._skip(record.offset, f"a record of type {type_of(record.key)}, which is not known here")
        elif decoded is not NOTHING:
            self._apply_one(record, decoded)

    def _apply_one(self, record: Record, decoded: object) -> None:
        try:
            self._apply(decoded)
        except Exception:  # one record must not keep all groups of the shard from their members
            LOGGER.exception("%s: failed to apply record at offset %d: %r", self._name, record.offset, decoded)

    def _skip(self, offset: int, what: str) -> None:
        if not self._skipped:
            LOGGER.warning("%s: skipped record at offset %d: %s", self._name, offset, what)
        self._skipped += 1


def read_all(regions: Sequence[Region]) -> bytes:
    """A job: the bytes of a chunk."""
    return b"".join([region.read() for region in regions])


def type_of(key: bytes) -> int:
    """The record type that a key names, -1 where it is too short to name one."""
    return int.from_bytes(key[:TYPE_SIZE], "big", signed=True) if len(key) >= TYPE_SIZE else -1
