"""ListOffsets, key 2, v1-11. The offset at a place in a partition: its ends, a time, or the record with the largest
timestamp. A batch that must be decompressed for that, or that is large, is searched in a job; so is what is not in
memory brought there.

Timestamps: -1 latest (last stable offset for read_committed), -2 earliest, -3 largest timestamp (v7), -4 earliest
local (v8),
-5 latest tiered (v9, none here), -6 earliest pending upload (v11, none here). Sources: KIP-79, KIP-734,
UnifiedLog.fetchOffsetByTimestamp.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Generator

from kafkalite._speedups.segment import Cold
from kafkalite.clock import Outcome
from kafkalite.cluster.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkalite.records import Batch, BatchError
from kafkalite.server.call import Call
from kafkalite.storage.log import Log
from kafkalite.storage.times import Found, first_record

LOGGER = logging.getLogger("kafkalite.server")
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
UNKNOWN = -1

LOOP_BYTES = 64 * 1024  # of a batch that is searched on the loop

TopicResponse = ListOffsetsResponse.ListOffsetsTopicResponse
PartitionResponse = TopicResponse.ListOffsetsPartitionResponse
PartitionRequest = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition


class LookUp:
    """A look-up by time in one log, whose answer is filled in when it ends."""

    __slots__ = ("answer", "end_offset", "log", "log_start_offset", "search", "timestamp")

    def __init__(self, answer: PartitionResponse, log: Log, timestamp: int, end_offset: int) -> None:
        self.answer = answer
        self.log = log
        self.timestamp = timestamp
        self.log_start_offset = log.log_start_offset
        self.end_offset = end_offset
        self.search = log.search_time(timestamp, wait=False)

    def step(self, found: Found | Cold | None) -> Batch | Cold | None:
        """Go on with what the last job found; answers what is wanted of a job next, None at the end.

        Raises OSError, BatchError.
        """
        try:
            wanted = self.search.send(found)
            while isinstance(wanted, Batch) and is_light(wanted):
                wanted = self.search.send(first_record(wanted, self.timestamp, self.log_start_offset))
        except StopIteration as end:
            if end.value is not None and end.value[1] < self.end_offset:
                place(self.answer, end.value)
            return None
        return wanted

    def fail(self, failure: Exception) -> None:
        log, code = self.log, KafkaErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(failure, BatchError):
            code = KafkaErrorCode.CORRUPT_MESSAGE
        LOGGER.error("%s-%d: cannot look up %d: %s", log.topic, log.partition, self.timestamp, failure)
        self.answer.error_code = code


def is_light(batch: Batch) -> bool:
    """Whether the loop may search it. A compressed batch of any size can be large inside."""
    return batch.log_append_time or (batch.codec == 0 and batch.size <= LOOP_BYTES)


class LookUps:
    """The look-ups of one request, one after the other, so that it holds one batch and one job at a time.

    Arguments:
        call: the request.
        look_ups: what is to be found.
        then: called when all is found, at once where no job is needed for it.
    """

    def __init__(self, call: Call, look_ups: list[LookUp], then: Callable[[], object]) -> None:
        self._call = call
        self._left = deque(look_ups)
        self._then = then

    def start(self) -> None:
        """Look up what the loop can, and have jobs do the rest."""
        self._go_on(Outcome())

    def _go_on(self, outcome: Outcome) -> None:
        self._call.in_slices(self._steps(outcome), len(self._left), self._wait)

    def _steps(self, outcome: Outcome) -> Generator[None, None, Batch | Cold | None]:
        """Look up until all is known, or until a job is needed: what it must bring or search."""
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

    def _wait(self, wanted: Batch | Cold | None) -> None:
        """Have a job do what the loop cannot; go on with the response where nothing is left."""
        if isinstance(wanted, Cold):
            self._call.reply.on_gone = self._call.broker.cold_reads.bring(wanted, self._searched)
        elif wanted is not None:
            look_up = self._left[0]
            job = (first_record, wanted, look_up.timestamp, look_up.log_start_offset)
            self._call.broker.offload.run(*job, done=self._searched)
        else:
            self._then()

    def _searched(self, outcome: Outcome) -> None:
        self._call.reply.on_gone = None
        try:
            self._go_on(outcome)
        except Exception as error:
            self._call.fail(error)


def list_offsets(call: Call, request: ListOffsetsRequest) -> None:
    """Look every partition up in its own log; one that is asked for twice is refused, as Kafka does."""
    objects = sum(1 + len(topic.partitions) for topic in request.topics)
    look_ups: list[LookUp] = []

    def found(topics: list[TopicResponse]) -> None:
        LookUps(call, look_ups, lambda: call.answer_from(encoded(call, topics), objects)).start()

    call.in_slices(placed(call, request, look_ups), objects, found)


def encoded(call: Call, topics: list[TopicResponse]) -> Generator[None, None, ListOffsetsResponse]:
    """The response, in pieces where it is large."""
    answered = call.elements()
    for topic in topics:
        partitions = call.elements()
        for partition in topic.partitions:
            partitions.add(partition)
            yield
        answered.add(TopicResponse(name=topic.name, partitions=partitions.finish()), 1 + len(topic.partitions))
        yield
    return ListOffsetsResponse(topics=answered.finish())


def placed(
    call: Call, request: ListOffsetsRequest, look_ups: list[LookUp]
) -> Generator[None, None, list[TopicResponse]]:
    """The outcomes of all partitions, but for what must be looked up for them: that is added to `look_ups`."""
    committed_only = request.isolation_level == READ_COMMITTED
    times: dict[tuple[str, int], int] = defaultdict(int)
    for topic in request.topics:
        for asked in topic.partitions:
            times[topic.name, asked.partition_index] += 1
            yield
    topics = []
    for topic in request.topics:
        answers: list[PartitionResponse] = []
        topics.append(TopicResponse(name=topic.name, partitions=answers))
        for asked in topic.partitions:
            yield
            answer = PartitionResponse(partition_index=asked.partition_index)
            answers.append(answer)
            if times[topic.name, asked.partition_index] > 1:
                answer.error_code = KafkaErrorCode.INVALID_REQUEST
                continue
            partition = call.broker.replicas.partition(topic.name, b"", asked.partition_index, by_id=False)
            answer.error_code = error_of(partition, asked, call.version)
            if isinstance(partition, Partition) and not answer.error_code:
                look_up = find(answer, partition, asked.timestamp, committed_only)
                look_ups += [] if look_up is None else [look_up]
    return topics


def error_of(partition: Partition | int, asked: PartitionRequest, version: int) -> int:
    """Why this cannot be answered, or 0."""
    if isinstance(partition, int):
        return partition
    if asked.timestamp < EARLIEST_PENDING_UPLOAD or version < SINCE.get(asked.timestamp, 0):
        return partition.check_leader_epoch(asked.current_leader_epoch) or KafkaErrorCode.UNSUPPORTED_VERSION
    return partition.check_leader_epoch(asked.current_leader_epoch)


def find(answer: PartitionResponse, partition: Partition, timestamp: int, committed_only: bool) -> LookUp | None:
    """Fill in where `timestamp` (ms, or one of the names above) is; answers what must be looked up for that."""
    log = partition.log
    end_offset = partition.last_stable_offset if committed_only else partition.high_watermark
    if timestamp == LATEST:
        place(answer, (UNKNOWN, end_offset, partition.leader_epoch))
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.epoch_at(partition.log_start_offset) if log is not None else UNKNOWN
        place(answer, (UNKNOWN, partition.log_start_offset, epoch))
    elif log is not None and timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        wanted = log.highest_timestamp() if timestamp == MAX_TIMESTAMP else timestamp
        return LookUp(answer, log, wanted, end_offset) if wanted >= 0 else None
    return None


def place(answer: PartitionResponse, found: Found) -> None:
    """Say where it is."""
    answer.timestamp, answer.offset, answer.leader_epoch = found
