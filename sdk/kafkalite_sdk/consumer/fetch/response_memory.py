"""Accounts for the memory of Fetch responses that is in use as long as one partition's records are unread.

Pure. Invariant: `held` is at most four times the bytes of the unread partitions: the last ones are copied, so that a
paused partition does not keep a whole response in memory.
"""

from typing import Any

from kafkalite_sdk._speedups.fetched_records import FetchedRecords

UNREAD_SHARE_MIN = 4


class ResponseMemory:
    """The memory of one response.

    Attributes:
        held: its bytes in use.
    """

    __slots__ = ("_copied", "_unread", "_unread_bytes", "held")

    def __init__(self) -> None:
        self.held = 0
        self._unread: dict[FetchedRecords[Any, Any], int] = {}
        self._unread_bytes = 0
        self._copied = False

    def add(self, fetched: FetchedRecords[Any, Any]) -> None:
        """Account for the records of a partition in the response."""
        self._unread[fetched] = fetched.size
        self._unread_bytes += fetched.size
        self.held += fetched.size

    def release(self, fetched: FetchedRecords[Any, Any]) -> int:
        """The records of a partition are read or dropped; return the number of bytes that are not in use any more."""
        size = self._unread.pop(fetched)
        self._unread_bytes -= size
        if self._copied:
            freed = size
        elif not self._unread:
            freed = self.held
        elif self._unread_bytes * UNREAD_SHARE_MIN < self.held:
            for each in self._unread:
                each.detach()
            self._copied = True
            freed = self.held - self._unread_bytes
        else:
            freed = 0
        self.held -= freed
        return freed
