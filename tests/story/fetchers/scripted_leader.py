"""The logs of a scripted leader, and the responses of a leader to fetches of a follower (KIP-227, KIP-595)."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkalite.protocol.schema import Response
from kafkalite.records import set_base_offset, set_leader_epoch
from kafkalite.storage.log.leader_epoch_cache import LeaderEpochCache
from tests.kit.scripted_broker import ScriptedBroker, ScriptedCall
from tests.unit.storage.damage import batch

Data = FetchResponse.FetchableTopicResponse.PartitionData
Key = tuple[bytes, int]
SESSION_ID = 77


class LeaderBatch(NamedTuple):
    """A batch of a leader."""

    base_offset: int
    end_offset: int
    epoch: int
    data: bytes


def as_written(data: bytearray, base_offset: int, epoch: int) -> bytes:
    """A batch with its offset and leader epoch."""
    set_base_offset(data, base_offset)
    set_leader_epoch(data, epoch)
    return bytes(data)


class LeaderLog:
    """The log of one partition on its leader.

    Attributes:
        epoch: of the leader.
        high_watermark: None = the log end.
        error: of each fetch, 0 = none.
    """

    def __init__(self, epoch: int = 1) -> None:
        self.batches: list[LeaderBatch] = []
        self.entries: list[tuple[int, int]] = []
        self.start_offset = self.log_end_offset = 0
        self.high_watermark: int | None = None
        self.error = 0
        self.lead(epoch)

    @property
    def latest(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    def lead(self, epoch: int) -> None:
        """Begin a leader epoch."""
        self.epoch = epoch
        before = [entry for entry in self.entries if entry[1] < self.log_end_offset or entry[0] == epoch]
        self.entries = before if epoch == self.latest else [*before, (epoch, self.log_end_offset)]

    def append(self, count: int = 1, size: int = 100, value: bytes = b"v") -> LeaderBatch:
        """Append a batch of `count` records in the leader's epoch."""
        base = self.log_end_offset
        data = as_written(batch(count, 1_000 + base, size, value), base, self.epoch)
        appended = LeaderBatch(base, base + count, self.epoch, data)
        self.batches.append(appended)
        self.log_end_offset += count
        return appended

    def begin_at(self, offset: int) -> None:
        """Move the log start, and remove the batches below it."""
        self.start_offset = offset
        self.batches = [each for each in self.batches if each.end_offset > offset]

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        return LeaderEpochCache.end_offset(self, epoch, self.log_end_offset)  # type: ignore[arg-type]

    def read(self, asked: Any, bytes_max: int) -> Data:
        """The response to a fetch of this partition."""
        high = self.log_end_offset if self.high_watermark is None else self.high_watermark
        data = Data(
            partition_index=asked.partition,
            high_watermark=high,
            log_start_offset=self.start_offset,
            aborted_transactions=None,
            records=b"",
        )
        if self.error:
            data.error_code, data.high_watermark = self.error, -1
            return data
        if asked.current_leader_epoch != self.epoch:
            older = asked.current_leader_epoch < self.epoch
            data.error_code = KafkaErrorCode.FENCED_LEADER_EPOCH if older else KafkaErrorCode.UNKNOWN_LEADER_EPOCH
            return data
        if asked.last_fetched_epoch >= 0:
            epoch, end = self.epoch_end(asked.last_fetched_epoch)
            if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
                data.diverging_epoch = Data.EpochEndOffset(epoch=epoch, end_offset=end)
                return data
        if not self.start_offset <= asked.fetch_offset <= self.log_end_offset:
            data.error_code = KafkaErrorCode.OFFSET_OUT_OF_RANGE
            return data
        data.records = self.records(asked.fetch_offset, min(bytes_max, asked.partition_max_bytes))
        return data

    def records(self, offset: int, bytes_max: int) -> bytes:
        """Whole batches from an offset on, at least one; then a part of the next one, as Kafka sends it."""
        found = b"".join(each.data for each in self.batches if each.end_offset > offset)
        first = next((len(each.data) for each in self.batches if each.end_offset > offset), 0)
        return found[: max(first, bytes_max)]


