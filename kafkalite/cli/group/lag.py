"""Computes the lag of a group: in records, and as the age of the first record from the committed offset on."""

import asyncio
import time
from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.cli.group.client import CommittedOffset, DescribedGroup, GroupMember
from kafkalite.cli.leader_connections import EARLIEST, LATEST, LeaderConnections
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import READ_COMMITTED, TopicPartition
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.records import batches

AT_ONCE = 16  # concurrent fetches; each response may contain a whole batch

FetchTopic = FetchRequest.FetchTopic


class ConsumerLag(NamedTuple):
    """Offsets and lag of a group in a partition; None = unknown or absent."""

    topic_partition: TopicPartition
    committed: int | None
    log_end: int | None
    lag: int | None
    lag_s: float | None
    member: GroupMember | None


async def consumer_lags(
    leaders: LeaderConnections, group: DescribedGroup, committed: Mapping[TopicPartition, CommittedOffset]
) -> list[ConsumerLag]:
    """The lag of every partition that has a committed offset or an owner, sorted by topic and partition."""
    owners = {topic_partition: member for member in group.members for topic_partition in member.assignment}
    topic_partitions = sorted({*committed, *owners})
    sizes = await leaders.known({topic_partition.topic for topic_partition in topic_partitions})
    there = [
        topic_partition
        for topic_partition in topic_partitions
        if topic_partition.partition < sizes.get(topic_partition.topic, 0)
    ]
    starts = await leaders.offsets(dict.fromkeys(there, EARLIEST))
    ends = await leaders.offsets(dict.fromkeys(there, LATEST))
    behind = {
        topic_partition: max(committed[topic_partition].offset, starts[topic_partition])
        for topic_partition in there
        if topic_partition in committed and committed[topic_partition].offset < ends[topic_partition]
    }
    ages = await ages_s(leaders, behind)
    found = []
    for topic_partition in topic_partitions:
        offset = committed[topic_partition].offset if topic_partition in committed else None
        end = ends.get(topic_partition)
        lag = None if offset is None or end is None else max(end - offset, 0)
        found.append(
            ConsumerLag(
                topic_partition,
                offset,
                end,
                lag,
                0.0 if lag == 0 else ages.get(topic_partition),
                owners.get(topic_partition),
            )
        )
    return found


async def ages_s(leaders: LeaderConnections, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
    """The age in seconds of the first record at or after each position; without partitions that have no such record."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def limited(topic_partition: TopicPartition, offset: int) -> int | None:
        async with limit:
            return await timestamp_at(leaders, topic_partition, offset)

    found = await asyncio.gather(*(limited(topic_partition, offset) for topic_partition, offset in positions.items()))
    now_ms = time.time() * 1000
    ages = zip(positions, found, strict=True)
    return {topic_partition: max(now_ms - stamp, 0) / 1000 for topic_partition, stamp in ages if stamp is not None}


async def timestamp_at(leaders: LeaderConnections, topic_partition: TopicPartition, offset: int) -> int | None:
    """The timestamp in ms of the first record from an offset on; None if the next batch has no such record."""
    wanted = FetchTopic.FetchPartition(partition=topic_partition.partition, fetch_offset=offset, partition_max_bytes=1)
    topic = FetchTopic(
        topic=topic_partition.topic, topic_id=leaders.topic_id(topic_partition.topic), partitions=[wanted]
    )
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, isolation_level=READ_COMMITTED, topics=[topic])
    response = await (await leaders.leader(*topic_partition)).call(request)
    for found in (each for topic in response.responses for each in topic.partitions):
        if found.error_code != KafkaErrorCode.NONE:
            return None
        for batch in batches(bytes(found.records or b"")):
            if batch.control:
                continue
            for record in batch:
                if record.offset >= offset:
                    return int(record.timestamp)
    return None
