"""The index of aborted transactions of a segment, `<base>.txnindex`: the records that read_committed consumers skip.

Kafka's layout (AbortedTxn.java): entries of 34 bytes, int16 version 0, then int64 producer id, first offset, last
offset (that of the abort marker) and last stable offset (after the marker was written).

1. A segment without aborted transactions has no file.
2. The last offsets of the entries increase; none is below the base offset of the segment.
3. An entry is written after its marker, in the same loop iteration; if a write fails, both are truncated.
4. Recovery rebuilds an unreadable file from the batches.

Sources: TransactionIndex.java, AbortedTxn.java, LocalLog.collectAbortedTransactions.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk

VERSION = 0
ENTRY = struct.Struct(">hqqqq")  # version, producer id, first offset, last offset, last stable offset
LAST_OFFSET = struct.Struct(">q")
LAST_OFFSET_AT = 18


class BadTransactionIndex(OSError):
    """The bytes are not a valid index of aborted transactions; the message contains the path."""


class AbortedTransaction(NamedTuple):
    """One aborted transaction of a producer in a partition.

    Arguments:
        producer_id: of the producer.
        first_offset: of its first record.
        last_offset: of its abort marker.
        last_stable_offset: first offset of the next transaction that was open then, or the one after the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The index of one segment; read at its first use.

    Arguments:
        disk, path: of the file, which is created with the first entry.
        base_offset: of the segment.
        present: whether there is a file.
    """

    __slots__ = ("_bad", "_data", "base_offset", "damaged", "disk", "path", "unsynced")

    def __init__(self, disk: Disk, path: str, base_offset: int, *, present: bool = False) -> None:
        self.disk = disk
        self.path = path
        self.base_offset = base_offset
        self.damaged = False
        self.unsynced = False
        self._data: bytearray | None = None if present else bytearray()
        self._bad: BadTransactionIndex | None = None  # the error of the last read

    def __bool__(self) -> bool:
        """Whether it has entries, or a file that was not read yet."""
        return self._data is None or len(self._data) > 0

    def __len__(self) -> int:
        """The number of entries. Raises BadTransactionIndex, OSError."""
        return len(self._loaded()) // ENTRY.size

    @property
    def memory(self) -> int:
        """Bytes of the loaded entries."""
        return len(self._data or b"")

    @property
    def in_memory(self) -> bool:
        """Whether the file was read, or does not exist."""
        return self._data is not None or self._bad is not None

    def load(self) -> None:
        """Read and check the file now. Raises BadTransactionIndex, OSError."""
        self._loaded()

    def apart(self) -> "TransactionIndex":
        """This index for a job, which loads it; `take_over` brings the result back."""
        return TransactionIndex(self.disk, self.path, self.base_offset, present=bool(self))

    def take_over(self, twin: "TransactionIndex") -> None:
        """Use the entries that a job has loaded."""
        if not self.in_memory:
            self._data, self._bad = twin._data, twin._bad

    def unload(self) -> None:
        """Free the memory; the file is read again at the next use."""
        self._bad = None
        if self._data:
            self._data = None

    def _loaded(self) -> bytearray:
        if self._bad is not None:
            raise self._bad
        if self._data is None:
            data = bytearray(self.disk.read_bytes(self.path))
            try:
                check(data, self.base_offset, self.path)
            except BadTransactionIndex as error:
                self._bad = error
                raise
            self._data = data
        return self._data

    def ignore_file(self) -> None:
        """Treat an unreadable file as empty; it stays until `replace` is called."""
        self.damaged = True
        self._data, self._bad = bytearray(), None

    def entries(self) -> list[AbortedTransaction]:
        """All entries, in the order of their markers. Raises BadTransactionIndex, OSError."""
        return parse(bytes(self._loaded()))

    def content(self) -> bytes:
        """The bytes of the file. Raises BadTransactionIndex, OSError."""
        return bytes(self._loaded())

    def append(self, entries: Iterable[AbortedTransaction]) -> None:
        """Append entries to the file. Raises OSError; then `truncate` restores the file."""
        data = self._loaded()
        more = pack(entries)
        self.unsynced = True
        file = self.disk.open(self.path, create=True)
        try:
            file.pwrite(more, len(data))
        finally:
            file.close()
        data += more

    def replace(self, entries: Iterable[AbortedTransaction]) -> None:
        """Replace all entries; without any, the file is removed. Raises OSError."""
        data = pack(entries)
        if data:
            self.disk.write_atomic(self.path, data, sync=True)
        elif self.disk.exists(self.path):
            self.disk.remove(self.path)
        self._data, self._bad = bytearray(data), None
        self.damaged = self.unsynced = False

    def truncate(self, offset: int) -> None:
        """Remove the transactions that ended at or above `offset`. Raises BadTransactionIndex, OSError."""
        data = self._loaded()
        size = self._position(data, offset)
        self._data = data[:size]
        if size and self.disk.size(self.path) != size:
            file = self.disk.open(self.path)
            try:
                file.truncate(size)
            finally:
                file.close()
            self.unsynced = True
        elif not size and self.disk.exists(self.path):
            self.disk.remove(self.path)
            self.unsynced = False

    def take_unsynced(self) -> bool:
        """Whether the file was changed since the last call, so that it must be synced with the segment."""
        unsynced, self.unsynced = self.unsynced and bool(self), False
        return unsynced

    def collect(self, start: int, end: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that touch offsets from `start` to below `end`, and whether later segments can have more.

        Raises BadTransactionIndex, OSError.
        """
        found: list[AbortedTransaction] = []
        data = self._loaded()
        for position in range(self._position(data, start), len(data), ENTRY.size):
            entry = AbortedTransaction(*ENTRY.unpack_from(data, position)[1:])
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return found, False
        return found, True

    def _position(self, data: bytearray, offset: int) -> int:
        """The position of the first entry that ended at or above `offset`."""
        low, high = 0, len(data) // ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if LAST_OFFSET.unpack_from(data, middle * ENTRY.size + LAST_OFFSET_AT)[0] < offset:
                low = middle + 1
            else:
                high = middle
        return low * ENTRY.size


def pack(entries: Iterable[AbortedTransaction]) -> bytes:
    """Entries as they are in the file."""
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)


def parse(data: bytes) -> list[AbortedTransaction]:
    """The whole entries in the bytes of a file."""
    whole = len(data) - len(data) % ENTRY.size
    return [AbortedTransaction(*fields[1:]) for fields in ENTRY.iter_unpack(data[:whole])]


def check(data: bytes | bytearray, base_offset: int, path: str) -> None:
    """Validate the bytes of an index.

    Arguments:
        data: content of the file.
        base_offset: of the segment.
        path: for the message.

    Raises BadTransactionIndex.
    """
    if len(data) % ENTRY.size:
        raise BadTransactionIndex(f"{path}: the size is not a multiple of {ENTRY.size}")
    last = base_offset - 1
    for version, producer_id, first_offset, last_offset, _ in ENTRY.iter_unpack(data):
        if version != VERSION:
            raise BadTransactionIndex(f"{path}: unknown version {version}")
        if producer_id < 0 or not 0 <= first_offset <= last_offset or last_offset <= last:
            raise BadTransactionIndex(f"{path}: offsets {first_offset} to {last_offset} are out of order")
        last = last_offset
