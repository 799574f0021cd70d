"""A function of the application that receives the sealed batches of a producer instead of a cluster.

Invariants:
1. Nothing connects: each topic exists as soon as it is used, with the same number of partitions.
2. The handler receives one batch at a time, in the order of their requests; an async handler ends before the next call.
3. A batch is acknowledged when the handler returns, with consecutive offsets per partition. When it raises, the records
   of this batch fail: with the error of the handler if it is a KafkaError, else with UnknownServerError. After a
   retriable KafkaError the handler receives the batch again.
4. Close cancels the handler and waits for its end within a limit. A batch whose handler ends later has failed.
Source: `event.handler` of Kafka 0.7.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from kafkalite.errors import KafkaError, KafkaErrorCode
from kafkalite.model import Node, TopicPartition
from kafkalite.net.client.core import Answer, Fail
from kafkalite.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.cluster_view import MetadataChanges, PartitionView, TopicView
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.client.settings import ClientSettings
from kafkalite_sdk.interceptors.batches import SealedBatch

BatchHandler = Callable[[SealedBatch], object]
"""Receives each batch; plain or async."""

NODE = 0
TopicResponse = ProduceResponse.TopicProduceResponse
PartitionResponse = TopicResponse.PartitionProduceResponse


class HandlerClient(ClusterClient):
    """The cluster client of a producer with a handler.

    Arguments:
        handler: receives the batches.
        partitions: number of partitions of each topic.
    """

    def __init__(
        self, handler: BatchHandler, partitions: int, settings: ClientSettings, environment: Environment | None
    ) -> None:
        super().__init__(settings, environment, name="Producer")
        self._handler = handler
        self._partitions = partitions
        self._offsets: dict[TopicPartition, int] = {}
        self._requests: deque[tuple[ProduceRequest, Answer, Fail]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def start(self, timeout_s: float | None = None) -> None:
        """Belong to the running loop."""
        self.owner.begin()
        self.view.brokers = {NODE: Node(NODE, "handler", 0, None)}

    async def close(self, timeout_s: float = 1.0) -> None:
        """Cancel the handler if it runs, and fail the batches that it has not handled.

        Arguments:
            timeout_s: how long a handler that suppresses its cancellation may continue, in seconds; then its batch has
                failed, too.
        """
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=timeout_s)
        while self._requests:
            self._requests.popleft()[2](self._closed_by)
        self.owner.end()

    def use_topics(self, topics: Iterable[str], *, create: bool = False) -> None:
        """Let topics exist."""
        new = [topic for topic in topics if topic not in self.view.topics]
        for topic in new:
            view = self.view.topics[topic] = TopicView(topic)
            view.partitions = [PartitionView(NODE, 0)] * self._partitions
        if new:
            self.loop.call_soon(self._report, MetadataChanges(new, [], True, {}))

    def _report(self, changes: MetadataChanges) -> None:
        for callback in list(self.on_metadata):
            callback(changes)

    def refresh_metadata(self, topics: Iterable[str] | None = None) -> None:
        """Nothing changes."""

    def drop_topics(self, topics: Iterable[str]) -> None:
        """Nothing is kept current."""

    def submit(self, node: int, request: Any, answer: Answer, fail: Fail, **_: Any) -> None:
        """Pass the batches of a Produce request to the handler."""
        self._requests.append((request, answer, fail))
        if self._task is None:
            self._task = self.loop.create_task(self._handle())

    @property
    def _cancelled(self) -> bool:
        """Whether close has cancelled the handler."""
        return self._task is not None and bool(self._task.cancelling())

    async def _handle(self) -> None:
        try:
            while self._requests and not self._cancelled:
                request, answer, _ = self._requests[0]
                response = await self._response(request)
                if self._requests:  # else the batch failed when close did not wait longer
                    self._requests.popleft()
                    answer(response if request.acks else None)
        finally:
            self._task = None

    async def _response(self, request: ProduceRequest) -> ProduceResponse:
        responses = [
            TopicResponse(
                name=topic.name,
                partition_responses=[
                    await self._handled(topic.name, each.index, bytes(each.records or b""))
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        return ProduceResponse(responses=responses)

    async def _handled(self, topic: str, partition: int, data: bytes) -> PartitionResponse:
        from kafkalite.records import Batch

        batch = SealedBatch(topic, partition, Batch(data).records_count, data)
        name = TopicPartition(topic, partition)
        if self._cancelled:
            return _failed(partition, KafkaErrorCode.UNKNOWN_SERVER_ERROR, "the producer was closed")
        batch.base_offset = self._offsets.get(name, 0)
        try:
            result = self._handler(batch)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError as error:
            if self._cancelled:
                raise
            return _failed(partition, KafkaErrorCode.UNKNOWN_SERVER_ERROR, f"the handler raised {error!r}")
        except KafkaError as error:
            return _failed(partition, _code_of(error), str(error))
        except Exception as error:
            return _failed(partition, KafkaErrorCode.UNKNOWN_SERVER_ERROR, f"the handler raised {error!r}")
        self._offsets[name] = batch.base_offset + batch.records_count
        return PartitionResponse(index=partition, base_offset=batch.base_offset)


def _code_of(error: KafkaError) -> KafkaErrorCode:
    """Return a code for an error; one that no broker has reported has none, and a response contains only codes."""
    if error.code is not None:
        return error.code
    return KafkaErrorCode.NETWORK_EXCEPTION if error.retriable else KafkaErrorCode.UNKNOWN_SERVER_ERROR


def _failed(partition: int, code: int, reason: str) -> PartitionResponse:
    return PartitionResponse(index=partition, error_code=int(code), base_offset=-1, error_message=reason)
