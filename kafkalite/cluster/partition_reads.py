"""What a fetch finds in one partition: regions of whole batches, or a Kafka error code with the offsets a client
needs.
"""

import logging

from kafkalite._speedups.storage.file import FileRegion
from kafkalite._speedups.storage.segment_reader import PageCacheMiss
from kafkalite.cluster.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage.log.transaction_index import AbortedTransaction

LOGGER = logging.getLogger("kafkalite.cluster")
UNKNOWN_OFFSET = -1
NO_EPOCH = -1


class PartitionRead:
    """The outcome of one partition's read.

    `regions`: file regions of whole batches; `size`: their bytes; `diverging`: (epoch, end offset) when the client's
    last fetched epoch ends earlier here (KIP-595), else None; `cold`: what must be brought into memory before this read
    can be made, else None; `aborted`: for read_committed, the aborted transactions among these bytes.
    """

    __slots__ = (
        "aborted",
        "cold",
        "diverging",
        "error",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
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
        self.cold: PageCacheMiss | None = None
        self.aborted: list[AbortedTransaction] | None = None


def read(
    partition: Partition,
    fetch_offset: int,
    max_bytes: int,
    *,
    min_one: bool,
    committed_only: bool,
    current_leader_epoch: int = NO_EPOCH,
    last_fetched_epoch: int = NO_EPOCH,
    brought: PageCacheMiss | None = None,
) -> PartitionRead:
    """Read whole batches from `fetch_offset` on.

    Arguments:
        max_bytes: bound on the bytes; `min_one` lets the first batch exceed it (KIP-74).
        committed_only: isolation level read_committed.
        current_leader_epoch, last_fetched_epoch: what the client believes (-1 = does not say), KIP-320 and KIP-595.
        brought: the `cold` of the read before, after its bytes were brought in.
    """
    error = partition.check_leader_epoch(current_leader_epoch)
    if error:
        return PartitionRead(error)
    found = PartitionRead()
    found.high_watermark = partition.high_watermark
    found.last_stable_offset = partition.last_stable_offset
    found.log_start_offset = partition.log_start_offset
    if last_fetched_epoch >= 0 and diverges(partition, fetch_offset, last_fetched_epoch, found):
        return found
    end_offset = partition.last_stable_offset if committed_only else partition.high_watermark
    read_log(partition, fetch_offset, max_bytes, end_offset, min_one, found, brought)
    if committed_only and not found.error:
        read_aborted(partition, fetch_offset, found, brought)
    return found


def read_log(
    partition: Partition,
    fetch_offset: int,
    max_bytes: int,
    end_offset: int,
    min_one: bool,
    found: PartitionRead,
    brought: PageCacheMiss | None,
) -> None:
    log_end_offset = partition.log.log_end_offset if partition.log is not None else 0
    if fetch_offset < found.log_start_offset or fetch_offset > log_end_offset:
        found.error = KafkaErrorCode.OFFSET_OUT_OF_RANGE
    elif partition.log is not None and fetch_offset < end_offset and (max_bytes > 0 or min_one):
        regions = readable(partition, fetch_offset, max(max_bytes, 0), end_offset, min_one, brought)
        if isinstance(regions, int):
            found.error = regions
        elif isinstance(regions, PageCacheMiss):
            found.cold = regions
        else:
            found.regions = regions
            found.size = sum(region.length for region in regions)


def readable(
    partition: Partition,
    fetch_offset: int,
    max_bytes: int,
    end_offset: int,
    min_one: bool,
    brought: PageCacheMiss | None,
) -> list[FileRegion] | int | PageCacheMiss:
    """The log's answer, without waiting for the disk; what fails there is an error of this partition alone."""
    assert partition.log is not None
    try:
        return partition.log.read(fetch_offset, max_bytes, end_offset, min_one, False, brought)
    except OSError as error:
        LOGGER.error("%s-%d: cannot read at offset %d: %s", partition.topic, partition.index, fetch_offset, error)
        return KafkaErrorCode.KAFKA_STORAGE_ERROR


def ends_early(partition: Partition, fetch_offset: int, found: PartitionRead, *, committed_only: bool) -> bool:
    """Whether a read that returned records ended before the last batch that its reader may see.

    That is so at a bound on the bytes, at the end of a segment, and after a piece of old bytes. Kafka counts bytes up
    to the bound, also those of a batch that does not fit whole; kafkalite returns whole batches only.

    Arguments:
        found: what `read` returned for `fetch_offset` in this loop iteration.

    Source: DelayedFetch.tryComplete, cases F and G.
    """
    if not found.regions or partition.log is None:
        return False
    end_offset = found.last_stable_offset if committed_only else found.high_watermark
    return partition.log.continues(fetch_offset, found.regions[-1], end_offset)


def read_aborted(partition: Partition, fetch_offset: int, found: PartitionRead, brought: PageCacheMiss | None) -> None:
    """Add the transactions whose records a read_committed client must skip; without them it gets no records."""
    found.aborted = []
    if not found.regions or partition.log is None:
        return
    try:
        aborted = partition.log.aborted_in(found.regions, fetch_offset, wait=False, brought=brought)
        if isinstance(aborted, PageCacheMiss):
            found.cold, found.regions, found.size = aborted, [], 0
        else:
            found.aborted = aborted
    except OSError as error:
        LOGGER.error("%s-%d: cannot read the aborted transactions: %s", partition.topic, partition.index, error)
        found.error = KafkaErrorCode.KAFKA_STORAGE_ERROR
        found.regions, found.size, found.aborted = [], 0, None


def diverges(partition: Partition, fetch_offset: int, last_fetched_epoch: int, found: PartitionRead) -> bool:
    """Tell whether the client read something that this log does not have (its epoch ended earlier here).

    An offset below the log start is out of range whatever the epochs say (Partition.readRecords).
    """
    if partition.log is None:
        return False
    epoch, end_offset = partition.log.epoch_end_offset(last_fetched_epoch)
    if epoch == last_fetched_epoch and end_offset >= fetch_offset:
        return False
    if epoch < 0 or end_offset < 0 or fetch_offset < found.log_start_offset:
        found.error = KafkaErrorCode.OFFSET_OUT_OF_RANGE
    else:
        found.diverging = (epoch, end_offset)
    return True
