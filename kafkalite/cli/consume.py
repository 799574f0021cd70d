"""Prints a topic as lines or as JSON with all metadata: `kafkalite consume`. It reads partitions without a group.

Only committed records are printed; records of aborted transactions are skipped, as in every client.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click

from kafkalite.cli.client_options import bootstrap_option, command_runner
from kafkalite.cli.failure import fail
from kafkalite.cli.leader_connections import EARLIEST, LATEST, LeaderConnections
from kafkalite.cli.record_lines import BASE64_HELP, described
from kafkalite.cli.retry import Retry, require
from kafkalite.errors import KafkaError
from kafkalite.model import READ_COMMITTED, TopicPartition
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.records import Batch, Record, batches
from kafkalite.records.control import ControlType, control_type

WAIT_MS = 500
REFRESH_S = 2.0  # period of the check for new partitions and leaders while waiting for records
BYTES_MAX = 8 * 1024 * 1024

FetchTopic = FetchRequest.FetchTopic
Fetched = FetchResponse.FetchableTopicResponse.PartitionData
Aborted = Fetched.AbortedTransaction


@click.command(
    epilog="""\b
Examples:
  kafkalite consume orders                            wait for new records, until Ctrl-C
  kafkalite consume orders --from-beginning           print the existing records
  kafkalite consume orders --from-beginning --follow  print the existing records and wait for new ones
  kafkalite consume orders --from-beginning -n 10 --json
  kafkalite consume orders --partition 0 --offset 42 -n 1

