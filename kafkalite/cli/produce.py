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

from kafkalite.cli.client_options import BASE64_HELP, Cluster, cluster_options, command_runner, is_default
from kafkalite.cli.completion import complete_topics
from kafkalite.cli.connection import connect, open_client
from kafkalite.cli.failure import Failure, fail
from kafkalite.cli.records.limits import read_limits
from kafkalite.cli.records.lines import (
    LINE_BYTES_MAX,
    LineFailure,
    RecordLine,
    blocks,
    json_line,
    plain_reader,
    readable,
)
from kafkalite.cli.records.sender import RecordSender, created_topic
from kafkalite.cli.records.transactional_sender import TransactionalSender
from kafkalite.cli.retry import RETRY_S
from kafkalite.cli.signals import TERMINATED, cancel_on_sigterm
from kafkalite.cli.standard_streams import InputFile
from kafkalite.errors import KafkaError

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
REQUEST_TIMEOUT_MS = 30_000  # of the SDK, at most; with linger it must fit into the delivery timeout


@click.command(
    epilog="""\b
Examples:
  seq 10 | kafkalite produce orders
  kafkalite produce orders --file orders.txt --key-separator : --compression lz4
  echo '{"key": "a", "value": "b", "headers": {"source": "shell"}}' | kafkalite produce orders --json
  kafkalite consume orders --from-beginning --json | kafkalite produce copy-of-orders --json
  tail -F app.log | kafkalite produce logs -X linger.ms=200 -X acks=1 -X delivery.timeout.ms=30000
  kafkalite produce orders --file orders.txt --transactional-id loader --commit-every 1000

If the broker restarts, the command retries for up to 120 s (delivery.timeout.ms); no record is lost, duplicated or
reordered. A command that fails or is interrupted prints how many records were acknowledged, of which lines, and the
line to continue with; with --transactional-id, which lines were committed, and the open transaction is aborted. A
second Ctrl-C ends it at once. Records without a key are spread over the partitions."""
)
@click.argument("topic", shell_complete=complete_topics)
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
@click.option(
    "--transactional-id",
    metavar="ID",
    help="Send in transactions: readers of committed records get all lines of one, or none. Default: no transactions.",
)
@click.option(
    "--commit-every",
    type=click.IntRange(min=1),
    metavar="N",
    help="Lines of a transaction. Default: the whole input, within transaction.timeout.ms.",
)
@cluster_options
def command(**options: Any) -> None:
    """Send each line of a file or a pipe as one record to TOPIC."""
    if options["as_json"] and options["key_separator"] is not None:
        fail("--key-separator and --json exclude each other: a JSON object has its own key")
    if options["commit_every"] is not None and options["transactional_id"] is None:
        fail("--commit-every needs --transactional-id, the name of the producer in transactions")
    if options["transactional_id"] == "":
        fail("--transactional-id is empty; give a name that no other producer has")
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
    transactional_id: str | None,
    commit_every: int | None,
    cluster: Cluster,
) -> None:
    """Send each line of the input as a record, until the input ends or a send fails.

    Arguments:
        topic: where to; it is created if the brokers create topics.
        source: the input.
        as_json: each line is a JSON object with key, value, headers.
        keep_cr: a carriage return at the end of a line belongs to the record.
        key_separator: text between key and value; None = lines have no keys.
        compression: name of the codec.
        partition: its index; None = the partitioner chooses.
        transactional_id: of the producer; None = it sends without transactions.
        commit_every: lines of a transaction; None = the whole input is one.
        cluster: addresses and security.
    """
    read = json_line if as_json else plain_reader(key_separator)
    settings = producer_settings(cluster, compression)
    if transactional_id is not None:
        settings["transactional_id"] = transactional_id
    async with connect(cluster) as admin:
        described = await created_topic(admin, topic)
        limits, retry_s = await read_limits(admin, topic), settings["delivery_timeout_ms"] / 1000
        sender = RecordSender(admin, described, partition, limits, retry_s=retry_s)
        sending = sender if transactional_id is None else TransactionalSender(sender, commit_every)
        async with open_client(
            cluster, Producer, on_outage=sender.outage, on_error=sender.failed, **settings
        ) as producer:
            sender.producer = producer
            if source.isatty():
                click.echo("each line is sent as a record; Ctrl-D ends the input", err=True)
            interrupts = cancel_on_sigterm(lambda: f"kafkalite: interrupted; {sending.report()}")
            try:
                await send_all(source, read, sending, keep_cr=keep_cr, linger_s=settings["linger_ms"] / 1000)
            except (Failure, KafkaError) as failure:
                await sending.abandon()
                raise Failure(sending.failure_text(failure)) from failure
            except asyncio.CancelledError:
                await sending.abandon()
                if interrupts.received:  # else no advertised address is reachable
                    click.echo(f"kafkalite: interrupted; {sending.report()}", err=True)
                    interrupts.last_line = str
                if interrupts.terminated:
                    raise click.exceptions.Exit(TERMINATED) from None
                raise
    click.echo(sending.summary(topic), err=True)


def producer_settings(cluster: Cluster, compression: str) -> dict[str, Any]:
    """Return the settings of the producer: those of the user replace the ones of this command."""
    settings = {**PRODUCER_SETTINGS, "compression_type": compression, **cluster.producer}
    if not is_default("compression"):
        settings["compression_type"] = compression
    if "request_timeout_ms" not in cluster.settings:
        left_ms = settings["delivery_timeout_ms"] - settings["linger_ms"]
        settings["request_timeout_ms"] = max(1, min(REQUEST_TIMEOUT_MS, left_ms))
    return settings


async def send_all(
    source: BinaryIO,
    read: Callable[[bytes, int], RecordLine],
    sender: RecordSender | TransactionalSender,
    *,
    keep_cr: bool,
    linger_s: float,
) -> None:
    """Send every line of `source`; ends the command at a line that cannot be sent, when those before it are stored.

    Arguments:
        source: the input.
        read: converts a line with its number.
        sender: sends the records.
        keep_cr: see `records.lines.blocks`.
        linger_s: how long records wait for further input.
    """
    number = 0
    try:
        with progress(source) as advance:
            async for lines in blocks(source, keep_cr=keep_cr):
                for text in lines:
                    number += 1
                    await sender.send(read(text, number))
                if not has_input(source) and not await arrives(source, linger_s):
                    await sender.flush()
                advance(sum(map(len, lines)) + len(lines))
    except LineFailure:
        await sender.keep_sent()
        raise
    await sender.finish()


async def arrives(source: BinaryIO, linger_s: float) -> bool:
    """Return whether more input arrives within `linger_s` seconds."""
    if not linger_s:
        return False
    try:
        await asyncio.wait_for(readable(source.fileno()), linger_s)
    except TimeoutError:
        return False
    return True


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
