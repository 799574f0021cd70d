"""Offsets as applications see them: committed ones, and those found by time."""

from typing import NamedTuple


class OffsetAndMetadata(NamedTuple):
    """A committed offset.

    Attributes:
        offset: of the next record to read.
        metadata: text of the application.
        leader_epoch: of the record before the offset, -1 = unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The first record of a time or later.

    Attributes:
        offset: of the record.
        timestamp_ms: of the record, in ms since 1970.
        leader_epoch: of the record, -1 = unknown.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1
