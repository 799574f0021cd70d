"""Reads one partition for a fetch: file regions of whole batches, or an error code, and the partition's offsets.

Reads never wait for the disk: after a page-cache miss, `read_ahead` reads the bytes and the fetch reads again.
"""

import logging

from kafkalite._speedups.storage.file import FileRegion
from kafkalite._speedups.storage.page_cache import PageCacheMiss, ReadAttempt
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage.log.transaction_index import AbortedTransaction

LOGGER = logging.getLogger("kafkalite.cluster")
UNKNOWN_OFFSET = -1
NO_EPOCH = -1
NO_REPLICA = -1


class PartitionRead:
    """The result of one read of a partition.

    Attributes:
        error: a Kafka error code, or 0.
        high_watermark, last_stable_offset, log_start_offset: of the partition; -1 if the read failed before.
        regions, size: file regions of whole batches, and their bytes.
        diverging: (epoch, end offset) if the last fetched epoch of the client ends earlier here (KIP-595), else None.
        miss: the bytes that a job must read ahead before this read can succeed, else None.
        aborted: for read_committed, the aborted transactions in these batches, else None.
        attempt: the attempt that was made to read these batches, or None.
        preferred_replica: broker id of the follower from which the client should read, -1 = none.
    """

    __slots__ = (
        "aborted",
        "attempt",
        "diverging",
        "error",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "miss",
        "preferred_replica",
        "regions",
        "size",
    )

    def __init__(self, error: int = 0) -> None:
        self.error = error
        self.high_watermark = UNKNOWN_OFFSET
        self.last_stable_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.regions: list[FileRegion] = []
        self.size = 0
        self.diverging: tuple[int, int] | None = None
        self.miss: PageCacheMiss | None = None
        self.aborted: list[AbortedTransaction] | None = None
        self.attempt: ReadAttempt | None = None
        self.preferred_replica = NO_REPLICA

    def add(self, records: list[FileRegion] | KafkaErrorCode | PageCacheMiss, attempt: ReadAttempt) -> None:
        """Add the result of reading the log."""
        if isinstance(records, list):
            self.attempt = attempt
            self.regions = records
            self.size = sum(region.length for region in records)
        elif isinstance(records, PageCacheMiss):
            self.miss = records
        else:
            self.error = records


def read(
    partition: Partition,
    offset: int,
    max_bytes: int,
    *,
    committed_only: bool,
    min_one: bool = True,
    read_ahead: PageCacheMiss | None = None,
    current_leader_epoch: int = NO_EPOCH,
    last_fetched_epoch: int = NO_EPOCH,
    any_replica: bool = False,
) -> PartitionRead:
    """Read whole batches up to the high watermark, or to the last stable offset for read_committed.

    Arguments:
        partition: the partition to read.
        offset: the first offset wanted.
        max_bytes: bound on the bytes of the batches; a negative one counts as 0.
        committed_only: isolation level read_committed.
        min_one: whether the first batch is returned even if it is larger than `max_bytes` (KIP-74).
        read_ahead: the miss of the previous read, after a job has read its bytes.
        current_leader_epoch: the leader epoch that the client knows, -1 if it sent none (KIP-320).
        last_fetched_epoch: the epoch of the last batch that the client has, -1 if it sent none (KIP-595).
        any_replica: whether a follower may serve the read, up to its own high watermark (KIP-392). An offset between it
            and the log end has no records yet; one above the log end is out of range, and clients return to the leader.
    """
    error = partition.check_leader_epoch(current_leader_epoch)
    if error and any_replica:
        error = partition.check_reader(current_leader_epoch)
    if error:
        return PartitionRead(error)
    found = PartitionRead()
    found.high_watermark = partition.high_watermark
    found.last_stable_offset = partition.last_stable_offset
    found.log_start_offset = partition.log_start_offset
    if last_fetched_epoch >= 0:
        diverging = diverging_epoch(partition, offset, last_fetched_epoch)
        if isinstance(diverging, KafkaErrorCode):
            found.error = diverging
            return found
        if diverging is not None:
            found.diverging = diverging
            return found
    end_offset = found.last_stable_offset if committed_only else found.high_watermark
    if offset == end_offset:  # so are most reads of consumers that have no lag
        found.aborted = [] if committed_only else None
        return found
    attempt = ReadAttempt(offset, max_bytes, end_offset, min_one=min_one, read_ahead=read_ahead)
    records = read_log(partition, attempt)
    if committed_only and isinstance(records, list):
        aborted = read_aborted(partition, records, attempt)
        if isinstance(aborted, list):
            found.aborted = aborted
        else:
            records = aborted
    if records:
        found.add(records, attempt)
    return found


def read_log(partition: Partition, attempt: ReadAttempt) -> list[FileRegion] | KafkaErrorCode | PageCacheMiss:
    """The result of `Log.read`; an OSError is an error of this partition alone."""
    log = partition.log
    log_end_offset = log.log_end_offset if log is not None else 0
    if attempt.offset < partition.log_start_offset or attempt.offset > log_end_offset:
        return KafkaErrorCode.OFFSET_OUT_OF_RANGE
    if log is None or attempt.offset >= attempt.end_offset or (not attempt.max_bytes and not attempt.min_one):
        return []
    try:
        return log.read(attempt)
    except OSError as error:
        LOGGER.error("%s-%d: cannot read at offset %d: %s", partition.topic, partition.index, attempt.offset, error)
        return KafkaErrorCode.KAFKA_STORAGE_ERROR


def ends_early(partition: Partition, found: PartitionRead) -> bool:
    """Whether a read that returned batches ended before the last batch that its reader may see.

    That is so at a bound on the bytes, at the end of a segment, and after a piece of bytes that were not written
    lately. Kafka counts bytes up to the bound, also those of a batch that does not fit whole; kafkalite returns whole
    batches only.

    Arguments:
        found: the result of `read` in this loop iteration.

    Source: DelayedFetch.tryComplete, cases F and G.
    """
    if not found.regions or found.attempt is None or partition.log is None:
        return False
    return partition.log.continues(found.attempt, found.regions[-1])


def read_aborted(
    partition: Partition, regions: list[FileRegion], attempt: ReadAttempt
) -> list[AbortedTransaction] | KafkaErrorCode | PageCacheMiss:
    """The transactions in `regions` of `partition` whose records a read_committed client must skip.

    Without them it gets no records. `attempt` says whether the read may wait for the disk.
    """
    if not regions or partition.log is None:
        return []
    try:
        return partition.log.aborted_in(regions, attempt)
    except OSError as error:
        LOGGER.error("%s-%d: cannot read the aborted transactions: %s", partition.topic, partition.index, error)
        return KafkaErrorCode.KAFKA_STORAGE_ERROR


def diverging_epoch(
    partition: Partition, fetch_offset: int, last_fetched_epoch: int
) -> tuple[int, int] | KafkaErrorCode | None:
    """(epoch, end offset) if a client has read records that the log of `partition` does not have.

    Its epoch `last_fetched_epoch` ends here before `fetch_offset`, where it reads next. None if the logs agree.
    An offset below the log start is out of range in either case (Partition.readRecords).
    """
    if partition.log is None:
        return None
    epoch, end_offset = partition.log.epoch_end_offset(last_fetched_epoch)
    if epoch == last_fetched_epoch and end_offset >= fetch_offset:
        return None
    if epoch < 0 or end_offset < 0 or fetch_offset < partition.log_start_offset:
        return KafkaErrorCode.OFFSET_OUT_OF_RANGE
    return epoch, end_offset
