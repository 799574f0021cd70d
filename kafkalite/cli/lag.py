"""How far a group is behind: in records, and in the age of the first record that it has not read."""

import asyncio
import time
from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.cli.groups import Committed, Group, Member
from kafkalite.cli.leaders import EARLIEST, LATEST, READ_COMMITTED, Leaders
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.records import batches

AT_ONCE = 16  # each may answer with a whole batch

FetchTopic = FetchRequest.FetchTopic


class Standing(NamedTuple):
    """Where a group stands in a partition; None for what is not known, or not there."""

    place: TopicPartition
    committed: int | None
    log_end: int | None
    lag: int | None
    lag_s: float | None
    member: Member | None


async def standings(leaders: Leaders, group: Group, committed: Mapping[TopicPartition, Committed]) -> list[Standing]:
    """Every partition that the group has committed or owns, by name and number."""
    owners = {place: member for member in group.members for place in member.assignment}
    places = sorted({*committed, *owners})
    sizes = await leaders.known({place.topic for place in places})
    there = [place for place in places if place.partition < sizes.get(place.topic, 0)]
    starts = await leaders.offsets(dict.fromkeys(there, EARLIEST))
    ends = await leaders.offsets(dict.fromkeys(there, LATEST))
    behind = {
        place: max(committed[place].offset, starts[place])
        for place in there
        if place in committed and committed[place].offset < ends[place]
    }
    ages = await ages_s(leaders, behind)
    found = []
    for place in places:
        offset = committed[place].offset if place in committed else None
        end = ends.get(place)
        lag = None if offset is None or end is None else max(end - offset, 0)
        found.append(Standing(place, offset, end, lag, 0.0 if lag == 0 else ages.get(place), owners.get(place)))
    return found


async def ages_s(leaders: Leaders, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
    """The age of the first record at or behind each position, in seconds; nothing where none can be read."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def limited(place: TopicPartition, offset: int) -> int | None:
        async with limit:
            return await timestamp_at(leaders, place, offset)

    found = await asyncio.gather(*(limited(place, offset) for place, offset in positions.items()))
    now_ms = time.time() * 1000
    ages = zip(positions, found, strict=True)
    return {place: max(now_ms - stamp, 0) / 1000 for place, stamp in ages if stamp is not None}


async def timestamp_at(leaders: Leaders, place: TopicPartition, offset: int) -> int | None:
    """The timestamp in ms of the first record from an offset on; None where the next batch has none to show."""
    asked = FetchTopic.FetchPartition(partition=place.partition, fetch_offset=offset, partition_max_bytes=1)
    topic = FetchTopic(topic=place.topic, topic_id=leaders.topic_id(place.topic), partitions=[asked])
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, isolation_level=READ_COMMITTED, topics=[topic])
    answer = await (await leaders.leader(*place)).call(request)
    for found in (each for topic in answer.responses for each in topic.partitions):
        if found.error_code != KafkaErrorCode.NONE:
            return None
        for batch in batches(bytes(found.records or b"")):
            if batch.control:
                continue
            for record in batch:
                if record.offset >= offset:
                    return int(record.timestamp)
    return None
