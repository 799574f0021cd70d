"""Reads the partitions of a client's fetch, waits for `min_bytes` if they have too few, and builds the response."""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from itertools import groupby

from kafkalite._speedups.storage.page_cache import PageCacheMiss
from kafkalite.clock import Outcome
from kafkalite.cluster.partition.delayed_fetch import DelayedFetch, bytes_missing_for_client
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.reads import PartitionRead, ends_early, read
from kafkalite.model import READ_COMMITTED
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.server.requests.call import OBJECTS_MAX, PartitionCall
from kafkalite.server.requests.fetch_context import (
    QUIET,
    FetchContext,
    pieces,
)
from kafkalite.server.requests.fetched_partition import (
    PartitionData,
    TopicResponse,
    partition_data,
    read_ahead_error,
    topic_of,
)
from kafkalite.server.requests.leader_hints import HINTED, LeaderHints
from kafkalite.state.fetch_sessions import SessionPartition

LeaderIdAndEpoch = PartitionData.LeaderIdAndEpoch
NodeEndpoint = FetchResponse.NodeEndpoint
LEADERS_SINCE = 16
ANY_REPLICA_SINCE = 11
DEBUGGING = -2  # a replica id


class PendingFetch:
    """A fetch from its first read of the partitions to its response.

    Bytes that are not in memory are read by jobs, then all partitions are read again: as in Kafka, the response has the
    state of all partitions at one moment.
    """

    __slots__ = (
        "_any_replica",
        "_bytes_max",
        "_bytes_min",
        "_call",
        "_cancel",
        "_context",
        "_hints",
        "_misses",
        "_read_ahead",
        "_request",
    )

    def __init__(self, call: PartitionCall, request: FetchRequest, context: FetchContext) -> None:
        self._call = call
        self._request = request
        self._context = context
        self._any_replica = call.version >= ANY_REPLICA_SINCE or is_debugging(request)
        self._bytes_max = min(request.max_bytes, call.context.config.fetch_max_bytes)
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._hints: LeaderHints | None = None
        self._misses: list[tuple[SessionPartition, PageCacheMiss]] = []
        self._read_ahead: dict[SessionPartition, Outcome] = {}  # of finished jobs
        self._cancel: dict[SessionPartition, Callable[[], None]] = {}  # of running jobs

    def start(self) -> None:
        """Send the response at once if there are enough bytes, an error or no time to wait; else delay the fetch."""
        self._serve(hurried=self._request.max_wait_ms <= 0)

    def _serve(self, *, hurried: bool) -> None:
        """Read all partitions, in several loop iterations if they are many, and continue with the result."""
        objects = len(self._context.partitions)
        if objects <= OBJECTS_MAX:
            self._served(hurried, self._read_all())
        else:
            self._call.in_slices(self._read_in_steps(), objects, partial(self._served, hurried))

    def _served(self, hurried: bool, reads: list[PartitionRead]) -> None:
        if self._misses:
            self._start_read_ahead(hurried)
            return
        missing = 0 if hurried or not reads else self._bytes_missing(reads)
        if len(reads) > OBJECTS_MAX:
            self._go_on_in_steps(missing, reads)
        elif missing > 0:
            self._delay(missing)
        else:
            self._answer(reads)

    def _go_on_in_steps(self, missing: int, reads: list[PartitionRead]) -> None:
        if missing <= 0:
            self._call.answer_from(self._response_in_steps(reads), len(reads))
        elif self._context.has_moved(reads):  # no fetch was delayed yet when the records were appended
            self._serve(hurried=True)
        else:
            self._delay(missing)

    def _bytes_missing(self, reads: list[PartitionRead]) -> int:
        return bytes_missing_for_client(reads, self._bytes_min, self._stops_early)

    def _stops_early(self, reads: Sequence[PartitionRead]) -> bool:
        """Return whether a read ended before the last record: at a byte limit, a segment end or a page-cache miss."""
        for part, found in zip(self._context.partitions, reads, strict=True):
            if not isinstance(part.handle, Partition):
                continue
            if found.size:
                early = ends_early(part.handle, found)
            else:  # the partitions before it left too few bytes for its first batch
                end_offset = found.last_stable_offset if self._committed_only else found.high_watermark
                early = part.fetch_offset < end_offset and part.max_bytes > 0
            if early:
                return True
        return False

    def _delay(self, bytes_missing: int) -> None:
        partitions = [part.handle for part in self._context.partitions if isinstance(part.handle, Partition)]
        missing = self._missing if self._committed_only else None
        waiter = DelayedFetch(partitions, bytes_missing, self._wake, missing, self._missing)
        self._call.reply.on_gone = waiter.cancel
        broker = self._call.context
        wait_ms = min(self._request.max_wait_ms, broker.config.kafkalite_client_timeout_max_ms)
        waiter.watch(broker.clock, wait_ms / 1000)

    @property
    def _committed_only(self) -> bool:
        return self._request.isolation_level == READ_COMMITTED

    def _missing(self) -> int:
        """How many bytes the response lacks; 0 or less if it need not wait, also after a page-cache miss."""
        reads = self._read_all()
        misses, self._misses = self._misses, []  # the read that is made to answer has them again
        return 0 if misses else self._bytes_missing(reads)

    def _wake(self) -> None:
        self._resume(hurried=True)

    def _resume(self, *, hurried: bool) -> None:
        self._call.reply.on_gone = None
        try:
            self._serve(hurried=hurried)
        except Exception as error:
            self._call.fail(error)

    def _start_read_ahead(self, hurried: bool) -> None:
        """Read the missing bytes ahead in jobs, then read all partitions again."""
        misses, self._misses = self._misses, []
        self._call.reply.on_gone = self._cancel_read_ahead
        for part, miss in misses:
            done = partial(self._read_ahead_done, part, hurried)
            self._cancel[part] = self._call.context.read_ahead.read(miss, done)

    def _read_ahead_done(self, part: SessionPartition, hurried: bool, outcome: Outcome) -> None:
        del self._cancel[part]
        self._read_ahead[part] = outcome
        if not self._cancel:
            self._resume(hurried=hurried)

    def _cancel_read_ahead(self) -> None:
        """Cancel the jobs for a client that has disconnected, except those that other requests wait for."""
        for cancel in self._cancel.values():
            cancel()

    def _read_all(self) -> list[PartitionRead]:
        reads: list[PartitionRead] = []
        self._read_some(self._context.partitions, reads, self._bytes_max, True)
        return reads

    def _read_in_steps(self) -> Generator[None, None, list[PartitionRead]]:
        reads: list[PartitionRead] = []
        left, empty = self._bytes_max, True
        for parts in pieces(self._context.partitions):
            left, empty = self._read_some(parts, reads, left, empty)
            yield
        return reads

    def _read_some(
        self, parts: list[SessionPartition], reads: list[PartitionRead], left: int, empty: bool
    ) -> tuple[int, bool]:
        """Read some of the partitions.

        Arguments:
            parts: the partitions.
            reads: the results are appended to it.
            left: bytes that the request's limit leaves after the partitions before these.
            empty: no partition before these has records.

        Returns `left` and `empty` for the partitions after these.
        """
        for part in parts:
            found = self._read(part, left, empty)
            if found.miss is not None:
                self._misses.append((part, found.miss))
                left -= found.miss.size  # not more is read ahead than the response may hold
                empty = False
            left -= found.size
            empty = empty and not found.size
            reads.append(found)
        return left, empty

    def _read(self, part: SessionPartition, bytes_left: int, min_one: bool) -> PartitionRead:
        partition = self._context.resolve(part)
        if not isinstance(partition, Partition):
            return PartitionRead(partition)
        if part.high_watermark_sent == part.fetch_offset and self._context.is_quiet(part, partition):
            return QUIET
        done = self._read_ahead.get(part) if self._read_ahead else None
        found = read(
            partition,
            part.fetch_offset,
            min(part.max_bytes, bytes_left),
            committed_only=self._committed_only,
            min_one=min_one,
            read_ahead=None if done is None else done.value,
            current_leader_epoch=part.current_leader_epoch,
            last_fetched_epoch=part.last_fetched_epoch,
            any_replica=self._any_replica,
        )
        if found.miss is not None and done is not None and done.error is not None:
            return PartitionRead(read_ahead_error(partition, part.fetch_offset, done.error))
        return found

    def _answer(self, reads: list[PartitionRead]) -> None:
        responses: list[TopicResponse] = []
        for part, found in self._context.news(reads):
            if not responses or (responses[-1].topic, responses[-1].topic_id) != (part.topic, part.topic_id):
                responses.append(TopicResponse(topic=part.topic, topic_id=part.topic_id, partitions=[]))
            responses[-1].partitions.append(self._data(part, found))
        self._call.answer(self._response(responses))

    def _response_in_steps(self, reads: list[PartitionRead]) -> Generator[None, None, FetchResponse]:
        """Build the response of `_answer`, with arrays that are encoded piece by piece."""
        topics = self._call.elements()
        for (name, topic_id), news in groupby(self._context.news(reads), topic_of):
            partitions = self._call.elements()
            for part, found in news:
                partitions.add(self._data(part, found))
                yield
            listed = partitions.finish()
            topics.add(TopicResponse(topic=name, topic_id=topic_id, partitions=listed), 1 + len(listed))
        return self._response(topics.finish())

    def _data(self, part: SessionPartition, found: PartitionRead) -> PartitionData:
        data = partition_data(part, found)
        if (
            found.error
            and found.error in HINTED
            and self._call.version >= LEADERS_SINCE
            and self._call.context.in_cluster
        ):
            if self._hints is None:
                self._hints = LeaderHints(self._call, by_id=True)
            leader_id, leader_epoch = self._hints.leader(part.topic, part.topic_id, part.partition)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        return data

    def _response(self, responses: list[TopicResponse]) -> FetchResponse:
        response = FetchResponse(session_id=self._context.session_id, responses=responses)
        if self._hints is not None:
            response.node_endpoints = [
                NodeEndpoint(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
                for node in self._hints.nodes.values()
            ]
        return response


def is_debugging(request: FetchRequest) -> bool:
    """Return whether a request has the replica id of debugging tools, which read from any replica."""
    state = request.replica_state
    return request.replica_id == DEBUGGING or (state is not None and state.replica_id == DEBUGGING)
