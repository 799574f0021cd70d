"""`kafkalite consume`: read a topic as lines or as JSON with all metadata. No group: partitions are read by assignment."""

import json
import sys
from typing import Any

import click

from kafkalite.cli.client import bootstrap_option, check, command_runner, fail
from kafkalite.cli.leaders import Leaders
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.records import Record, batches

EARLIEST, LATEST = -2, -1
NO_REPLICA = -1
WAIT_MS = 500
BYTES_MAX = 8 * 1024 * 1024
READ_COMMITTED = 1

FetchTopic = FetchRequest.FetchTopic
ListTopic = ListOffsetsRequest.ListOffsetsTopic


@click.command(
    epilog="""\b
Examples:
  kafkalite consume orders --from-beginning
  kafkalite consume orders --from-beginning -n 10 --json
  kafkalite consume orders --partition 0 --offset 42 -n 1
  kafkalite consume orders --follow
"""
)
@click.argument("topic")
@click.option("-e", "--from-beginning", is_flag=True, help="Begin at the earliest record; else at the end.")
@click.option("-o", "--offset", type=int, help="Begin at this offset (with --partition).")
@click.option("-p", "--partition", type=int, help="Read this partition alone.")
@click.option("-n", "--count", type=int, help="End after so many records.")
@click.option("-f", "--follow", is_flag=True, help="Go on waiting at the end of the topic.")
@click.option("--json", "as_json", is_flag=True, help="One object per record: topic, partition, offset, timestamp, key, value, headers.")
@bootstrap_option
def command(**options: Any) -> None:
    """Print the records of TOPIC, and end where the topic ends now unless --follow or -n says otherwise."""
    if options["offset"] is not None and options["partition"] is None:
        fail("--offset belongs to one partition: add --partition")
    consume(**options)


@command_runner
async def consume(
    topic: str,
    from_beginning: bool,
    offset: int | None,
    partition: int | None,
    count: int | None,
    follow: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    async with Leaders(bootstrap) as leaders:
        total = await leaders.partitions(topic)
        chosen = range(total) if partition is None else [partition]
        if partition is not None and not 0 <= partition < total:
            fail(f"{topic} has partitions 0 to {total - 1}, not {partition}")
        reader = Reader(leaders, topic, as_json, count)
        for index in chosen:
            start = offset if offset is not None else await reader.place(index, EARLIEST if from_beginning else LATEST)
            reader.positions[index] = start
        await reader.run(follow=follow or (count is not None and not from_beginning and offset is None))


class Reader:
    """Reads some partitions of a topic in turn and prints what it finds."""

    def __init__(self, leaders: Leaders, topic: str, as_json: bool, count: int | None) -> None:
        self.positions: dict[int, int] = {}
        self._leaders = leaders
        self._topic = topic
        self._as_json = as_json
        self._left = count

    async def place(self, partition: int, timestamp: int) -> int:
        """The first or the next offset of a partition."""
        asked = ListTopic.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=NO_REPLICA, topics=[ListTopic(name=self._topic, partitions=[asked])])
        peer = await self._leaders.leader(self._topic, partition)
        answer = await peer.call(request)
        (found,) = answer.topics[0].partitions
        check(found.error_code, None, f"{self._topic}-{partition}")
        return int(found.offset)

    async def run(self, *, follow: bool) -> None:
        """Read until every partition has reached its present end, or for ever."""
        open_partitions = set(self.positions)
        while open_partitions and self._left != 0:
            for partition in sorted(open_partitions):
                end_offset = await self._read(partition, WAIT_MS if follow else 0)
                if not follow and self.positions[partition] >= end_offset:
                    open_partitions.discard(partition)
                if self._left == 0:
                    return

    async def _read(self, partition: int, wait_ms: int) -> int:
        asked = FetchTopic.FetchPartition(
            partition=partition, fetch_offset=self.positions[partition], partition_max_bytes=BYTES_MAX
        )
        topic = FetchTopic(topic=self._topic, topic_id=self._leaders.topic_id(self._topic), partitions=[asked])
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, max_bytes=BYTES_MAX, isolation_level=READ_COMMITTED, topics=[topic]
        )
        peer = await self._leaders.leader(self._topic, partition)
        answer = await peer.call(request)
        check(answer.error_code, None, self._topic)
        (found,) = answer.responses[0].partitions
        check(found.error_code, None, f"{self._topic}-{partition} at offset {self.positions[partition]}")
        for batch in batches(found.records or b""):
            self._show_batch(partition, batch)
        return int(found.last_stable_offset)

    def _show_batch(self, partition: int, batch: Any) -> None:
        if not batch.control:
            for record in batch:
                if record.offset >= self.positions[partition] and self._left != 0:
                    self._show(partition, record)
        self.positions[partition] = max(self.positions[partition], batch.last_offset + 1)

    def _show(self, partition: int, record: Record) -> None:
        if self._left is not None:
            self._left -= 1
        if self._as_json:
            click.echo(json.dumps(described(self._topic, partition, record)))
        else:
            sys.stdout.buffer.write((record.value or b"") + b"\n")
            sys.stdout.buffer.flush()


def described(topic: str, partition: int, record: Record) -> dict[str, Any]:
    """A record with its metadata; bytes that are no UTF-8 are shown with replacement characters."""
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": as_text(record.key),
        "value": as_text(record.value),
        "headers": {name: as_text(value) for name, value in record.headers},
    }


def as_text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