class ScriptedLeader:
    """A node of a scripted cluster that serves fetches of one follower.

    Arguments:
        broker: the cluster.
        node: broker id.

    Attributes:
        logs: by topic id and index.
        names: topic id by name, for ListOffsets.
        sessions: whether sessions are opened.
        fetches: the requests, in order.
    """

    def __init__(self, broker: ScriptedBroker, node: int = 2) -> None:
        self.broker = broker
        self.node = node
        self.logs: dict[Key, LeaderLog] = {}
        self.names: dict[str, bytes] = {}
        self.sessions = True
        self.fetches: list[FetchRequest] = []
        self.session_id = SESSION_ID
        self._asked: dict[Key, Any] = {}
        self._sent: dict[Key, tuple[int, int]] = {}  # high watermark and log start
        self._epoch = 0
        self._waiting: list[tuple[ScriptedCall, asyncio.TimerHandle]] = []

    def moved(self) -> None:
        """Serve a fetch that waits: records were appended, or another offset has moved."""
        waiting, self._waiting = self._waiting, []
        for call, timer in waiting:
            timer.cancel()
            self._answer(call, hurried=False)

    def fetch(self, call: ScriptedCall) -> Response | None:
        """Serve a fetch, perhaps later."""
        request = call.request
        self.fetches.append(request)
        if request.session_epoch == 0:
            self._asked.clear()
            self._sent.clear()
            self._epoch = 0
            self.session_id += request.session_id != 0
        elif request.session_id != self.session_id or request.session_epoch != self._epoch:
            return FetchResponse(error_code=KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
        self._epoch = request.session_epoch + 1
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                del self._asked[bytes(forgotten.topic_id), index]
        for topic in request.topics:
            for asked in topic.partitions:
                self._asked[bytes(topic.topic_id), asked.partition] = asked
        self._answer(call, hurried=request.session_epoch == 0)
        return None

    def _answer(self, call: ScriptedCall, *, hurried: bool) -> None:
        left, found = call.request.max_bytes, {}
        for key, asked in self._asked.items():
            data = self.logs[key].read(asked, max(left, 0))
            moved = self._sent.get(key) != (data.high_watermark, data.log_start_offset)
            if hurried or moved or data.records or data.error_code or data.diverging_epoch is not None:
                found[key] = data
                left -= len(data.records or b"")
                self._sent[key] = (data.high_watermark, data.log_start_offset)
        if not found and not hurried and call.connection.transport is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(call.request.max_wait_ms / 1000, self._time_out, call)
            self._waiting.append((call, timer))
            return
        self._respond(call, found)

    def _time_out(self, call: ScriptedCall) -> None:
        self._waiting = [each for each in self._waiting if each[0] is not call]
        self._respond(call, {})

    def _respond(self, call: ScriptedCall, found: dict[Key, Data]) -> None:
        topics: dict[bytes, list[Data]] = {}
        for (topic_id, _), data in found.items():
            topics.setdefault(topic_id, []).append(data)
        responses = [
            FetchResponse.FetchableTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ]
        call.answer(FetchResponse(session_id=self.session_id if self.sessions else 0, responses=responses))

    def list_offsets(self, call: ScriptedCall) -> Response:
        """The log start (-2) or the log end (-1)."""
        Topic = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = []
        for topic in call.request.topics:
            parts = []
            for asked in topic.partitions:
                log = self.logs[self.names[topic.name], asked.partition_index]
                offset = log.log_end_offset if asked.timestamp == -1 else log.start_offset
                parts.append(Topic.ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=offset))
            topics.append(Topic(name=topic.name, partitions=parts))
        return ListOffsetsResponse(topics=topics)


def serve_leaders(broker: ScriptedBroker, leaders: dict[int, ScriptedLeader]) -> None:
    """Let the nodes of a scripted cluster be these leaders."""
    broker.handle(FetchRequest, lambda call: leaders[call.node].fetch(call))
    broker.handle(ListOffsetsRequest, lambda call: leaders[call.node].list_offsets(call))
