"""Reports of aiokafka's consumer about logs and topics."""

from collections.abc import Iterable, Mapping
from math import inf

from kafkalite.model import TopicPartition
from kafkalite_sdk.client.topic_partitions import partitions_of
from kafkalite_sdk.compat.aiokafka.lifetime import LoopClient
from kafkalite_sdk.compat.aiokafka.structs import OffsetAndTimestamp
from kafkalite_sdk.compat.aiokafka.topics import all_topics
from kafkalite_sdk.consumer.consumer import Consumer
from kafkalite_sdk.consumer.driver import AnyDriver


class Lookups(LoopClient):
    """The base of the consumer: its calls that change nothing."""

    _consumer: Consumer[bytes, bytes]
    _driver: AnyDriver
    _request_timeout_s: float

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets of the first records."""
        return await self._consumer.beginning_offsets(partitions, timeout=self._request_timeout_s)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets behind the last records."""
        return await self._consumer.end_offsets(partitions, timeout=self._request_timeout_s)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first records of a time in ms or later, None = there is none."""
        times = {each: int(timestamp) for each, timestamp in timestamps.items()}
        found = await self._consumer.offsets_for_times(times, timeout=self._request_timeout_s)
        return {
            each: None if offset is None else OffsetAndTimestamp(offset.offset, offset.timestamp_ms)
            for each, offset in found.items()
        }

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the offset behind the last record that consumers may read, as the last response reports it."""
        return _known(self._consumer._queries.state_of(partition).high_watermark)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset, as the last response reports it."""
        return _known(self._consumer._queries.state_of(partition).last_stable_offset)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return the time of the last poll of the consumer in ms since 1970, None = there was none."""
        self._consumer._queries.state_of(partition)
        polled_at = self._consumer._loop.polled_at
        return (
            None
            if polled_at == -inf
            else int(self._driver.client.environment.now_ms() - (self._driver.now() - polled_at) * 1000)
        )

    # topics

    async def topics(self) -> set[str]:
        """Return the names of all topics of the cluster."""
        return await all_topics(self._driver.client)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic that the consumer reads, None = unknown."""
        return partitions_of(self._driver.client.view, topic)


def _known(offset: int) -> int | None:
    return None if offset < 0 else offset
