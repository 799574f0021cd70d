"""Which fetch requests leave, what their responses mean, and which records `poll` returns.

Pure: no I/O, no clock, no randomness. The driver sends the requests of `requests`, reports their ends by `answered` or
`lost`, calls `metadata_changed` after each change of the view, asks for metadata of `stale_topics`, runs `jobs`, and
calls `requests` again at `wake_at`.

Invariants:
1. Each record is returned once, in the order of its partition, unless the position changes.
2. A response counts for a partition only if that partition still waits for it: a seek, a revocation or a new leader
   epoch drops it, and the records prefetched from the former leader.
3. A broker has one open request. `buffer_max_bytes` bounds the responses in memory, beyond it one batch is possible.
4. A partition with an error delays no other partition; it is raised behind the records before it.
Sources: AbstractFetch.java, FetchCollector.java and CompletedFetch.java of Apache Kafka 4.3; KIP-227, KIP-320, KIP-392,
KIP-951.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Generic, NoReturn, TypeVar

from kafkalite.errors import KafkaError, error_for
from kafkalite.model import ZERO_UUID, TopicPartition
from kafkalite.protocol.messages.fetch import FetchResponse
from kafkalite_sdk._speedups.consumer_records import Record, RecordDecoder
from kafkalite_sdk._speedups.fetched_records import FetchedRecords
from kafkalite_sdk.client.cluster_view import NO_LEADER, ClusterView
from kafkalite_sdk.consumer.fetch_errors import FetchErrors
from kafkalite_sdk.consumer.fetch_node import FetchCall, FetchNode
from kafkalite_sdk.consumer.fetch_session import WantedPartition
from kafkalite_sdk.consumer.fetch_settings import FetchSettings
from kafkalite_sdk.consumer.partition_buffer import NO_NODE, PartitionBuffer
from kafkalite_sdk.consumer.positions import NO_EPOCH, NO_REPLICA, Positions
from kafkalite_sdk.consumer.response_memory import ResponseMemory

K = TypeVar("K")
V = TypeVar("V")
PartitionData = FetchResponse.FetchableTopicResponse.PartitionData
Wanted = dict[TopicPartition, tuple[PartitionBuffer[K, V], WantedPartition]]


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
        self._nodes: dict[int, FetchNode] = {}
        self._queue: deque[PartitionBuffer[K, V]] = deque()  # those with records or an error
        self._jobs: list[FetchedRecords[K, V]] = []
        self._failure: KafkaError | None = None
        self._raised: PartitionBuffer[K, V] | None = None  # whose error the last `take` raised
        self._reserved = 0
        self._seen = -1
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
        self._wake_at = inf
        plan = self._plan(now)
        for node in sorted(plan, key=lambda each: each.ended_at):
            if node.call is None and self._may_leave(node, plan[node], now, usable):
                if self._full:
                    return  # the broker that has waited longest is the next one
                wanted = self._wanted(plan[node])
                max_bytes = self._allowed_bytes(len(plan))
                if wanted and max_bytes:
                    call = node.begin(wanted, max_bytes)
                    self._reserved += call.reserved
                    yield call

    def _plan(self, now: float) -> dict[FetchNode, list[PartitionBuffer[K, V]]]:
        """The partitions to fetch, by broker."""
        plan: dict[FetchNode, list[PartitionBuffer[K, V]]] = {}
        for buffer in self._buffers.values():
            state = buffer.state
            if not state.fetchable(now):
                if state.retry_at > now:
                    self._wake_at = min(self._wake_at, state.retry_at)
            elif buffer.fetchable:
                broker_id = self._source(buffer, now)
                if broker_id == NO_LEADER:
                    self.stale_topics.add(state.topic_partition.topic)
                    continue
                node = self._nodes.get(broker_id)
                if node is None:
                    node = self._nodes[broker_id] = FetchNode(broker_id, self._settings)
                plan.setdefault(node, []).append(buffer)
        return plan

    def _source(self, buffer: PartitionBuffer[K, V], now: float) -> int:
        """The broker to fetch from: the preferred replica, or the leader."""
        state = buffer.state
        replica = state.preferred_replica
        if replica != NO_REPLICA:
            if now < state.preferred_until and replica in self._view.brokers:
                return replica
            state.preferred_replica = NO_REPLICA
        return self._view.leader(*state.topic_partition)

    def _may_leave(
        self, node: FetchNode, buffers: list[PartitionBuffer[K, V]], now: float, usable: Callable[[int], bool]
    ) -> bool:
        enough = self._settings.partition_max_bytes
        earliest = node.retry_at
        if node.hold_until > earliest and any(each.size >= enough for each in buffers):
            earliest = node.hold_until
        if earliest > now:
            self._wake_at = min(self._wake_at, earliest)
            return False
        if not usable(node.node):
            self._changed = True
            return False
        return True

    def _wanted(self, buffers: list[PartitionBuffer[K, V]]) -> Wanted[K, V]:
        wanted: Wanted[K, V] = {}
        for buffer in buffers:
            if buffer.size >= self._settings.partition_max_bytes:
                continue
            name = buffer.state.topic_partition
            view = self._view.topics.get(name.topic)
            topic_id = ZERO_UUID if view is None else view.topic_id
            buffer.leader_epoch = leader_epoch(self._view, name)
            max_bytes = self._settings.partition_max_bytes
            wanted[name] = buffer, WantedPartition(topic_id, buffer.next_offset, buffer.leader_epoch, max_bytes)
        return wanted

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

    def wake_at(self, now: float) -> float:
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
        if not node.session.accepted(response):
            self._request_failed(call, node, error_for(response.error_code), now)
            return
        node.failures = 0
        memory = ResponseMemory()
        expected = self._expected(call)
        for topic in response.responses:
            name = topic.topic or call.names.get(topic.topic_id, "")
            for data in topic.partitions:
                buffer = expected.pop(TopicPartition(name, data.partition_index), None)
                if buffer is not None:
                    self._receive(buffer, call, data, response, memory, now)
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
        node = self._nodes[call.node]
        node.end(now)
        self._reserved -= call.reserved
        self._changed = True
        return node

    def _expected(self, call: FetchCall) -> dict[TopicPartition, PartitionBuffer[K, V]]:
        """The partitions that still wait for the response to a call."""
        expected = {}
        for name, (buffer, asked) in call.partitions.items():
            if buffer.call is call:
                buffer.call = None
                if self._buffers.get(name) is buffer and buffer.next_offset == asked.offset:
                    expected[name] = buffer
        return expected

    def _request_failed(self, call: FetchCall, node: FetchNode, error: KafkaError, now: float) -> None:
        """Continue after a request without data; a session error needs no pause."""
        if not self._errors.is_session_error(error):
            node.failed(now)
            if not error.retriable:
                self._failure = error
        for (topic, _), buffer in self._expected(call).items():
            self.stale_topics.add(topic)
            if buffer.state.preferred_replica == call.node:
                buffer.state.preferred_replica = NO_REPLICA

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
            topic, number = name = state.topic_partition
            offset = buffer.next_offset
            buffer.append(FetchedRecords(self._decoder, topic, number, data.records, offset, aborted), memory)
            self._enqueue(buffer)
            self._buffers[name] = self._buffers.pop(name)  # behind the others in the next full request

    def _enqueue(self, buffer: PartitionBuffer[K, V]) -> None:
        if not buffer.queued:
            buffer.queued = True
            self._queue.append(buffer)

    # ---- records ----------------------------------------------------------------------------------------------------

    @property
    def has_records(self) -> bool:
        """Whether `take` has something to do: records, or an error to raise."""
        return self._failure is not None or any(each.readable for each in self._queue)

    def take(self, records_max: int) -> list[Record[K, V]]:
        """Return records, and advance the positions; each call begins with another partition.

        Arguments:
            records_max: largest number of records.

        Raises:
            KafkaError: the next records of a partition cannot be read or fetched; its position stays. The error names
                topic, partition and offset. The next call continues with the other partitions.
        """
        self._follow_positions()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        records: list[Record[K, V]] = []
        for _ in range(len(self._queue)):
            buffer = self._queue.popleft()
            buffer.queued = False
            if not buffer.state.readable:
                self._enqueue(buffer)
            elif buffer.waiting is None:  # else `decompressed` follows
                self._read(buffer, records, records_max)
                if buffer.failure is not None:
                    if self._is_next_error(buffer, records):
                        break
                elif (job := buffer.waiting) is not None:
                    self._jobs.append(job)
                elif buffer.size:
                    self._enqueue(buffer)
                if len(records) >= records_max:
                    break
        if records:
            self._raised = None
        elif self._raised is not None and self._raised.failure is not None and self._raised.readable:
            self._raise(self._raised)
        return records

    def _read(self, buffer: PartitionBuffer[K, V], records: list[Record[K, V]], records_max: int) -> None:
        enough = self._settings.partition_max_bytes
        before = buffer.size
        freed = buffer.take(records, records_max - len(records))
        self.buffered_bytes -= freed
        if (freed and self._full) or before >= enough > buffer.size:
            self._changed = True

    def _is_next_error(self, buffer: PartitionBuffer[K, V], records: list[Record[K, V]]) -> bool:
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
        else:
            self._enqueue(buffer)
        self._raised = buffer
        raise failure.with_traceback(None)

    def jobs(self) -> list[FetchedRecords[K, V]]:
        """Return the batches that need a thread: call `decompress` of each there, then `decompressed` here."""
        jobs, self._jobs = self._jobs, []
        return jobs

    def decompressed(self, job: FetchedRecords[K, V]) -> None:
        """A job has ended: its records may be read."""
        buffer = self._buffers.get(TopicPartition(job.topic, job.partition))
        if buffer is not None:
            self._enqueue(buffer)

    # ---- changes ----------------------------------------------------------------------------------------------------

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the prefetched records of partitions."""
        for each in partitions:
            if each in self._buffers:
                self._drop(self._buffers[each])

    def _drop(self, buffer: PartitionBuffer[K, V]) -> None:
        self.buffered_bytes -= buffer.clear()
        self._changed = True

    def metadata_changed(self) -> None:
        """The view has changed: records prefetched from a leader with another epoch are dropped."""
        self._changed = True
        for name, buffer in self._buffers.items():
            leader = self._view.leader(*name)
            if leader == NO_LEADER:
                continue
            if buffer.leader_epoch not in (NO_EPOCH, leader_epoch(self._view, name)):
                self._drop(buffer)
            if buffer.failed_node not in (NO_NODE, leader):
                buffer.state.retry_at = 0.0

    def _follow_positions(self) -> None:
        """Begin and end buffers as partitions are assigned and revoked; drop records of a changed position."""
        if self._seen == self._positions.changes:
            return
        self._seen = self._positions.changes
        self._changed = True
        states = self._positions.states
        for name in [each for each, buffer in self._buffers.items() if states.get(each) is not buffer.state]:
            self._drop(self._buffers.pop(name))
        for name, state in states.items():
            buffer = self._buffers.get(name)
            if buffer is None:
                self._buffers[name] = PartitionBuffer(state)
            elif not buffer.valid:
                self._drop(buffer)

    def final_calls(self) -> Iterator[FetchCall]:
        """Yield the requests that end the sessions of brokers without an open request, for the close."""
        for node in self._nodes.values():
            if node.call is None and node.session.is_open:
                yield FetchCall(node.node, node.session.final_request(), None)


def leader_epoch(view: ClusterView, name: TopicPartition) -> int:
    """Return the leader epoch of a partition, NO_EPOCH = unknown."""
    topic = view.topics.get(name.topic)
    return (
        NO_EPOCH
        if topic is None or name.partition >= len(topic.partitions)
        else topic.partitions[name.partition].leader_epoch
    )
