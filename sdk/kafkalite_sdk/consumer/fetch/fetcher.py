"""Decides which fetch requests leave, what their responses mean, and which records `poll` returns.

Pure: no I/O, no clock, no randomness. The driver sends the requests of `requests`, reports their ends by `answered` or
`lost`, calls `metadata_changed` after each change of the view, asks for metadata of `stale_topics`, runs `jobs`, and
calls `requests` again at `wake_at`.

Invariants:
1. Each record is returned once, in the order of its partition, unless the position changes.
2. A response counts for a partition only if that partition still waits for it: a seek, a revocation or a new leader
   epoch drops it, and the records prefetched from the former leader.
3. A broker has one open request. `buffer_max_bytes` bounds the responses in memory, beyond it one batch is possible. It
   also bounds the memory of open batches, which are decompressed: beyond it they are read to their ends before another
   one is opened, or closed if they cannot be read now.
4. A partition with an error delays no other partition; it is raised behind the records before it.
Sources: AbstractFetch.java, FetchCollector.java and CompletedFetch.java of Apache Kafka 4.3; KIP-227, KIP-320, KIP-392,
KIP-951.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from math import inf
from sys import maxsize
from typing import Generic, NoReturn, TypeVar

from kafkalite.errors import KafkaError, error_for
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.fetch import FetchResponse
from kafkalite_sdk._speedups.column_builder import ColumnBuilder
from kafkalite_sdk._speedups.consumer_records import Record, RecordDecoder
from kafkalite_sdk._speedups.fetched_records import FetchedRecords
from kafkalite_sdk.client.cluster_view import NO_EPOCH, NO_LEADER, ClusterView
from kafkalite_sdk.consumer.fetch.fetch_errors import FetchErrors
from kafkalite_sdk.consumer.fetch.fetch_node import FetchCall, FetchNode
from kafkalite_sdk.consumer.fetch.fetch_plan import FetchPlan
from kafkalite_sdk.consumer.fetch.fetch_settings import FetchSettings
from kafkalite_sdk.consumer.fetch.partition_buffer import NO_NODE, PartitionBuffer, Target
from kafkalite_sdk.consumer.fetch.response_memory import ResponseMemory
from kafkalite_sdk.consumer.offsets.positions import NO_REPLICA, Positions, changed_states
from kafkalite_sdk.values import OffsetAndMetadata

JOBS_MAX = 2
"""Batches that a thread decompresses, and that wait for it: beyond the memory of invariant 3."""

K = TypeVar("K")
V = TypeVar("V")
PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


class Fetcher(Generic[K, V]):
    """The fetches of one consumer.

    Arguments:
        settings: sizes and times.
        decoder: of the records.
        positions: the assigned partitions.
        view: the brokers and leaders.

    Attributes:
        buffered_bytes: of the responses in memory whose records are not read yet.
        stale_topics: topics whose leaders are unknown or wrong; the driver asks for them and clears the set.
    """

    def __init__(
        self, settings: FetchSettings, decoder: RecordDecoder[K, V], positions: Positions, view: ClusterView
    ) -> None:
        self.buffered_bytes = 0
        self.stale_topics: set[str] = set()
        self._settings = settings
        self._decoder = decoder
        self._positions = positions
        self._view = view
        self._errors = FetchErrors(settings, positions, view, self.stale_topics)
        self._buffers: dict[TopicPartition, PartitionBuffer[K, V]] = {}
        self._plan = FetchPlan(settings, view, self.stale_topics)
        self._moved = positions.watch()
        self._queue: deque[PartitionBuffer[K, V]] = deque()  # those with records or an error
        self._jobs: list[FetchedRecords[K, V]] = []
        self._failure: KafkaError | None = None
        self._raised: PartitionBuffer[K, V] | None = None  # whose error the last `take` raised
        self._read_from: list[tuple[PartitionBuffer[K, V], int, int]] = []  # position and epoch before the last `take`
        self._reserved = 0
        self._open_bytes = 0
        self._running = 0  # jobs
        self._only: Collection[TopicPartition] = ()  # of the last `take`
        self._changed = True  # `requests` may have something to do before `_wake_at`
        self._full = False  # a request waits for memory
        self._wake_at = inf

    # ---- requests ---------------------------------------------------------------------------------------------------

    def requests(self, now: float, usable: Callable[[int], bool]) -> Iterator[FetchCall]:
        """Yield the requests that leave now.

        Arguments:
            now: in seconds of the loop's clock.
            usable: whether a broker may get a request.
        """
        self._follow_positions()
        if not self._changed and now < self._wake_at:
            return
        self._changed = self._full = False
        try:
            yield from self._requests(now, usable)
        except BaseException:  # also if the caller does not continue
            self._changed = True
            raise

    def _requests(self, now: float, usable: Callable[[int], bool]) -> Iterator[FetchCall]:
        self._wake_at = self._plan.update(now)
        nodes = self._plan.active()
        for node in nodes:
            if node.call is None and self._may_leave(node, now, usable):
                if self._full:
                    return  # the broker that has waited longest is the next one
                if node.wanted and (max_bytes := self._allowed_bytes(len(nodes))):
                    call = node.begin(self._buffers, max_bytes)
                    self._reserved += call.reserved
                    yield call

    def _may_leave(self, node: FetchNode, now: float, usable: Callable[[int], bool]) -> bool:
        earliest = max(node.retry_at, node.hold_until) if node.full else node.retry_at
        if earliest > now:
            self._wake_at = min(self._wake_at, earliest)
            return False
        if not usable(node.node):
            self._changed = True
            return False
        return True

    def _allowed_bytes(self, nodes: int) -> int:
        """Largest response that the next of `nodes` brokers may send; 0 = none."""
        settings = self._settings
        used = self.buffered_bytes + self._reserved
        share = max(settings.buffer_max_bytes // nodes, settings.partition_max_bytes)
        allowed = min(settings.max_bytes, share, settings.buffer_max_bytes - used)
        if used and allowed < min(settings.partition_max_bytes, settings.max_bytes):
            self._full = True
            return 0
        return max(allowed, 1)

    def wake_at(self) -> float:
        """Return when `requests` has something to do without another event; infinity = never."""
        return self._wake_at

    # ---- responses --------------------------------------------------------------------------------------------------

    def answered(self, call: FetchCall, response: FetchResponse, now: float) -> None:
        """The response to a request has arrived.

        Arguments:
            call: the request.
            response: its response; its memory is in use until the records are read.
            now: in seconds of the loop's clock.
        """
        self._follow_positions()
        node = self._end(call, now)
        if not node.session.apply_response(response):
            self._request_failed(call, node, error_for(response.error_code), now)
            return
        node.failures = 0
        memory = ResponseMemory()
        for topic in response.responses:
            name = topic.topic or call.names.get(topic.topic_id, "")
            for data in topic.partitions:
                buffer = self._expected(call, TopicPartition(name, data.partition_index))
                if buffer is not None:
                    self._receive(buffer, call, data, response, memory, now)
                    self._plan.change((buffer,))
        self.buffered_bytes += memory.held

    def lost(self, call: FetchCall, error: KafkaError, now: float) -> None:
        """A request has no response: its connection ended, or it timed out.

        Arguments:
            call: the request.
            error: why; one that is not retriable is raised by `take`.
            now: in seconds of the loop's clock.
        """
        self._request_failed(call, self._end(call, now), error, now)

    def _end(self, call: FetchCall, now: float) -> FetchNode:
        node = self._plan.nodes[call.node]
        node.end(now)
        self._reserved -= call.reserved
        self._changed = True
        return node

    def _expected(self, call: FetchCall, name: TopicPartition) -> PartitionBuffer[K, V] | None:
        """The buffer of a partition that still waits for the response to a call."""
        buffer, asked = self._buffers.get(name), call.partitions.get(name)
        if buffer is None or asked is None or buffer.expected_from != call.node or buffer.next_offset != asked.offset:
            return None
        return buffer

    def _request_failed(self, call: FetchCall, node: FetchNode, error: KafkaError, now: float) -> None:
        """Continue after a request without data; a session error needs no pause."""
        if not self._errors.is_session_error(error):
            node.failed(now)
            if not error.retriable:
                self._failure = error
        for name in call.partitions:
            buffer = self._expected(call, name)
            if buffer is not None:
                self.stale_topics.add(name.topic)
                if buffer.state.preferred_replica == call.node:
                    buffer.state.preferred_replica = NO_REPLICA
                    self._plan.change((buffer,))

    def _receive(
        self,
        buffer: PartitionBuffer[K, V],
        call: FetchCall,
        data: PartitionData,
        response: FetchResponse,
        memory: ResponseMemory,
        now: float,
    ) -> None:
        """Apply the data of a partition that waits for it."""
        state = buffer.state
        if data.error_code:
            if self._errors.apply(buffer, call, data, response, now):
                self._drop(buffer)
            self._enqueue(buffer)
            return
        buffer.failures = 0
        buffer.failed_node = NO_NODE
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        state.log_start = data.log_start_offset
        if data.preferred_read_replica >= 0:
            state.preferred_replica = data.preferred_read_replica
            state.preferred_until = now + self._settings.preferred_replica_max_age_s
        if data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0:
            self._drop(buffer)
            self._positions.seek(state, state.position, state.leader_epoch)  # compares it with the leader's log
        elif data.records:
            aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
            topic, number = state.topic_partition
            offset = buffer.next_offset
            buffer.append(FetchedRecords(self._decoder, topic, number, data.records, offset, aborted), memory)
            self._enqueue(buffer)

    def _enqueue(self, buffer: PartitionBuffer[K, V]) -> None:
        if not buffer.queued:
            self._queue.append(buffer)
            buffer.queued = True

    def fail(self, error: KafkaError) -> None:
        """Have the next `take` raise an error."""
        self._failure = error

    # ---- records ----------------------------------------------------------------------------------------------------

    @property
    def has_records(self) -> bool:
        """Whether `take` has something to do: records, or an error to raise."""
        return self._failure is not None or any(each.readable for each in self._queue)

    @property
    def waiting(self) -> bool:
        """Whether a request is open: the next one to its broker leaves when it has ended."""
        return any(node.call is not None for node in self._plan.nodes.values())

    def take(self, records_max: int, only: Collection[TopicPartition] = ()) -> list[Record[K, V]]:
        """Return records, and advance the positions; each call begins with another partition.

        Arguments:
            records_max: largest number of records.
            only: partitions whose records are returned; empty = all.

        Raises:
            KafkaError: the next records of a partition cannot be read or fetched; its position stays. The error names
                topic, partition and offset. The next call continues with the other partitions.
        """
        records: list[Record[K, V]] = []
        self._take(records, records_max, only)
        return records

    def take_columns(self, columns: ColumnBuilder) -> None:
        """Append records to columns as `take` returns them, until the columns are full.

        Arguments:
            columns: without records; they have none after an error.

        Raises: as `take`.
        """
        self._take(columns, maxsize, ())

    def _take(self, records: Target[K, V], records_max: int, only: Collection[TopicPartition]) -> None:
        self._follow_positions()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self._read_from.clear()
        self._only = only
        try:
            self._visit_queue(records, records_max, only)
        except KafkaError:
            raise
        except BaseException:
            self.give_back()
            for buffer in self._buffers.values():  # the one that was visited is not in the queue
                if buffer.size or buffer.error is not None:
                    self._enqueue(buffer)
            raise
        if records:
            self._raised = None
        elif self._raised is not None and self._raised.failure is not None and self._raised.readable:
            self._raise(self._raised)

    def _visit_queue(self, records: Target[K, V], records_max: int, only: Collection[TopicPartition]) -> None:
        for _ in range(len(self._queue)):
            buffer = self._queue.popleft()
            buffer.queued = False
            if not buffer.state.readable or (only and buffer.state.topic_partition not in only):
                self._enqueue(buffer)
            elif buffer.waiting is None:  # else `decompressed` follows
                if self._open_bytes >= self._settings.buffer_max_bytes and not self._may_open(buffer):
                    self._enqueue(buffer)
                    continue
                self._read(buffer, records, records_max)
                if buffer.failure is not None:
                    if self._is_next_error(buffer, records):
                        break
                elif (job := buffer.waiting) is not None:
                    self._jobs.append(job)
                elif buffer.size:
                    self._enqueue(buffer)
                if len(records) >= records_max or (isinstance(records, ColumnBuilder) and records.full):
                    break

    def _read(self, buffer: PartitionBuffer[K, V], records: Target[K, V], records_max: int) -> None:
        enough = self._settings.partition_max_bytes
        before, state = buffer.size, buffer.state
        self._read_from.append((buffer, state.position, state.leader_epoch))
        freed = buffer.take(records, records_max - len(records))
        self.buffered_bytes -= freed
        if buffer.batch_bytes != buffer.open_bytes:
            self._open_bytes += buffer.count_open()
        self._plan.change((buffer,))
        if (freed and self._full) or before >= enough > buffer.size:
            self._changed = True

    def _may_open(self, buffer: PartitionBuffer[K, V] | None) -> bool:
        """Whether a batch may be opened although the memory is used: the next one of an open batch, or the only one."""
        if buffer is not None and buffer.open_bytes:
            return True
        opened = [each for each in self._buffers.values() if each.open_bytes]
        if any(each.readable and (not self._only or each.state.topic_partition in self._only) for each in opened):
            return False
        for each in opened:
            if not each.close_batch():
                self._drop(each)  # it is fetched again
            self._open_bytes += each.count_open()
        return True

    def _is_next_error(self, buffer: PartitionBuffer[K, V], records: Target[K, V]) -> bool:
        """Raise the error of a partition, unless records come first. Return whether the next call raises it."""
        if records:
            buffer.queued = True
            self._queue.appendleft(buffer)
            return True
        if buffer is not self._raised:
            self._raise(buffer)
        self._enqueue(buffer)
        return False

    def _raise(self, buffer: PartitionBuffer[K, V]) -> NoReturn:
        """Raise the error of a partition. The next call raises it again only without records of other partitions."""
        failure = buffer.failure
        assert failure is not None
        if buffer.error is failure:
            buffer.error = None  # the partition is fetched again
            self._plan.change((buffer,))
            self._changed = True
        else:
            self._enqueue(buffer)
        self._raised = buffer
        raise failure.with_traceback(None)

    def jobs(self) -> list[FetchedRecords[K, V]]:
        """Return the batches that need a thread: call `decompress` of each there, then `decompressed` here."""
        count = JOBS_MAX - self._running
        if self._jobs and self._open_bytes >= self._settings.buffer_max_bytes and not self._may_open(None):
            count = 0
        jobs, self._jobs = self._jobs[:count], self._jobs[count:]
        self._running += len(jobs)
        return jobs

    def decompressed(self, job: FetchedRecords[K, V]) -> None:
        """A job has ended: its records may be read."""
        self._running -= 1
        buffer = self._buffers.get(TopicPartition(job.topic, job.partition))
        if buffer is not None:
            self._open_bytes += buffer.count_open()
            self._plan.change((buffer,))
            self._enqueue(buffer)

    def last_take_starts(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return where the last `take` has begun, of the partitions that it has read."""
        return {
            buffer.state.topic_partition: OffsetAndMetadata(position, "", epoch)
            for buffer, position, epoch in self._read_from
        }

    def give_back(self) -> None:
        """The application does not receive what the last `take` has read: it is fetched again."""
        read, self._read_from = self._read_from, []
        for buffer, position, epoch in read:
            if buffer.assigned and buffer.valid:  # else the position has changed since
                self._drop(buffer)
                self._positions.seek(buffer.state, position, epoch)

    # ---- changes ----------------------------------------------------------------------------------------------------

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the prefetched records of partitions."""
        for each in sorted(partitions):
            if each in self._buffers:
                self._drop(self._buffers[each])

    def _drop(self, buffer: PartitionBuffer[K, V]) -> None:
        self.buffered_bytes -= buffer.clear()
        self._open_bytes += buffer.count_open()
        self._plan.change((buffer,))
        self._changed = True

    def metadata_changed(self) -> None:
        """The view has changed: records prefetched from a leader with another epoch are dropped."""
        self._changed = True
        self._plan.change(self._buffers.values())
        for name, buffer in self._buffers.items():
            leader = self._view.leader(*name)
            if leader == NO_LEADER:
                continue
            if buffer.leader_epoch not in (NO_EPOCH, self._view.leader_epoch(*name)):
                self._drop(buffer)
            if buffer.failed_node not in (NO_NODE, leader):
                buffer.state.retry_at = 0.0

    def _follow_positions(self) -> None:
        """Begin and end buffers as partitions are assigned and revoked; drop records of a changed position."""
        if not self._moved:
            return
        self._changed = True
        with changed_states(self._moved) as moved:
            for state in moved:
                self._follow(state.topic_partition)

    def _follow(self, name: TopicPartition) -> None:
        buffer, state = self._buffers.get(name), self._positions.states.get(name)
        if buffer is not None and state is not buffer.state:
            self._drop(buffer)
            self._plan.remove(buffer)
            del self._buffers[name]
            buffer = None
        if buffer is None:
            if state is None:
                return
            buffer = self._buffers[name] = PartitionBuffer(state)
        elif not buffer.valid:
            self._drop(buffer)
        self._plan.change((buffer,))

    def final_calls(self) -> Iterator[FetchCall]:
        """Yield the requests that end the sessions of brokers without an open request, for the close."""
        for node in self._plan.nodes.values():
            if node.call is None and node.session.is_open:
                yield FetchCall(node.node, node.session.final_request(), None)
