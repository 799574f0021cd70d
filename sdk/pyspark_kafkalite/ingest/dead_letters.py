"""Sends the dead letters of a batch to a topic, before the batch is committed: at least once."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute
import pyarrow.parquet
from kafkalite_sdk.blocking import Producer

from pyspark_kafkalite.tables.disk import Disk
from pyspark_kafkalite.tables.model import Batch
from pyspark_kafkalite.times import time_text

PREFIX = "__kafkalite.dead_letter."
ORIGIN = ("_topic", "_partition", "_offset", "_timestamp", "part", "cause", "detail")
ROWS = 1000
US_PER_MS = 1000
NS_PER_MS = 1_000_000
REQUEST_BYTES_MAX = 64 << 20
"""The broker decides how large a record may be."""


def send_dead_letters(batch: Batch, attempts: str, topic: str, client: Mapping[str, Any]) -> Batch:
    """Send the dead letters of a batch and remove their files.

    A record has the key, the value and the headers of the original, and headers with origin and cause. It has the time
    of the original, too, but not one in the future, which brokers reject.

    Arguments:
        batch: within its budget, not committed.
        attempts: directory of its files.
        topic: that receives them.
        client: `SourceOptions.client`.

    Returns:
        The batch without the files.

    Raises:
        KafkaError: a record was not acknowledged.
    """
    if batch.dead_letters:
        producer: Producer[bytes, bytes]
        with Producer(**producer_options(client)) as producer:
            for file in batch.dead_letters:
                with pyarrow.parquet.ParquetFile(path_of(attempts, file.name)) as opened:
                    for rows in opened.iter_batches(ROWS):
                        for row in _with_numbers(rows).to_pylist():
                            _send(producer, topic, row)
            producer.flush()
    for file in batch.dead_letters:
        Disk().remove(path_of(attempts, file.name))
    return batch._replace(dead_letters=())


def path_of(attempts: str, name: str) -> Path:
    """Return where an attempt is before its commit."""
    return Path(attempts, Path(name).name)


def producer_options(client: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a producer with the connection settings of a reader.

    Arguments:
        client: `SourceOptions.client`.
    """
    from kafkalite_sdk.client.options import ClientOptions

    connection = ("bootstrap_servers", *ClientOptions.__annotations__)
    found = {
        name: value
        for name, value in client.items()
        if name in connection or name.startswith(("ssl_", "sasl_", "security_"))
    }
    return {**found, "max_request_size": REQUEST_BYTES_MAX}


def _with_numbers(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Rows with their times as milliseconds since 1970: a datetime would end with the year 9999."""
    at = rows.schema.get_field_index("_timestamp")
    us = rows.column(at).cast(pyarrow.int64())
    return rows.set_column(at, "_timestamp", pyarrow.compute.divide(us, US_PER_MS))


def _send(producer: "Producer[bytes, bytes]", topic: str, row: dict[str, Any]) -> None:
    origin = {**row, "_timestamp": time_text(row["_timestamp"])}
    added = [(PREFIX + name.lstrip("_"), str(origin[name]).encode()) for name in ORIGIN]
    headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
    time_ms = min(max(row["_timestamp"], 0), time.time_ns() // NS_PER_MS)
    producer.send(topic, row["value"], row["key"], timestamp_ms=time_ms, headers=[*headers, *added])
