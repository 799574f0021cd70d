"""Reads one range of offsets of a partition in batches of columns.

Invariants:
1. Every record of the range is returned once, in order, and no other record. Offsets without a record (compacted,
   control batches, aborted transactions) are skipped.
2. Memory is bounded by the open requests, the responses that are not read yet and one batch of columns.
3. An error is raised behind the records before it. If the log does not have the range any more, it names the range;
   only the answer of a broker says so.
Sources: SubscriptionState.java, FetchCollector.java of Apache Kafka 4.3; KIP-392.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import NamedTuple

from kafkalite.backoff import Backoff
from kafkalite.errors import (
    AuthenticationError,
    CorruptRecordError,
    InvalidMetadataError,
    KafkaError,
    KafkaErrorCode,
    KafkaTimeoutError,
    OffsetRangeError,
    error_for,
)
from kafkalite.model import ZERO_UUID, TopicPartition
from kafkalite.protocol.messages.fetch import FetchResponse
from kafkalite_sdk._speedups.column_batch import ColumnBatch
from kafkalite_sdk._speedups.column_builder import ColumnBuilder
from kafkalite_sdk._speedups.consumer_records import RecordDecoder
from kafkalite_sdk._speedups.fetched_records import FetchedRecords
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.cluster_view import NO_EPOCH, NO_LEADER, MetadataChanges
from kafkalite_sdk.columns.range_plan import Part, RangePlan
from kafkalite_sdk.consumer.fetch.fetch_session import FetchSession, WantedPartition
from kafkalite_sdk.consumer.fetch.fetch_settings import FetchSettings

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData
NO_REPLICA = -1
SESSIONLESS = UNKNOWN_END = -1


class OffsetRange(NamedTuple):
    """Offsets of a partition; `end` does not belong to the range."""

    topic: str
    partition: int
    start: int
    end: int


class RangeReader:
    """The reader of one range.

    Arguments:
        client: of the cluster; it is started and has the topic in use.
        wanted: the range.
        settings: of the requests; `partition_max_bytes` is the largest response.
        fetches: the most requests and unread responses.
        decoder: of the batches.
        timeout_s: longest time without a response that has records.
        topic_id: the range belongs to the topic with this id only; None = to the topic that exists now.
    """

    def __init__(
        self,
        client: ClusterClient,
        wanted: OffsetRange,
        settings: FetchSettings,
        fetches: int,
        decoder: RecordDecoder[bytes, bytes],
        timeout_s: float,
        topic_id: bytes | None = None,
    ) -> None:
        self._client = client
        self._topic_id = topic_id
        self._wanted = wanted
        self._name = TopicPartition(str.__str__(wanted.topic), wanted.partition)  # an exact str, also of a StrEnum
        self._settings = settings
        self._decoder = decoder
        self._timeout_s = timeout_s
        self._plan = RangePlan(wanted.start, wanted.end, fetches, settings.partition_max_bytes)
        self._backoff = Backoff(
            settings.retry_backoff_s, settings.retry_backoff_max_s, client.environment.random.random
        )
        self._changed = asyncio.Event()
        self._replica = NO_REPLICA
        self._leaderless = False
        self._lost: KafkaError | None = None
        self._reason = "no broker has answered"
        self._log_end = UNKNOWN_END

    async def batches(self, builder: ColumnBuilder) -> AsyncIterator[ColumnBatch]:
        """Yield the records in batches.

        Arguments:
            builder: has the columns and the size of a batch.

        Raises: see `ColumnReader.read`.
        """
        plan, client = self._plan, self._client
        metadata_changed = client.owner.guard(self._metadata_changed)
        client.on_metadata.append(metadata_changed)
        client.on_rejected.append(self._rejected_by_all)
        client.owner.on_failure.append(self._client_failed)
        self._check_topic_id()
        try:
            while plan.parts or plan.frontier < self._wanted.end:
                self._send()
                part = plan.parts[0]
                if part.fetched:
                    await self._read(part, builder)
                elif not part.done and part.error is None:
                    await self._wait()
                if part.done:
                    plan.parts.popleft()
                failure = self._failure(part)
                if builder.full or (failure is not None and builder):
                    yield builder.finish()
                if failure is not None:
                    raise failure
            if builder:
                yield builder.finish()
        finally:
            client.on_metadata.remove(metadata_changed)
            client.on_rejected.remove(self._rejected_by_all)
            client.owner.on_failure.remove(self._client_failed)

    def _failure(self, part: Part) -> KafkaError | None:
        """The error behind all records of the first part that were read."""
        return self._lost or (part.fetched[0].error if part.fetched else part.error)

    async def _read(self, part: Part, builder: ColumnBuilder) -> None:
        """Append records of the first response until the columns are full; decompress a large batch in a thread."""
        fetched = part.fetched[0]
        fetched.take_columns(builder, part.end)
        if fetched.waits:
            await asyncio.to_thread(fetched.decompress)
        elif fetched.error is None and (fetched.done or fetched.position >= part.end):
            part.fetched.popleft()

    # requests

    def _send(self) -> None:
        """Open the requests that are due."""
        for part in self._plan.due(self._client.loop.time()):
            node = self._source()
            if node == NO_LEADER:
                self._leaderless = True
                self._retry(part, f"{self._name} has no leader")
                continue
            part.open = True
            request, version_max = FetchSession().request({self._name: self._asked(part)})
            request.session_epoch = SESSIONLESS
            request.max_wait_ms = int(self._settings.max_wait_s * 1000)
            request.min_bytes = self._settings.min_bytes
            request.max_bytes = self._settings.partition_max_bytes
            request.isolation_level = self._settings.isolation_level
            request.rack_id = self._settings.rack
            guard = self._client.owner.guard
            answered, failed = guard(partial(self._answered, part, node)), guard(partial(self._failed, part))
            self._client.submit(node, request, answered, failed, version_max=version_max)

    def _source(self) -> int:
        """The broker to fetch from: the preferred replica, or the leader."""
        if self._replica in self._client.view.brokers:
            return self._replica
        return self._client.view.leader(*self._name)

    def _asked(self, part: Part) -> WantedPartition:
        view = self._client.view.topics.get(self._name.topic)
        topic_id = ZERO_UUID if view is None else view.topic_id
        return WantedPartition(topic_id, part.position, NO_EPOCH, self._settings.partition_max_bytes)

    def _answered(self, part: Part, node: int, response: FetchResponse) -> None:
        part.open = False
        self._changed.set()
        data = next((each for topic in response.responses for each in topic.partitions), None)
        code = response.error_code or (KafkaErrorCode.UNKNOWN_SERVER_ERROR if data is None else data.error_code)
        if code or data is None:
            self._rejected(part, error_for(code, f"{self._name} at offset {part.position}"))
        elif data.preferred_read_replica >= 0:
            self._refer(part, node, data.preferred_read_replica)
        elif data.records:
            aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
            fetched = FetchedRecords(self._decoder, *self._name, data.records, part.position, aborted)
            self._plan.add_response(part, fetched)
        else:
            end = data.last_stable_offset if self._settings.isolation_level else data.high_watermark
            self._reason = f"the log ends at offset {end}"
            self._log_end = data.high_watermark
            part.retry_at = self._client.loop.time() + self._settings.retry_backoff_s

    def _refer(self, part: Part, node: int, replica: int) -> None:
        """A broker refers to the preferred replica: fetch from it, after a pause if it is unknown or this broker."""
        if replica in self._client.view.brokers and replica != node:
            self._replica = replica
        else:
            self._retry(part, f"broker {node} refers to broker {replica}, which is unknown or the same")

    def _rejected(self, part: Part, error: KafkaError) -> None:
        """Apply the error of the partition."""
        from_replica, self._replica = self._replica != NO_REPLICA, NO_REPLICA
        if error.code == KafkaErrorCode.OFFSET_OUT_OF_RANGE and not from_replica:
            part.error = self._unavailable(part.position, "it is not in the log; retention or a truncation removed it")
        elif error.code == KafkaErrorCode.CORRUPT_MESSAGE:
            reason = "the broker cannot read its log there"
            part.error = CorruptRecordError(error.code, *self._name, part.position, part.position + 1, reason)
        elif error.retriable or isinstance(error, InvalidMetadataError) or from_replica:
            self._failed(part, error)
        else:
            part.error = error

    def _failed(self, part: Part, error: KafkaError) -> None:
        """A request has no records; it is repeated, unless the error lasts."""
        part.open = False
        self._changed.set()
        self._replica = NO_REPLICA
        if error.retriable:
            self._retry(part, str(error))
        else:
            part.error = error

    def _retry(self, part: Part, reason: str) -> None:
        part.failures += 1
        part.retry_at = self._client.loop.time() + self._backoff.delay_s(part.failures)
        self._reason = reason
        self._log_end = UNKNOWN_END
        self._client.refresh_metadata([self._name.topic])

    def _unavailable(self, offset: int, reason: str) -> OffsetRangeError:
        return OffsetRangeError(*self._wanted, offset, reason)

    # waiting

    def _metadata_changed(self, changes: MetadataChanges) -> None:
        if self._name.topic in changes.recreated:
            self._recreated()
        self._check_topic_id()
        if self._leaderless and self._source() != NO_LEADER:
            self._leaderless = False
            for part in self._plan.parts:
                part.retry_at = 0.0  # the leader was all that was missing
        self._changed.set()

    def _check_topic_id(self) -> None:
        """Fail if the topic that exists now is another one than that of the range."""
        view = self._client.view.topics.get(self._name.topic)
        if view is not None and self._topic_id is not None and view.topic_id not in (ZERO_UUID, self._topic_id):
            self._recreated()

    def _recreated(self) -> None:
        offset = self._plan.parts[0].position if self._plan.parts else self._plan.frontier
        self._lost = self._unavailable(offset, "the topic was deleted and created again")

    def _rejected_by_all(self, error: AuthenticationError) -> None:
        """No broker accepts the credentials: the leader cannot be looked up."""
        self._lost = error
        self._changed.set()

    def _client_failed(self, _: KafkaError) -> None:
        """An unexpected exception has ended the client: the wait raises its error."""
        self._changed.set()

    async def _wait(self) -> None:
        """Wait for the first part, for at most the timeout.

        The range is lost only if a broker has answered that its log ends before; a broker that does not answer, or a
        partition without a leader, says nothing about the records.
        """
        loop = self._client.loop
        part = self._plan.parts[0]
        deadline = loop.time() + self._timeout_s
        while not part.fetched and part.error is None and self._lost is None:
            self._changed.clear()
            self._send()
            try:
                async with asyncio.timeout_at(min(deadline, self._plan.wake_at(loop.time()))):
                    await self._changed.wait()
            except TimeoutError:
                if loop.time() >= deadline:
                    reason = f"no records within {self._timeout_s:g} s: {self._reason}"
                    if UNKNOWN_END < self._log_end < part.end:
                        self._lost = self._unavailable(part.position, reason)
                    else:
                        self._lost = KafkaTimeoutError(f"{self._name} at offset {part.position}: {reason}")
            self._client.check_owner()
