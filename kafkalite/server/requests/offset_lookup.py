"""Looks up the offset of a timestamp in a partition, for ListOffsets and RewindConsumer
(UnifiedLog.fetchOffsetByTimestamp).
"""

import logging
from collections import deque
from collections.abc import Callable, Generator

from kafkalite._speedups.storage.page_cache import PageCacheMiss
from kafkalite.clock import Outcome
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import READ_COMMITTED
from kafkalite.protocol.messages.list_offsets import ListOffsetsResponse
from kafkalite.records import Batch, BatchError
from kafkalite.server.requests.call import PartitionCall
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.timestamp_lookup import Found, first_record

LOGGER = logging.getLogger("kafkalite.server")
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
UNKNOWN = -1
LOG_END = -1  # of replicas, beside the isolation levels of clients
LOOP_BYTES = 64 * 1024  # of a batch that is searched on the loop
TopicResponse = ListOffsetsResponse.ListOffsetsTopicResponse
PartitionResponse = TopicResponse.ListOffsetsPartitionResponse


class OffsetLookup:
    """A lookup by time in one log, which fills in the response when it ends.

    Arguments:
        answer: the response.
        log: where to look.
        timestamp: in milliseconds since 1970.
        end_offset: a record at or above it is not found.
        not_found: Kafka error code of the response without a record, 0 for an empty response.
    """

    __slots__ = ("answer", "end_offset", "log", "log_start_offset", "not_found", "search", "timestamp")

    def __init__(
        self, answer: PartitionResponse, log: Log, timestamp: int, end_offset: int, not_found: int = 0
    ) -> None:
        self.not_found = not_found
        self.answer = answer
        self.log = log
        self.timestamp = timestamp
        self.log_start_offset = log.log_start_offset
        self.end_offset = end_offset
        self.search = log.search_time(timestamp, wait=False)

    def step(self, found: Found | PageCacheMiss | None) -> Batch | PageCacheMiss | None:
        """Continue with the result of the last job; returns what the next job must read or search, None at the end.

        Raises OSError, BatchError.
        """
        try:
            wanted = self.search.send(found)
            while isinstance(wanted, Batch) and is_light(wanted):
                wanted = self.search.send(first_record(wanted, self.timestamp, self.log_start_offset))
        except StopIteration as end:
            if end.value is not None and end.value[1] < self.end_offset:
                fill_in(self.answer, end.value)
            else:
                self.answer.error_code = self.not_found
            return None
        return wanted

    def fail(self, failure: Exception) -> None:
        log, code = self.log, KafkaErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(failure, BatchError):
            code = KafkaErrorCode.CORRUPT_MESSAGE
        LOGGER.error("%s-%d: offset lookup at %d failed: %s", log.topic, log.partition, self.timestamp, failure)
        self.answer.error_code = code


def is_light(batch: Batch) -> bool:
    """Return whether the loop may search a batch. A compressed batch of any size can be large inside."""
    return batch.log_append_time or (batch.codec == 0 and batch.size <= LOOP_BYTES)


class OffsetLookups:
    """The lookups of one request, one after another, so that it holds one batch and one job at a time.

    Arguments:
        call: the request.
        look_ups: the lookups.
        then: called when all have ended, at once if no job is needed.
    """

    def __init__(self, call: PartitionCall, look_ups: list[OffsetLookup], then: Callable[[], object]) -> None:
        self._call = call
        self._left = deque(look_ups)
        self._then = then

    def start(self) -> None:
        """Start the lookups: on the loop where possible, else as jobs."""
        self._go_on(Outcome())

    def _go_on(self, outcome: Outcome) -> None:
        self._call.in_slices(self._steps(outcome), len(self._left), self._wait)

    def _steps(self, outcome: Outcome) -> Generator[None, None, Batch | PageCacheMiss | None]:
        """Look up until all is known, or return what a job must read or search."""
        while self._left:
            look_up = self._left[0]
            try:
                wanted = look_up.step(outcome.result())
            except (OSError, BatchError) as failure:
                look_up.fail(failure)
                wanted = None
            if wanted is not None:
                return wanted
            self._left.popleft()
            outcome = Outcome()
            yield
        return None

    def _wait(self, wanted: Batch | PageCacheMiss | None) -> None:
        """Start the job that the loop cannot do; continue with the response when nothing is left."""
        if isinstance(wanted, PageCacheMiss):
            self._call.reply.on_gone = self._call.context.read_ahead.read(wanted, self._searched)
        elif wanted is not None:
            look_up = self._left[0]
            job = (first_record, wanted, look_up.timestamp, look_up.log_start_offset)
            self._call.context.offload.run(*job, done=self._searched)
        else:
            self._then()

    def _searched(self, outcome: Outcome) -> None:
        self._call.reply.on_gone = None
        try:
            self._go_on(outcome)
        except Exception as error:
            self._call.fail(error)


def look_up_offset(
    answer: PartitionResponse,
    partition: Partition,
    timestamp: int,
    isolation: int,
    unavailable: int = KafkaErrorCode.OFFSET_NOT_AVAILABLE,
) -> OffsetLookup | None:
    """Fill in the offset of a timestamp if it is known without reading; else return the lookup.

    A leader whose high watermark may be below that of the leader before it returns no offset that would be too low
    (KIP-207).

    Arguments:
        answer: the response of the partition.
        partition: where to look.
        timestamp: milliseconds since 1970, or one of the constants above.
        isolation: of the request: what latest means, see `end_offset_of`.
        unavailable: Kafka error code where the leader does not know the offset yet.
    """
    log = partition.log
    not_found = unavailable if partition.is_behind and isolation != LOG_END else 0
    end_offset = end_offset_of(partition, isolation)
    if timestamp == LATEST and not_found:
        answer.error_code = not_found
    elif timestamp == LATEST:
        fill_in(answer, (UNKNOWN, end_offset, partition.leader_epoch))
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.epoch_at(partition.log_start_offset) if log is not None else UNKNOWN
        fill_in(answer, (UNKNOWN, partition.log_start_offset, epoch))
    elif log is not None and timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        wanted = log.highest_timestamp() if timestamp == MAX_TIMESTAMP else timestamp
        if wanted >= 0:
            return OffsetLookup(answer, log, wanted, end_offset, not_found)
        answer.error_code = not_found
    return None


def end_offset_of(partition: Partition, isolation: int) -> int:
    """Return the end of what a reader may see: the high watermark, the last stable offset for READ_COMMITTED, the log
    end for replicas.
    """
    if isolation == LOG_END:
        return partition.log.log_end_offset if partition.log is not None else 0
    return partition.last_stable_offset if isolation == READ_COMMITTED else partition.high_watermark


def fill_in(answer: PartitionResponse, found: Found) -> None:
    """Write the found offset into the response."""
    answer.timestamp, answer.offset, answer.leader_epoch = found
