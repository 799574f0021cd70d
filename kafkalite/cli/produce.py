"""Sends lines or JSON lines from a file, a pipe or a terminal to a topic: `kafkalite produce`.

Lines are sent as soon as no more input is available, in batches of at most BATCH_BYTES.

The producer is idempotent (KIP-98): batches carry a producer id and sequence numbers, and each partition has one
request in flight. A batch without an acknowledgement is sent again, to the restarted broker or to the new leader; the
broker recognizes it, so that no record is lost, duplicated or reordered.
"""

import asyncio
import os
import random
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

import click
from kafkalite_sdk._speedups.partitioners import murmur2_partition

from kafkalite.cli.client_options import bootstrap_option, command_runner
from kafkalite.cli.failure import Failure, fail
from kafkalite.cli.leader_connections import LeaderConnections
from kafkalite.cli.record_lines import BASE64_HELP, RecordLine, blocks, json_line, plain_reader
from kafkalite.cli.retry import Retry, require
from kafkalite.cli.standard_streams import InputFile
from kafkalite.errors import KafkaError, KafkaErrorCode, error_for
from kafkalite.model import ACKS_ALL
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.records import Builder

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
BATCH_BYTES = 512 * 1024
STICKY_BYTES = 4096  # of records without a key, before the next partition is chosen
RECORD_BYTES = 8  # approximate overhead of a record beside its value
REFRESH_S = 30.0  # period of the check for new partitions
TIMEOUT_MS = 30_000
TERMINATED = 143  # exit code that a shell reports for a process ended by SIGTERM
SEQUENCE_MASK = 0x7FFFFFFF

Data = ProduceRequest.TopicProduceData


class PendingBatch(NamedTuple):
    """A batch to be acknowledged: its bytes and its number of records."""

    data: bytes
    records_count: int


@click.command(
    epilog="""\b
Examples:
  seq 10 | kafkalite produce orders
  kafkalite produce orders --file orders.txt --key-separator : --compression lz4
  echo '{"key": "a", "value": "b", "headers": {"source": "shell"}}' | kafkalite produce orders --json
  kafkalite consume orders --from-beginning --json | kafkalite produce copy-of-orders --json

If the broker restarts, the command retries for up to 120 s; no record is lost, duplicated or reordered. A command
that fails or is interrupted prints how many records were acknowledged. Records without a key are spread over the
partitions."""
)
@click.argument("topic")
@click.option(
    "-f",
    "--file",
    "source",
    type=InputFile(),
    default="-",
    help="File to read. Default: standard input.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help=f"Read one object per line: value, key, headers, partition, timestamp (ms). {BASE64_HELP}",
)
@click.option("--keep-cr", is_flag=True, help="Keep the carriage return before a line feed. Default: it is removed.")
@click.option("-k", "--key-separator", metavar="TEXT", help="Separator between key and value of a line.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(list(CODECS)),
    default="none",
    show_default=True,
    help="Compression type.",
)
@click.option("-p", "--partition", type=int, help="Send all records to this partition.")
@bootstrap_option
def command(**options: Any) -> None:
    """Send each line of a file or a pipe as one record to TOPIC."""
    if options["as_json"] and options["key_separator"] is not None:
        fail("--key-separator and --json exclude each other: a JSON object has its own key")
    produce(**options)


@command_runner
async def produce(
    topic: str,
    source: BinaryIO,
    as_json: bool,
    keep_cr: bool,
    key_separator: str | None,
    compression: str,
    partition: int | None,
    bootstrap: str,
) -> None:
    read = json_line if as_json else plain_reader(key_separator)
    async with LeaderConnections(bootstrap) as leaders:
        existing = await leaders.known([topic])
        partitions = await leaders.partitions(topic, may_create=True)
        if topic not in existing:
            click.echo(f"created topic {topic} with {partitions} partition(s)", err=True)
        sender = Sender(leaders, topic, partitions, CODECS[compression], partition)
        await sender.start()
        if source.isatty():
            click.echo("each line is sent as a record; Ctrl-D ends the input", err=True)
        terminated = cancel_on_sigterm()
        try:
            await send_all(source, read, sender, keep_cr=keep_cr)
        except Failure as failure:
            raise Failure(f"{failure.message}; {sender.report()}") from failure
        except KafkaError as error:
            raise Failure(f"{error}; {sender.report()}") from error
        except asyncio.CancelledError:
            click.echo(f"kafkalite: interrupted; {sender.report()}", err=True)
            if terminated.is_set():
                raise click.exceptions.Exit(TERMINATED) from None
            raise
    click.echo(f"sent {sender.sent} record(s) to {topic}", err=True)


