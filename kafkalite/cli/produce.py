"""Sends lines or JSON lines from a file, a pipe or a terminal to a topic: `kafkalite produce`.

Lines are sent as soon as no more input is available. The producer of the SDK is idempotent (KIP-98): a batch without an
acknowledgement is sent again, to the restarted broker or to the new leader, and no record is lost, duplicated or
reordered.
"""

import asyncio
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import click
from kafkalite_sdk import Producer

from kafkalite.cli.client_options import BASE64_HELP, Cluster, cluster_options, command_runner
from kafkalite.cli.connection import connect, opened
from kafkalite.cli.failure import Failure, fail
from kafkalite.cli.record_lines import LINE_BYTES_MAX, RecordLine, blocks, json_line, plain_reader
from kafkalite.cli.record_sender import RecordSender, created_topic
from kafkalite.cli.retry import RETRY_S
from kafkalite.cli.signals import TERMINATED, cancel_on_sigterm
from kafkalite.cli.standard_streams import InputFile

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BATCH_BYTES = 512 * 1024
PRODUCER_SETTINGS: dict[str, Any] = {
    "allow_auto_create_topics": False,
    "batch_size": BATCH_BYTES,
    "linger_ms": 0,
    "max_request_size": 2 * LINE_BYTES_MAX,  # the broker rejects larger records with a text that names the setting
    "buffer_memory": 4 * LINE_BYTES_MAX,
    "delivery_timeout_ms": RETRY_S * 1000,
}


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
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
    help="Compression type.",
)
@click.option("-p", "--partition", type=int, help="Send all records to this partition.")
@cluster_options
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
    cluster: Cluster,
) -> None:
    read = json_line if as_json else plain_reader(key_separator)
    async with connect(cluster) as admin:
        described = await created_topic(admin, topic)
        sender = RecordSender(admin, described, partition)
        settings = {**PRODUCER_SETTINGS, "compression_type": compression, "on_error": sender.failed}
        async with opened(cluster, Producer, on_outage=sender.outage, **settings) as producer:
            sender.producer = producer
            if source.isatty():
                click.echo("each line is sent as a record; Ctrl-D ends the input", err=True)
            terminated = cancel_on_sigterm()
            try:
                await send_all(source, read, sender, keep_cr=keep_cr)
            except Failure as failure:
                await sender.abandon()
                raise Failure(f"{failure.message}; {sender.report()}") from failure
            except asyncio.CancelledError:
                await sender.abandon()
                click.echo(f"kafkalite: interrupted; {sender.report()}", err=True)
                if terminated.is_set():
                    raise click.exceptions.Exit(TERMINATED) from None
                raise
    click.echo(f"sent {sender.acknowledged} record(s) to {topic}", err=True)


async def send_all(
    source: BinaryIO, read: Callable[[bytes, int], RecordLine], sender: RecordSender, *, keep_cr: bool
) -> None:
    """Send every line of `source`; see `record_lines.blocks` for `keep_cr`."""
    number = 0
    with progress(source) as advance:
        async for lines in blocks(source, keep_cr=keep_cr):
            for text in lines:
                number += 1
                await sender.send(read(text, number))
            if not has_input(source):
                await sender.flush()
            advance(sum(map(len, lines)) + len(lines))
    await sender.flush()


def has_input(source: BinaryIO) -> bool:
    """Whether a read would return at once."""
    poll = select.poll()
    poll.register(source.fileno(), select.POLLIN)
    return bool(poll.poll(0))


@contextmanager
def progress(source: BinaryIO) -> Iterator[Callable[[int], None]]:
    """Show a progress bar for a file on a terminal; nothing for a pipe or with redirected output."""
    about = os.fstat(source.fileno())
    if not stat.S_ISREG(about.st_mode) or not sys.stderr.isatty():
        yield lambda _size: None
        return
    with click.progressbar(length=about.st_size, label="sending", file=sys.stderr) as bar:
        yield bar.update
