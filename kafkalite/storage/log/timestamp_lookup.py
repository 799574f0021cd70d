"""Looking a timestamp up in a log, in steps: whatever reads records or waits for the disk is done by whoever asks.

Source: UnifiedLog.fetchOffsetByTimestamp, LogSegment.findOffsetByTimestamp.
"""

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TypeVar, cast

from kafkalite._speedups.records.batches import Batch
from kafkalite._speedups.storage.segment_reader import PageCacheMiss
from kafkalite.storage.log.segment import Segment

Found = tuple[int, int, int]  # timestamp, offset, leader epoch
TimeSearch = Generator[Batch | PageCacheMiss, Found | PageCacheMiss | None, Found | None]
Value = TypeVar("Value")


def search(segments: Iterable[Segment], log_start_offset: int, timestamp_ms: int, *, wait: bool) -> TimeSearch:
    """The first record at or after `timestamp_ms`: yields each batch to be opened, is sent what `first_record` says.

    Without `wait`, the disk is not waited for: it also yields Cold, and is sent that once it was brought in.
    Each step raises OSError and BatchError.
    """
    for segment in segments:
        from_offset = max(log_start_offset, segment.base_offset)
        while segment.max_timestamp >= timestamp_ms:
            location = yield from in_memory(partial(segment.find_time, timestamp_ms, from_offset, wait))
            if location is None:
                break
            if wait:
                batch = Batch(segment.opened.pread(location[1], location[0]))
            else:
                batch = Batch((yield from in_memory(partial(segment.batch_now, *location))))
            found = yield batch
            if found is not None:
                return cast(Found, found)
            from_offset = batch.last_offset + 1
    return None


def looked_up(steps: TimeSearch, timestamp_ms: int, log_start_offset: int) -> Found | None:
    """Take all steps of a search that waits for the disk, at once. Raises OSError, BatchError."""
    found = None
    while True:
        try:
            batch = steps.send(found)
        except StopIteration as end:
            return cast(Found | None, end.value)
        found = first_record(cast(Batch, batch), timestamp_ms, log_start_offset)


def in_memory(
    look: Callable[[PageCacheMiss | None], Value | PageCacheMiss],
) -> Generator[PageCacheMiss, Found | PageCacheMiss | None, Value]:
    """Look until nothing is cold any more: yields what is to be brought in, and is sent it back."""
    found = look(None)
    while isinstance(found, PageCacheMiss):
        brought = yield found
        found = look(cast(PageCacheMiss, brought))
    return found


def first_record(batch: Batch, timestamp_ms: int, log_start_offset: int) -> Found | None:
    """(timestamp, offset, leader epoch) of the batch's first record at or after both; may run as a job.

    Raises BatchError.
    """
    if batch.log_append_time:
        return batch.max_timestamp, max(batch.base_offset, log_start_offset), batch.leader_epoch
    for record in batch:
        if record.timestamp >= timestamp_ms and record.offset >= log_start_offset:
            return record.timestamp, record.offset, batch.leader_epoch
    return None
