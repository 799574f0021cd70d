"""Limits the open files and the index memory of the closed segments of all logs.

1. A closed segment is loaded at its first use and may be unloaded at any later time; regions in responses keep its file
   open.
2. A segment that was read since the cache last considered it is kept once more (second chance), so segments in constant
   use stay loaded.
"""

from collections import OrderedDict
from typing import Protocol

from kafkalite._speedups.storage.index import OffsetIndex, TimeIndex

FILES_MAX = 512
INDEX_BYTES_MAX = 64 * 1024 * 1024


class CachedSegment(Protocol):
    """The part of a `Segment` that the cache uses."""

    used: int  # sequence number of its last read

    @property
    def indexes(self) -> tuple[OffsetIndex, TimeIndex]: ...
    def unload(self) -> None: ...


class SegmentCache:
    """The closed segments that are loaded.

    Arguments:
        files_max: bound on loaded segments.
        index_bytes_max: bound on the bytes of their indexes; one segment alone may exceed it.
    """

    def __init__(self, files_max: int = FILES_MAX, index_bytes_max: int = INDEX_BYTES_MAX) -> None:
        self.files_max = files_max
        self.index_bytes_max = index_bytes_max
        self.index_bytes = 0
        self._loaded: OrderedDict[CachedSegment, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._loaded)

    def add(self, segment: CachedSegment) -> None:
        """Add a loaded segment, and unload others until the bounds hold."""
        self.forget(segment)
        memory = sum(index.memory for index in segment.indexes)
        self._loaded[segment] = memory, segment.used
        self.index_bytes += memory
        while len(self._loaded) > 1 and (len(self._loaded) > self.files_max or self.index_bytes > self.index_bytes_max):
            self._unload_one(segment)

    def unload(self, count: int) -> None:
        """Unload up to `count` segments, to free descriptors."""
        for segment in list(self._loaded)[:count]:
            self.forget(segment)
            segment.unload()

    def forget(self, segment: CachedSegment) -> None:
        """Remove a segment that is unloaded, deleted or active again."""
        memory, _ = self._loaded.pop(segment, (0, 0))
        self.index_bytes -= memory

    def _unload_one(self, spared: CachedSegment) -> None:
        segment, (memory, used) = next(iter(self._loaded.items()))
        if segment is spared or segment.used != used:
            self._loaded[segment] = memory, segment.used
            self._loaded.move_to_end(segment)
            return
        self.forget(segment)
        segment.unload()
