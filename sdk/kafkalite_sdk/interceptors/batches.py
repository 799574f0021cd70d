"""A sealed batch: the encoded records of one partition as they leave a producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite._speedups.records.batches import Record


class SealedBatch:
    """The records of one partition that are sent together.

    Attributes:
        topic, partition: of the records; partition -1 = none was chosen before they failed.
        records_count: number of records.
        data: the encoded batch (magic 2), compressed; empty = the records failed before they were encoded.
        base_offset: offset of the first record once it is acknowledged; -1 = not yet, or not known.
        error: why the records have failed; None = they have not.
    """

    __slots__ = ("base_offset", "data", "error", "partition", "records_count", "topic")

    def __init__(self, topic: str, partition: int, records_count: int, data: bytes = b"") -> None:
        self.topic = topic
        self.partition = partition
        self.records_count = records_count
        self.data = data
        self.base_offset = -1
        self.error: BaseException | None = None

    def records(self) -> list[Record]:
        """Decode the records: key, value, headers and timestamp of each. Their offsets begin at 0."""
        if not self.data:
            return []
        from kafkalite.records import Batch  # also registers the codecs

        return Batch(self.data).records()

    def __repr__(self) -> str:
        return f"SealedBatch({self.topic}-{self.partition}, records_count={self.records_count})"