If the broker restarts, the command retries for up to 120 s and continues after the last printed record."""
)
@click.argument("topic")
@click.option("-e", "--from-beginning", is_flag=True, help="Start at the earliest record. Default: only new records.")
@click.option("-o", "--offset", type=click.IntRange(min=0), help="Start at this offset (with --partition).")
@click.option("-p", "--partition", type=int, help="Read only this partition.")
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after N records.", metavar="N")
@click.option("-f", "--follow", is_flag=True, help="Wait for new records, also in new partitions.")
@click.option("-k", "--key-separator", metavar="TEXT", help="Print the key, TEXT and the value of each record.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help=f"Print one object per record: topic, partition, offset, timestamp, key, value, headers. {BASE64_HELP}",
)
@bootstrap_option
def command(**options: Any) -> None:
    """Print the records of TOPIC: the existing ones with --from-beginning or --offset, else only new ones."""
    if options["offset"] is not None and options["partition"] is None:
        fail("--offset is an offset of one partition: add --partition")
    if options["offset"] is not None and options["from_beginning"]:
        fail("--offset and --from-beginning exclude each other: give one of them")
    if options["as_json"] and options["key_separator"] is not None:
        fail("--key-separator and --json exclude each other: a JSON object has its own key")
    consume(**options)


@command_runner
async def consume(
    topic: str,
    from_beginning: bool,
    offset: int | None,
    partition: int | None,
    count: int | None,
    follow: bool,
    key_separator: str | None,
    as_json: bool,
    bootstrap: str,
) -> None:
    async with LeaderConnections(bootstrap) as leaders:
        total = await leaders.partitions(topic)
        if partition is not None and not 0 <= partition < total:
            fail(f"{topic} has partitions 0 to {total - 1}, not {partition}")
        chosen = range(total) if partition is None else [partition]
        write = json_writer(topic) if as_json else plain_writer(key_separator)
        reader = PartitionReader(leaders, topic, write, count, partition)
        topic_partitions = [TopicPartition(topic, index) for index in chosen]
        ends = await leaders.offsets(dict.fromkeys(topic_partitions, LATEST))
        starts = await leaders.offsets(dict.fromkeys(topic_partitions, EARLIEST)) if from_beginning else ends
        for topic_partition in topic_partitions:
            reader.positions[topic_partition.partition] = starts[topic_partition] if offset is None else offset
            reader.ends[topic_partition.partition] = ends[topic_partition]
        only_new = not (from_beginning or offset is not None)
        if offset is not None:
            await check_offset(leaders, topic_partitions[0], offset, ends[topic_partitions[0]])
            if offset == ends[topic_partitions[0]] and not follow:
                click.echo(f"{topic_partitions[0]} ends at offset {offset}: --follow waits for new records", err=True)
        if only_new and sys.stderr.isatty():
            click.echo("waiting for new records; Ctrl-C stops, --from-beginning prints existing records", err=True)
        await reader.run(follow=follow or only_new)


async def check_offset(leaders: LeaderConnections, partition: TopicPartition, offset: int, end: int) -> None:
    """End the command if an offset is outside the log of the partition, whose next offset is `end`.

    Other consumers apply auto.offset.reset and read from another offset: a script would not notice.
    """
    start = (await leaders.offsets({partition: EARLIEST}))[partition]
    if start <= offset <= end:
        return
    first, new = f"--offset {start} starts at the first record", f"--offset {end} --follow waits for new records"
    step = first if offset < start < end else new
    fail(f"{partition}: offset {offset} is outside the log (log start offset {start}, log end offset {end}); {step}")


class PartitionReader:
    """Reads partitions of a topic concurrently and writes their records.

    After a restart of a broker or a change of the leader the reader connects again, finds the leaders and continues at
    the position of each partition, so that no record is printed twice or skipped.

    Arguments:
        write: formats the line of a record of a partition.
        count: maximum number of records to write, None = all.
        fixed: the only partition to read, None = all partitions of the topic, also those created later.

    Attributes:
        positions, ends: offsets by partition, the next one to read and the log end at the start; set by the caller.
    """

    def __init__(
        self,
        leaders: LeaderConnections,
        topic: str,
        write: Callable[[int, Record], bytes],
        count: int | None,
        fixed: int | None = None,
    ) -> None:
        self.positions: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self._leaders = leaders
        self._topic = topic
        self._write = write
        self._left = count
        self._fixed = fixed
        self._refresh_at = 0.0
        self._retries = Retry()

    async def run(self, *, follow: bool) -> None:
        """Read until every partition has reached its end, or forever with `follow`; at most `count` records.

        Raises KafkaError when a broker fails with an error that is not retriable, or is not available again in time.
        """
        self._refresh_at = self._now() + REFRESH_S
        while self._left != 0 and (wanted := [p for p in self.positions if follow or not self._at_end(p)]):
            try:
                if self._now() >= self._refresh_at:
                    await self._refresh(follow)
                    continue
                answers = await self._fetch_all(wanted)
            except KafkaError as error:
                await self._retries.pause(error)
                await self._leaders.disconnect()
                self._refresh_at = 0.0
                continue
            for answer in answers:
                nothing_more = not follow and not any(found.records for found in answer)
                for found in answer:
                    self._take(found, nothing_more)
            sys.stdout.buffer.flush()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _refresh(self, follow: bool) -> None:
        """Ask for the current leaders; partitions created since the start are read from their first record."""
        total = await self._leaders.refresh(self._topic)
        new = [TopicPartition(self._topic, index) for index in range(total) if index not in self.positions]
        if follow and self._fixed is None and new:
            for topic_partition, start in (await self._leaders.offsets(dict.fromkeys(new, EARLIEST))).items():
                self.positions[topic_partition.partition] = self.ends[topic_partition.partition] = start
        self._refresh_at = self._now() + REFRESH_S

    async def _fetch_all(self, partitions: Sequence[int]) -> list[list[Fetched]]:
        """Send one fetch request to each leader of these partitions."""
        by_leader: dict[ClientConnection, list[int]] = {}
        for partition in partitions:
            by_leader.setdefault(await self._leaders.leader(self._topic, partition), []).append(partition)
        return await asyncio.gather(*(self._fetch(peer, some) for peer, some in by_leader.items()))

    def _at_end(self, partition: int) -> bool:
        return self.positions[partition] >= self.ends[partition]

    async def _fetch(self, peer: ClientConnection, partitions: Sequence[int]) -> list[Fetched]:
        asked = [
            FetchTopic.FetchPartition(partition=p, fetch_offset=self.positions[p], partition_max_bytes=BYTES_MAX)
            for p in partitions
        ]
        topic = FetchTopic(topic=self._topic, topic_id=self._leaders.topic_id(self._topic), partitions=asked)
        request = FetchRequest(
            max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=BYTES_MAX, isolation_level=READ_COMMITTED, topics=[topic]
        )
        answer = await peer.call(request)
        require(answer.error_code, None, self._topic)
        found = [found for topic in answer.responses for found in topic.partitions]
        for each in found:
            at = f"{self._topic}-{each.partition_index} at offset {self.positions[each.partition_index]}"
            require(each.error_code, None, at)
        self._retries.succeeded()
        return found

    def _take(self, found: Fetched, nothing_more: bool) -> None:
        partition, before = found.partition_index, self.positions[found.partition_index]
        # A copy of the records: a traceback could keep a view, and with it the response.
        for batch in committed(batches(bytes(found.records or b"")), found.aborted_transactions or []):
            self._show(partition, batch)
        if self.positions[partition] > before:
            self.positions[partition] = self.positions.pop(partition)  # the next response starts with the others
        elif nothing_more and found.last_stable_offset >= self.ends[partition]:
            # An empty response before the end: compaction removed the last records.
            self.positions[partition] = self.ends[partition]

    def _show(self, partition: int, batch: Batch | int) -> None:
        if isinstance(batch, int):
            self.positions[partition] = batch
            return
        start, out = self.positions[partition], []
        for record in batch:
            if self._left == 0:
                break
            if record.offset >= start:
                out.append(self._write(partition, record))
                self._left = None if self._left is None else self._left - 1
        sys.stdout.buffer.write(b"".join(out))
        self.positions[partition] = batch.last_offset + 1


def committed(found: Iterable[Batch], aborted: Iterable[Aborted]) -> Iterator[Batch | int]:
    """Yield the batches to print; for a skipped one (control, or of an aborted transaction) the offset after it."""
    coming = sorted(aborted, key=lambda each: each.first_offset)
    open_aborted: set[int] = set()
    for batch in found:
        while coming and coming[0].first_offset <= batch.last_offset:
            open_aborted.add(coming.pop(0).producer_id)
        if batch.control:
            if any(control_type(record) == ControlType.ABORT for record in batch):
                open_aborted.discard(batch.producer_id)
            yield batch.last_offset + 1
        elif batch.transactional and batch.producer_id in open_aborted:
            yield batch.last_offset + 1
        else:
            yield batch


def json_writer(topic: str) -> Callable[[int, Record], bytes]:
    def write(partition: int, record: Record) -> bytes:
        return json.dumps(described(topic, partition, record), ensure_ascii=False).encode() + b"\n"

    return write


def plain_writer(key_separator: str | None) -> Callable[[int, Record], bytes]:
    split = None if key_separator is None else key_separator.encode()

    def write(_partition: int, record: Record) -> bytes:
        value = record.value or b""
        return value + b"\n" if split is None else (record.key or b"") + split + value + b"\n"

    return write
