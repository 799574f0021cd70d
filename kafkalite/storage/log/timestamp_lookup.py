"""Finds the first record at or after a timestamp, in steps: the caller reads records and waits for the disk.

`_speedups/storage/segment_core` uses the time index of a segment, `_speedups/storage/index` searches it.

Source: UnifiedLog.fetchOffsetByTimestamp, LogSegment.findOffsetByTimestamp.
"""

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TypeVar, cast

from kafkalite._speedups.records.batches import Batch
from kafkalite._speedups.storage.page_cache import PageCacheMiss, ReadAttempt
from kafkalite.storage.log.segment import Segment

Found = tuple[int, int, int]  # timestamp, offset, leader epoch
TimeSearch = Generator[Batch | PageCacheMiss, Found | PageCacheMiss | None, Found | None]
Value = TypeVar("Value")


def search(segments: Iterable[Segment], log_start_offset: int, timestamp_ms: int, *, wait: bool) -> TimeSearch:
    """Find the first record at or after `timestamp_ms`, one batch at a time.

    Arguments:
        segments: of the log, in order.
        log_start_offset: records below it are ignored.
        timestamp_ms: in ms since 1970.
        wait: whether reads may wait for the disk.

    Yields each batch to search, and is sent the result of `first_record`. Without `wait` it also yields page-cache
    misses, and is sent each of them after its bytes were read ahead. Each step raises OSError and BatchError.
    """
    for segment in segments:
        from_offset = max(log_start_offset, segment.base_offset)
        while segment.max_timestamp >= timestamp_ms:
            location = yield from retry_reads(partial(segment.find_time, timestamp_ms), from_offset, wait)
            if location is None:
                break
            batch = Batch((yield from retry_reads(partial(segment.read_batch, location), from_offset, wait)))
            found = yield batch
            if found is not None:
                return cast(Found, found)
            from_offset = batch.last_offset + 1
    return None


def looked_up(steps: TimeSearch, timestamp_ms: int, log_start_offset: int) -> Found | None:
    """Run all steps of a search that may wait for the disk. Raises OSError, BatchError."""
    found = None
    while True:
        try:
            batch = steps.send(found)
        except StopIteration as end:
            return cast(Found | None, end.value)
        found = first_record(cast(Batch, batch), timestamp_ms, log_start_offset)


def retry_reads(
    read: Callable[[ReadAttempt], Value | PageCacheMiss], offset: int, wait: bool
) -> Generator[PageCacheMiss, Found | PageCacheMiss | None, Value]:
    """Read until there is no page-cache miss: yields each miss, and is sent it after its bytes were read ahead.

    Arguments:
        read: makes one attempt.
        offset: from which it reads.
        wait: whether it may wait for the disk.
    """
    result = read(ReadAttempt(offset, wait=wait))
    while isinstance(result, PageCacheMiss):
        read_ahead = cast(PageCacheMiss, (yield result))
        result = read(ReadAttempt(offset, wait=wait, read_ahead=read_ahead))
    return result


def first_record(batch: Batch, timestamp_ms: int, log_start_offset: int) -> Found | None:
    """(timestamp, offset, leader epoch) of the batch's first record at or after both limits; may run as a job.

    Raises BatchError.
    """
    if batch.log_append_time:
        return batch.max_timestamp, max(batch.base_offset, log_start_offset), batch.leader_epoch
    for record in batch:
        if record.timestamp >= timestamp_ms and record.offset >= log_start_offset:
            return record.timestamp, record.offset, batch.leader_epoch
    return None
