"""`kafkalite produce`: lines or JSON lines from a file or a pipe into a topic."""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import click

from kafkalite.cli.client import bootstrap_option, check, command_runner, fail
from kafkalite.cli.leaders import Leaders
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.records import Builder
from kafkalite.records.partitioner import partition_of

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
BATCH_BYTES = 256 * 1024
TIMEOUT_MS = 30_000
ACKS_ALL = -1

Headers = list[tuple[str, bytes | None]]


class Line(NamedTuple):
    """One record to send; None = not given."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None


@click.command(
    epilog="""\b
Examples:
  seq 10 | kafkalite produce orders
  kafkalite produce orders --file orders.txt --key-separator : --compression lz4
  echo '{"key": "a", "value": "b", "headers": {"source": "shell"}}' | kafkalite produce orders --json
"""
)
@click.argument("topic")
@click.option("-f", "--file", "source", type=click.File("rb"), default="-", help="Where to read from; standard input if not given.")
@click.option("--json", "as_json", is_flag=True, help="Each line is an object: value, key, headers, partition, timestamp (ms).")
@click.option("-k", "--key-separator", metavar="TEXT", help="What stands between key and value in a line.")
@click.option("-z", "--compression", type=click.Choice(list(CODECS)), default="none", show_default=True, help="Codec of the batches.")
@click.option("-p", "--partition", type=int, help="Send everything to this partition.")
@bootstrap_option
def command(**options: Any) -> None:
    """Send each line of a file or a pipe as one record to TOPIC."""
    produce(**options)


@command_runner
async def produce(
    topic: str, source: BinaryIO, as_json: bool, key_separator: str | None, compression: str, partition: int | None, bootstrap: str
) -> None:
    read = json_line if as_json else plain_reader(key_separator)
    async with Leaders(bootstrap) as leaders:
        sender = Sender(leaders, topic, await leaders.partitions(topic, may_create=True), CODECS[compression], partition)
        with progress(source) as advance:
            for number, text in enumerate(source, 1):
                await sender.add(read(text.rstrip(b"\r\n"), number))
                advance(len(text))
            await sender.flush()
    click.echo(f"sent {sender.sent} record(s) to {topic}")


class Sender:
    """Fills one batch per partition and sends it when it is large enough."""

    def __init__(self, leaders: Leaders, topic: str, partitions: int, codec: int, fixed: int | None) -> None:
        if fixed is not None and not 0 <= fixed < partitions:
            fail(f"{topic} has partitions 0 to {partitions - 1}, not {fixed}")
        self.sent = 0
        self._leaders = leaders
        self._topic = topic
        self._partitions = partitions
        self._codec = codec
        self._fixed = fixed
        self._turn = 0
        self._builders: dict[int, Builder] = {}

    async def add(self, line: Line) -> None:
        """Put one record into its partition's batch; sends that batch when it is full."""
        partition = self._choose(line)
        builder = self._builders.setdefault(partition, Builder(BATCH_BYTES * 64))
        timestamp_ms = time.time_ns() // 1_000_000 if line.timestamp_ms is None else line.timestamp_ms
        builder.append(timestamp_ms, line.key, line.value, line.headers)
        if builder.size >= BATCH_BYTES:
            await self._send(partition)
            self._turn += 1

    async def flush(self) -> None:
        """Send what is left."""
        for partition in list(self._builders):
            await self._send(partition)

    def _choose(self, line: Line) -> int:
        chosen = line.partition if line.partition is not None else self._fixed
        if chosen is None and line.key is not None:
            return partition_of(line.key, self._partitions)
        if chosen is None:
            return self._turn % self._partitions
        if not 0 <= chosen < self._partitions:
            fail(f"{self._topic} has partitions 0 to {self._partitions - 1}, not {chosen}")
        return chosen

    async def _send(self, partition: int) -> None:
        builder = self._builders.pop(partition)
        data = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                data(
                    name=self._topic,
                    topic_id=self._leaders.topic_id(self._topic),
                    partition_data=[data.PartitionProduceData(index=partition, records=builder.build(self._codec))],
                )
            ],
        )
        peer = await self._leaders.leader(self._topic, partition)
        answer = await peer.call(request)
        (outcome,) = answer.responses[0].partition_responses
        check(outcome.error_code, outcome.error_message, f"{self._topic}-{partition}")
        self.sent += builder.records_count


def plain_reader(separator: str | None) -> Any:
    """How a plain line becomes a record, with or without a key in front."""
    split = separator.encode() if separator else None

    def read(text: bytes, number: int) -> Line:
        if split is None:
            return Line(None, text, [], None, None)
        key, found, value = text.partition(split)
        if not found:
            fail(f"line {number} has no {separator!r} between key and value")
        return Line(key, value, [], None, None)

    return read


def json_line(text: bytes, number: int) -> Line:
    """A JSON object as a record; strings are sent as UTF-8, other values as JSON, null as null."""
    try:
        fields = json.loads(text)
    except ValueError as error:
        fail(f"line {number} is no JSON: {error}")
    if not isinstance(fields, dict) or "value" not in fields:
        fail(f'line {number} is no object with a "value"')
    headers = fields.get("headers") or {}
    return Line(
        as_bytes(fields.get("key")),
        as_bytes(fields["value"]),
        [(name, as_bytes(value)) for name, value in headers.items()],
        fields.get("partition"),
        fields.get("timestamp"),
    )


def as_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


class progress:
    """A progress bar over the bytes of a file while a person watches; nothing for a pipe or a redirected output."""

    def __init__(self, source: BinaryIO) -> None:
        known = source.seekable() and sys.stderr.isatty()
        self._bar = click.progressbar(length=source.seek(0, 2), label="sending", file=sys.stderr) if known else None
        if known:
            source.seek(0)

    def __enter__(self) -> Any:
        return self._bar.__enter__().update if self._bar is not None else lambda _size: None

    def __exit__(self, *exc: Any) -> None:
        if self._bar is not None:
            self._bar.__exit__(*exc)

