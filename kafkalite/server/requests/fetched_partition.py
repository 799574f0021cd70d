"""Converts reads of partitions to the response of Fetch, for clients and replicas."""

import logging

from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.reads import PartitionRead
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.fetch import FetchResponse
from kafkalite.state.fetch_sessions import SessionPartition

LOGGER = logging.getLogger("kafkalite.server")

TopicResponse = FetchResponse.FetchableTopicResponse
PartitionData = TopicResponse.PartitionData
EpochEndOffset = PartitionData.EpochEndOffset
AbortedTransaction = PartitionData.AbortedTransaction


def topic_of(news: tuple[SessionPartition, PartitionRead]) -> tuple[str, bytes]:
    """Return the topic under which a response lists a partition: its name and its id."""
    return news[0].topic, news[0].topic_id


def read_ahead_error(partition: Partition, fetch_offset: int, error: BaseException) -> KafkaErrorCode:
    """The error code of a partition whose bytes a job could not read."""
    LOGGER.error("%s-%d: cannot read at offset %d: %s", partition.topic, partition.index, fetch_offset, error)
    known = isinstance(error, OSError)
    return KafkaErrorCode.KAFKA_STORAGE_ERROR if known else KafkaErrorCode.UNKNOWN_SERVER_ERROR


def partition_data(part: SessionPartition, found: PartitionRead) -> PartitionData:
    """Convert a read to the response."""
    data = PartitionData(
        partition_index=part.partition,
        error_code=found.error,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=None,
        records=found.regions or b"",
    )
    if found.aborted is not None:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
            for entry in found.aborted
        ]
    if found.diverging is not None:
        epoch, end_offset = found.diverging
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return data
