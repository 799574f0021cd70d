"""`kafkalite produce`: lines or JSON lines from a file, a pipe or a terminal into a topic.

What has come is sent as soon as nothing more is waiting to be read, in batches of at most BATCH_BYTES.
"""

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import click

from kafkalite.cli.client import bootstrap_option, check, command_runner
from kafkalite.cli.failure import Failure, fail
from kafkalite.cli.leaders import Leaders
from kafkalite.cli.lines import Line, blocks, json_line, plain_reader
from kafkalite.cli.streams import InputFile
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.records import Builder
from kafkalite.records.partitioner import partition_of

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
BATCH_BYTES = 512 * 1024
TIMEOUT_MS = 30_000
ACKS_ALL = -1

Data = ProduceRequest.TopicProduceData


@click.command(
    epilog="""\b
Examples:
  seq 10 | kafkalite produce orders
  kafkalite produce orders --file orders.txt --key-separator : --compression lz4
  echo '{"key": "a", "value": "b", "headers": {"source": "shell"}}' | kafkalite produce orders --json
  kafkalite consume orders --from-beginning --json | kafkalite produce copy-of-orders --json
"""
)
@click.argument("topic")
@click.option(
    "-f",
    "--file",
    "source",
    type=InputFile(),
    default="-",
    help="Where to read from; standard input if not given.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Each line is an object: value, key, headers, partition, timestamp (ms)."
)
@click.option("-k", "--key-separator", metavar="TEXT", help="What stands between key and value in a line.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(list(CODECS)),
    default="none",
    show_default=True,
    help="Codec of the batches.",
)
@click.option("-p", "--partition", type=int, help="Send everything to this partition.")
@bootstrap_option
def command(**options: Any) -> None:
    """Send each line of a file or a pipe as one record to TOPIC."""
    if options["as_json"] and options["key_separator"] is not None:
        fail("--key-separator is for plain lines: an object of --json has its own key")
    produce(**options)


@command_runner
async def produce(
    topic: str,
    source: BinaryIO,
    as_json: bool,
    key_separator: str | None,
    compression: str,
    partition: int | None,
    bootstrap: str,
) -> None:
    read = json_line if as_json else plain_reader(key_separator)
    async with Leaders(bootstrap) as leaders:
        partitions = await leaders.partitions(topic, may_create=True)
        sender = Sender(leaders, topic, partitions, CODECS[compression], partition)
        if source.isatty():
            click.echo("each line is a record; Ctrl-D ends", err=True)
        try:
            await send_all(source, read, sender)
        except Failure as failure:
            raise Failure(f"{failure.message}; {sender.sent} record(s) were sent before") from failure
    click.echo(f"sent {sender.sent} record(s) to {topic}", err=True)


async def send_all(source: BinaryIO, read: Callable[[bytes, int], Line], sender: "Sender") -> None:
    """Send every line of `source`."""
    number = 0
    with progress(source) as advance:
        async for lines in blocks(source):
            for text in lines:
                number += 1
                await sender.add(read(text, number))
            await sender.flush()
            advance(sum(map(len, lines)) + len(lines))


class Sender:
    """Fills one batch per partition and sends it when it is full, or when told to."""

    def __init__(self, leaders: Leaders, topic: str, partitions: int, codec: int, fixed: int | None) -> None:
        self.sent = 0
        self._leaders = leaders
        self._topic = topic
        self._partitions = partitions
        self._codec = codec
        self._fixed = fixed if fixed is None else self._checked(fixed)
        self._turn = 0
        self._builders: dict[int, Builder] = {}

    async def add(self, line: Line) -> None:
        """Put one record into its partition's batch; sends that batch first when it is full."""
        partition = self._choose(line)
        timestamp_ms = time.time_ns() // 1_000_000 if line.timestamp_ms is None else line.timestamp_ms
        record = timestamp_ms, line.key, line.value, line.headers
        if self._builder(partition).append(*record) < 0:
            await self._send(partition)
            self._builder(partition).append(*record)

    async def flush(self) -> None:
        """Send what is left; records without a key go to the next partition from now on."""
        for partition in list(self._builders):
            await self._send(partition)
        self._turn += 1

    def _builder(self, partition: int) -> Builder:
        found = self._builders.get(partition)
        if found is None:
            found = self._builders[partition] = Builder(BATCH_BYTES)
        return found

    def _choose(self, line: Line) -> int:
        if line.partition is not None:
            return self._checked(line.partition)
        if self._fixed is not None:
            return self._fixed
        if line.key is not None:
            return partition_of(line.key, self._partitions)
        return self._turn % self._partitions

    def _checked(self, partition: int) -> int:
        if not 0 <= partition < self._partitions:
            fail(f"{self._topic} has partitions 0 to {self._partitions - 1}, not {partition}")
        return partition

    async def _send(self, partition: int) -> None:
        builder = self._builders.pop(partition)
        data = Data.PartitionProduceData(index=partition, records=builder.build(self._codec))
        topic = Data(name=self._topic, topic_id=self._leaders.topic_id(self._topic), partition_data=[data])
        peer = await self._leaders.leader(self._topic, partition)
        answer = await peer.call(ProduceRequest(acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=[topic]))
        (outcome,) = answer.responses[0].partition_responses
        reasons = [error.batch_index_error_message for error in outcome.record_errors]
        reason = outcome.error_message or next(filter(None, reasons), None)
        check(outcome.error_code, reason, f"{self._topic}-{partition}")
        self.sent += builder.records_count


@contextmanager
def progress(source: BinaryIO) -> Iterator[Callable[[int], None]]:
    """A progress bar over the bytes of a file while a person watches; nothing for a pipe or a redirected output."""
    about = os.fstat(source.fileno())
    if not stat.S_ISREG(about.st_mode) or not sys.stderr.isatty():
        yield lambda _size: None
        return
    with click.progressbar(length=about.st_size, label="sending", file=sys.stderr) as bar:
        yield bar.update
