"""Which closed segments stay open: a bound on descriptors and index memory of all logs together.

Laws:
1. A closed segment is opened on first use and may be unloaded at any later moment; regions in flight hold its file.
2. Who was looked at since the last round is spared once (second chance), so a hot old segment stays.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite.storage.log.segment import Segment

FILES_MAX = 512
INDEX_BYTES_MAX = 64 * 1024 * 1024


class SegmentCache:
    """The closed segments that are loaded.

    Arguments:
        files_max: segments at most.
        index_bytes_max: bytes of their indexes at most; one segment may stay above it.
    """

    def __init__(self, files_max: int = FILES_MAX, index_bytes_max: int = INDEX_BYTES_MAX) -> None:
        self.files_max = files_max
        self.index_bytes_max = index_bytes_max
        self.index_bytes = 0
        self._loaded: OrderedDict[Segment, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._loaded)

    def add(self, segment: "Segment") -> None:
        """A closed segment is loaded now; unload others until the bounds hold."""
        self.forget(segment)
        memory = sum(index.memory for index in segment.indexes)
        self._loaded[segment] = memory, segment.used
        self.index_bytes += memory
        while len(self._loaded) > 1 and (len(self._loaded) > self.files_max or self.index_bytes > self.index_bytes_max):
            self._unload_one(segment)

    def unload(self, count: int) -> None:
        """Unload `count` segments, or as many as there are: their descriptors are needed."""
        for segment in list(self._loaded)[:count]:
            self.forget(segment)
            segment.unload()

    def forget(self, segment: "Segment") -> None:
        """The segment is unloaded, deleted or written to again."""
        memory, _ = self._loaded.pop(segment, (0, 0))
        self.index_bytes -= memory

    def _unload_one(self, spared: "Segment") -> None:
        segment, (memory, used) = next(iter(self._loaded.items()))
        if segment is spared or segment.used != used:
            self._loaded[segment] = memory, segment.used
            self._loaded.move_to_end(segment)
            return
        self.forget(segment)
        segment.unload()
