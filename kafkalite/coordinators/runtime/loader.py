"""Loads a shard: replays its partition from the log start, in the background.

Invariants:
1. Memory is bounded: two shards are loaded at a time, each with one chunk of `InternalTopic.load_bytes`, or one larger
   batch, and the pending records of rule 4. Reading is a job; records are applied in slices of about a millisecond,
   between which the loop serves other requests.
2. A record that cannot be decoded is skipped: one warning has offset and type of the first, one line the number of all.
   Only a partition that cannot be read fails the replay. Where the serde does not skip, such a record fails it too: the
   line names its offset.
3. While a shard is loading, the garbage collector is off, because everything that is loaded stays. In a broker process
   the objects are then frozen: the first collection after a load of a million offsets took 117 ms.
4. Among records of a type without an order among its keys, only the last one of each key counts. They are pending, up
   to a bound, so that a record that a later one replaces is not decoded: most records of a log of commits.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from kafkalite.clock import Clock, Offload, Outcome, Timer
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.read_ahead import ReadAhead
from kafkalite.cluster.partition.reads import read
from kafkalite.cluster.topics.internal_topics import INTERNAL_TOPICS, OFFSETS
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordinators.runtime.record_serde import RecordSerde
from kafkalite.errors import DecodeError, KafkaErrorCode
from kafkalite.gc_pause import PAUSE
from kafkalite.records import Batch, BatchError, Record
from kafkalite.records.control import ControlType, read_marker

LOGGER = logging.getLogger("kafkalite.coordinators")
LOADS_AT_ONCE = 2
TYPE_SIZE = 2
NOTHING = object()
# A slice takes one or two milliseconds.
SLICE_WEIGHT = 2_000
ORDERED_WEIGHT = 20  # of a record that is applied immediately; a pending one has weight 1
PENDING_RECORDS_MAX = 200_000
PENDING_BYTES_MAX = 32 * 1024 * 1024
APPLIED_PER_SLICE = 100


class RecordError(ValueError):
    """A record that decodes, but has contents that are impossible."""


class UnreadableRecordError(ValueError):
    """A record that cannot be decoded or applied, in a partition whose serde does not skip it."""


class LoaderHost(Protocol):
    """The broker, as a loader needs it."""

    config: BrokerConfig
    read_ahead: ReadAhead

    @property
    def clock(self) -> Clock: ...

    @property
    def offload(self) -> Offload: ...


class Region(Protocol):
    """A range of bytes in a file."""

    def read(self) -> bytes: ...


class LoadQueue:
    """The replays of a coordinator: some run, the others wait in order."""

    def __init__(self, at_once: int = LOADS_AT_ONCE) -> None:
        self._free = at_once
        self._queue: deque[CoordinatorLoader] = deque()
        self._beginning = False

    def begin(self, loading: "CoordinatorLoader") -> None:
        """Add a replay; it starts when fewer than the limit are running."""
        self._queue.append(loading)
        self._start()

    def ended(self, loading: "CoordinatorLoader") -> None:
        """A replay has ended or was stopped."""
        if loading in self._queue:
            self._queue.remove(loading)
        else:
            self._free += 1
            self._start()

    def _start(self) -> None:
        if self._beginning:  # a replay that ends immediately: the loop below starts the next one
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
        partition: read up to its current high watermark.
        serde: decodes records.
        loads: the queue of replays.
        apply: called with each record, in order.
        done: called once with 0 or an error code, unless stopped before; perhaps before `begin` returns.
    """

    def __init__(
        self,
        host: LoaderHost,
        partition: Partition,
        serde: RecordSerde,
        loads: LoadQueue,
        apply: Callable[[object], None],
        done: Callable[[int], None],
    ) -> None:
        self._host = host
        self._partition = partition
        self._serde = serde
        self._loads = loads
        self._begun = False
        self._apply = apply
        self._done: Callable[[int], None] | None = done
        self._offset = 0
        self._end = 0
        self._name = f"{partition.topic}-{partition.index}"
        self._skipped = 0
        self._last_of_key: dict[bytes, Record] = {}  # pending records by key (rule 4)
        self._pending_bytes = 0
        self._slice: Timer | None = None

    def begin(self) -> None:
        """Enter the queue."""
        self._loads.begin(self)

    def start(self) -> None:
        """Start to read; called by the queue."""
        self._begun = True
        self._offset = self._partition.log_start_offset
        self._end = self._partition.high_watermark
        PAUSE.begin()
        self._next()

    def stop(self) -> None:
        """Stop; `done` is not called."""
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
            self._go_on(self._apply_pending(), partial(self._finish, 0))
            return
        size = INTERNAL_TOPICS.get(self._partition.topic, OFFSETS).load_bytes(self._host.config)
        done = None if read_ahead is None else read_ahead.value
        found = read(self._partition, self._offset, size, committed_only=False, read_ahead=done)
        if found.error:
            self._finish(found.error)
        elif found.miss is not None:
            self._host.read_ahead.read(found.miss, self._next)
        elif not found.regions:  # compaction has removed all later records
            self._go_on(self._apply_pending(), partial(self._finish, 0))
        else:
            self._host.offload.run(read_all, found.regions, done=self._chunk)

    def _unreadable(self, error: BaseException) -> None:
        LOGGER.error("%s: load failed: %s", self._name, error)
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
        """Apply a slice, then continue in the next loop iteration; call `then` after the last slice."""
        self._slice = None
        try:
            next(steps)
        except StopIteration:
            then()
        except BatchError as error:  # no valid batch at the expected position
            self._unreadable(OSError(f"damaged after offset {self._offset}: {error}"))
        except UnreadableRecordError as error:
            self._unreadable(OSError(str(error)))
        else:
            self._slice = self._host.clock.call_at(self._host.clock.monotonic(), self._go_on, steps, then)

    def _records(self, chunk: bytes) -> Iterator[None]:
        """Apply the records of a chunk, with a pause after each slice."""
        pending, unordered, weight, position = self._last_of_key, self._serde.unordered, 0, 0
        while position < len(chunk):
            batch = Batch(chunk, position)
            position += batch.size
            ordered = batch.transactional
            if pending and ordered:  # pending records precede this batch
                yield from self._apply_pending()
            for record in self._readable(batch):
                key = record.key
                if key is not None and key[:TYPE_SIZE] in unordered and not ordered:
                    before = pending.get(key)
                    self._pending_bytes += len(record.value or b"")
                    self._pending_bytes += len(key) if before is None else -len(before.value or b"")
                    pending[key] = record
                    weight += 1
                else:
                    self._apply_record(batch, record)
                    weight += ORDERED_WEIGHT
            if weight >= SLICE_WEIGHT:
                weight = 0
                yield
            self._offset = batch.last_offset + 1
        if len(pending) > PENDING_RECORDS_MAX or self._pending_bytes > PENDING_BYTES_MAX:
            yield from self._apply_pending()

    def _apply_pending(self) -> Iterator[None]:
        for at, record in enumerate(self._last_of_key.values()):
            self._decode(record, self._serde.decode)
            if at % APPLIED_PER_SLICE == APPLIED_PER_SLICE - 1:
                yield
        self._last_of_key.clear()
        self._pending_bytes = 0

    def _readable(self, batch: Batch) -> list[Record]:
        try:
            batch.check_crc()
            records = batch.records()
        except BatchError as error:
            self._skip(batch.base_offset, f"unreadable batch ({error})")
            return []
        return records if batch.base_offset >= self._offset else [r for r in records if r.offset >= self._offset]

    def _apply_record(self, batch: Batch, record: Record) -> None:
        if batch.control:
            self._decode(record, partial(self._marker, batch, record))
        elif batch.transactional:
            self._decode(record, partial(self._pending, batch.producer_id))
        else:
            self._decode(record, self._serde.decode)

    def _marker(self, batch: Batch, record: Record, _key: bytes, _value: bytes | None) -> object | None:
        marker = read_marker(record)
        if marker is None:
            return NOTHING
        return self._serde.end_transaction(batch.producer_id, committed=marker.type is ControlType.COMMIT)

    def _pending(self, producer_id: int, key: bytes, value: bytes | None) -> object | None:
        decoded = self._serde.decode(key, value)
        return None if decoded is None else self._serde.in_transaction(producer_id, decoded)

    def _decode(self, record: Record, decode: Callable[[bytes, bytes | None], object | None]) -> None:
        if record.key is None:
            self._skip(record.offset, "record without a key")
            return
        try:
            decoded = decode(record.key, record.value)
        except (DecodeError, RecordError, BatchError) as error:
            self._skip(record.offset, f"record of type {type_of(record.key)} ({error})")
            return
        if decoded is None:
            self._skip(record.offset, f"record of unknown type {type_of(record.key)}")
        elif decoded is not NOTHING:
            self._apply_one(record, decoded)

    def _apply_one(self, record: Record, decoded: object) -> None:
        try:
            self._apply(decoded)
        except Exception as error:  # one bad record must not make all groups of the shard unavailable
            if not self._serde.skips_unreadable:
                raise UnreadableRecordError(f"offset {record.offset} cannot be applied: {error!r}") from error
            LOGGER.exception("%s: failed to apply record at offset %d: %r", self._name, record.offset, decoded)

    def _skip(self, offset: int, what: str) -> None:
        if not self._serde.skips_unreadable:
            raise UnreadableRecordError(f"offset {offset}: {what}")
        if not self._skipped:
            LOGGER.warning("%s: skipped offset %d: %s", self._name, offset, what)
        self._skipped += 1


def read_all(regions: Sequence[Region]) -> bytes:
    """Return the bytes of a chunk; a job outside the loop."""
    return b"".join([region.read() for region in regions])


def type_of(key: bytes) -> int:
    """The record type in a key, -1 if the key is too short."""
    return int.from_bytes(key[:TYPE_SIZE], "big", signed=True) if len(key) >= TYPE_SIZE else -1