def cancel_on_sigterm() -> asyncio.Event:
    """Cancel the current task at SIGTERM. Returns an event that is set then."""
    terminated, task = asyncio.Event(), asyncio.current_task()
    assert task is not None

    def cancel() -> None:
        terminated.set()
        task.cancel()

    if threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, cancel)
    return terminated


async def send_all(
    source: BinaryIO, read: Callable[[bytes, int], RecordLine], sender: "Sender", *, keep_cr: bool
) -> None:
    """Send every line of `source`; see `lines.blocks` for `keep_cr`."""
    number = 0
    with progress(source) as advance:
        async for lines in blocks(source, keep_cr=keep_cr):
            for text in lines:
                number += 1
                await sender.add(read(text, number))
            await sender.flush()
            advance(sum(map(len, lines)) + len(lines))


class Sender:
    """Fills one batch per partition and sends it when it is full, or by `flush`.

    Arguments:
        leaders: the connections.
        topic: its name.
        partitions: number of partitions of the topic.
        codec: id of the compression type.
        fixed: the partition of every record, None = by key, or spread.
        choose: the first partition of records without a key, from their number; at random by default.

    Attributes:
        sent: records that were acknowledged.
    """

    def __init__(
        self,
        leaders: LeaderConnections,
        topic: str,
        partitions: int,
        codec: int,
        fixed: int | None,
        *,
        choose: Callable[[int], int] = random.randrange,
    ) -> None:
        self.sent = 0
        self._leaders = leaders
        self._topic = topic
        self._partitions = partitions
        self._codec = codec
        self._fixed = fixed if fixed is None else self._checked(fixed)
        self._sticky = choose(partitions)
        self._sticky_left = STICKY_BYTES
        self._builders: dict[int, Builder] = {}
        self._open: dict[int, PendingBatch] = {}
        self._in_doubt = 0
        self._sequences: dict[int, int] = {}
        self._retries = Retry()
        self._refresh_at = 0.0

    async def start(self) -> None:
        """Get the producer id. Raises KafkaError."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS)
        while True:
            try:
                answer: InitProducerIdResponse = await self._leaders.first.call(request)
                require(answer.error_code, None, "producer id")
                break
            except KafkaError as error:
                await self._recover(error)
                await self._refresh()
        self._retries.succeeded()
        self._producer = answer.producer_id, answer.producer_epoch
        self._refresh_at = asyncio.get_running_loop().time() + REFRESH_S

    def report(self) -> str:
        """Return how many records were acknowledged, and how many are neither acknowledged nor rejected."""
        in_doubt = f", {self._in_doubt} more may have been written" if self._in_doubt else ""
        return f"{self.sent} record(s) were acknowledged{in_doubt}"

    async def add(self, line: RecordLine) -> None:
        """Put one record into its partition's batch; sends that batch first when it is full."""
        partition = self._choose(line)
        timestamp_ms = time.time_ns() // 1_000_000 if line.timestamp_ms is None else line.timestamp_ms
        record = timestamp_ms, line.key, line.value, line.headers
        if self._builder(partition).append(*record) < 0:
            await self._send([partition])
            self._builder(partition).append(*record)

    async def flush(self) -> None:
        """Send all batches; further records without a key go to the next partition."""
        if self._builders:
            await self._send(list(self._builders))
        self._next_sticky()
        if asyncio.get_running_loop().time() >= self._refresh_at:
            await self._refresh()

    def _next_sticky(self) -> None:
        self._sticky = (self._sticky + 1) % self._partitions
        self._sticky_left = STICKY_BYTES

    def _builder(self, partition: int) -> Builder:
        found = self._builders.get(partition)
        if found is None:
            found = self._builders[partition] = Builder(BATCH_BYTES)
        return found

    def _choose(self, line: RecordLine) -> int:
        if line.partition is not None:
            return self._checked(line.partition)
        if self._fixed is not None:
            return self._fixed
        if line.key is not None:
            return murmur2_partition(line.key, self._partitions)
        if self._sticky_left <= 0:
            self._next_sticky()
        self._sticky_left -= RECORD_BYTES + len(line.value or b"")
        return self._sticky

    def _checked(self, partition: int) -> int:
        if not 0 <= partition < self._partitions:
            fail(f"{self._topic} has partitions 0 to {self._partitions - 1}, not {partition}")
        return partition

    async def _send(self, partitions: list[int]) -> None:
        """Send the batches of these partitions until each is acknowledged. Raises KafkaError."""
        for partition in partitions:
            builder = self._builders.pop(partition)
            sequence = self._sequences.get(partition, 0)
            producer_id, epoch = self._producer
            data = builder.build(self._codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            self._open[partition] = PendingBatch(data, builder.records_count)
            self._sequences[partition] = (sequence + builder.records_count) & SEQUENCE_MASK
        while self._open:
            try:
                await self._send_open()
            except KafkaError as error:
                await self._recover(error)
                await self._refresh()
        self._retries.succeeded()

    async def _send_open(self) -> None:
        """Send one request to each leader. Raises KafkaError, after acknowledged records are counted."""
        by_leader: dict[ClientConnection, list[int]] = {}
        for partition in self._open:
            by_leader.setdefault(await self._leaders.leader(self._topic, partition), []).append(partition)
        self._in_doubt = sum(batch.records_count for batch in self._open.values())
        requests = (self._request(peer, partitions) for peer, partitions in by_leader.items())
        outcomes = await asyncio.gather(*requests, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _request(self, peer: ClientConnection, partitions: list[int]) -> None:
        parts = [Data.PartitionProduceData(index=each, records=self._open[each].data) for each in partitions]
        topic = Data(name=self._topic, topic_id=self._leaders.topic_id(self._topic), partition_data=parts)
        answer = await peer.call(ProduceRequest(acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=[topic]))
        outcomes = answer.responses[0].partition_responses
        for outcome in outcomes:
            if outcome.error_code in (KafkaErrorCode.NONE, KafkaErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self.sent += self._ended(outcome.index)
            elif not error_for(outcome.error_code).retriable:
                self._ended(outcome.index)
        for outcome in outcomes:
            reasons = [error.batch_index_error_message for error in outcome.record_errors]
            reason = outcome.error_message or next(filter(None, reasons), None)
            if outcome.error_code != KafkaErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                require(outcome.error_code, reason, f"{self._topic}-{outcome.index}")

    def _ended(self, partition: int) -> int:
        """Remove the batch of a partition, which was acknowledged or rejected; return its number of records."""
        count = self._open.pop(partition).records_count
        self._in_doubt -= count
        return count

    async def _recover(self, error: KafkaError) -> None:
        """Wait before the next attempt, and close the connections. Raises `error` if there is no further attempt."""
        await self._retries.pause(error)
        await self._leaders.disconnect()

    async def _refresh(self) -> None:
        """Ask for the current leaders and number of partitions, until a broker answers. Raises KafkaError."""
        while True:
            try:
                self._partitions = await self._leaders.refresh(self._topic)
                break
            except KafkaError as error:
                await self._recover(error)
        self._refresh_at = asyncio.get_running_loop().time() + REFRESH_S


@contextmanager
def progress(source: BinaryIO) -> Iterator[Callable[[int], None]]:
    """Show a progress bar for a file on a terminal; nothing for a pipe or with redirected output."""
    about = os.fstat(source.fileno())
    if not stat.S_ISREG(about.st_mode) or not sys.stderr.isatty():
        yield lambda _size: None
        return
    with click.progressbar(length=about.st_size, label="sending", file=sys.stderr) as bar:
        yield bar.update
