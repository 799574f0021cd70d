"""Sends columns of records and waits for their acknowledgements, in a task of Spark."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalite_sdk.blocking import ColumnsFuture, Producer

from pyspark_kafkalite.collector import freeze_modules

if TYPE_CHECKING:
    import pyarrow

OPEN_TABLES = 8


def send_tables(producer: Producer[bytes, bytes], tables: Iterable[tuple[str, "pyarrow.RecordBatch"]]) -> int:
    """Send rows, wait until all are acknowledged, and return their number.

    Arguments:
        producer: a started one.
        tables: topics and columns of records, in `pieces`.

    Raises:
        KafkaError: rows were not acknowledged; others may be in the log.
    """
    rows = 0
    sent: deque[ColumnsFuture] = deque()
    for topic, table in tables:
        rows += table.num_rows
        sent.append(producer.send_columns(topic, table))
        while len(sent) > OPEN_TABLES:
            sent.popleft().result()
    producer.flush()
    for each in sent:
        each.result()
    freeze_modules()
    return rows


def send_with(client: Mapping[str, Any], tables: Iterable[tuple[str, "pyarrow.RecordBatch"]]) -> int:
    """Send rows with a producer of their own; as `send_tables`.

    Arguments:
        client: arguments of the producer.
        tables: as of `send_tables`.
    """
    producer: Producer[bytes, bytes]
    with Producer(**client) as producer:
        return send_tables(producer, tables)
