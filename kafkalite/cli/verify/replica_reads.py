"""Reads a partition from each of its replicas, up to the high watermark of the replica.

Requests have the replica id -2 of debugging tools, which followers answer, too (Fetch up to v14).
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from kafkalite_sdk import TopicPartition
from kafkalite_sdk.rpc import Call, Connection, Reply

from kafkalite._speedups.records.batches import Batch, batches
from kafkalite._speedups.records.validator import BatchError
from kafkalite.cli.retry import Retry
from kafkalite.cli.verify.batch_comparison import StoredBatch
from kafkalite.errors import KafkaError, KafkaErrorCode, error_for
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse

DEBUGGING_REPLICA = -2
VERSION_MAX = 12  # later ones name topics by id
BYTES = 1_048_576
RETRY_S = 10.0  # a leader may change meanwhile

Data: TypeAlias = FetchResponse.FetchableTopicResponse.PartitionData


class ReplicaReads:
    """Reads of the replicas of one partition.

    Arguments:
        connection: of the cluster; no other task uses it.
        partition: the partition.
    """

    def __init__(self, connection: Connection, partition: TopicPartition) -> None:
        self._connection = connection
        self._partition = partition

    async def read(self, offsets: Mapping[int, int]) -> dict[int, Data | KafkaError]:
        """Read at an offset of each replica, by broker id.

        Returns the responses; their error is 0 or OFFSET_OUT_OF_RANGE.
        """
        found: dict[int, Data | KafkaError] = {}
        retries, left = Retry(RETRY_S), dict(offsets)
        while left:
            found |= await self._read_once(left)
            failed = {each: error for each in left if isinstance(error := found[each], KafkaError) and error.retriable}
            left = {each: offsets[each] for each in failed}
            for error in list(failed.values())[:1]:
                try:
                    await retries.pause(error)
                except KafkaError:
                    return found
        return found

    async def _read_once(self, offsets: Mapping[int, int]) -> dict[int, Data | KafkaError]:
        calls = [
            Call(self._request(offset), broker=broker, version_max=VERSION_MAX) for broker, offset in offsets.items()
        ]
        replies = await self._connection.poll(None, *calls)
        while self._connection.open_calls:
            replies += await self._connection.poll(None)
        return {reply.call.broker: result_of(reply) for reply in replies if reply.call.broker is not None}

    def _request(self, offset: int) -> FetchRequest:
        topic = FetchRequest.FetchTopic
        part = topic.FetchPartition(partition=self._partition.partition, fetch_offset=offset, partition_max_bytes=BYTES)
        return FetchRequest(
            replica_id=DEBUGGING_REPLICA,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=BYTES,
            topics=[topic(topic=self._partition.topic, partitions=[part])],
        )


def result_of(reply: Reply) -> Data | KafkaError:
    """The partition in a response, or the error."""
    if reply.error is not None:
        return reply.error
    response: Any = reply.response
    if response.error_code:
        return error_for(response.error_code)
    data: Data = response.responses[0].partitions[0]
    unknown = data.high_watermark < 0 or data.error_code not in (0, KafkaErrorCode.OFFSET_OUT_OF_RANGE)
    return error_for(data.error_code) if data.error_code and unknown else data


def parse_batches(data: Data) -> list[Batch]:
    """The batches in a response. Raises BatchError."""
    return batches(bytes(data.records or b""))


def stored_batch(batch: Batch) -> StoredBatch:
    """What is compared of a batch."""
    try:
        batch.check_crc()
        valid = True
    except BatchError:
        valid = False
    return StoredBatch(batch.base_offset, batch.last_offset, batch.leader_epoch, batch.size, batch.crc, valid)
