"""The sink: `df.write.format("kafkalite")` and `df.writeStream.format("kafkalite")`.

At least once, as the API of Spark provides it: a task that is repeated, after a failure or as a speculative twin, sends
its rows again. Within a task the producer is idempotent, so its own retries cause no duplicates.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalite_sdk.blocking import ColumnsFuture, Producer
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_kafkalite.collector import freeze_modules
from pyspark_kafkalite.errors import SchemaError
from pyspark_kafkalite.pieces import pieces
from pyspark_kafkalite.sink_options import SinkOptions, sink_columns

if TYPE_CHECKING:
    import pyarrow

OPEN_TABLES = 8


@dataclass
class Written(WriterCommitMessage):
    """What a task has written.

    Attributes:
        rows: their number.
    """

    rows: int


class _Sending:
    """What the writers of batches and of streams have in common.

    Arguments:
        options: of the sink.
        schema: of the rows.

    Raises:
        SchemaError: the schema does not fit.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        self._columns = sink_columns(fields, topic=options.topic is not None)
        self._options = options

    def write(self, iterator: Iterator["pyarrow.RecordBatch"]) -> Written:
        """Send the rows of a task, and wait until all are acknowledged.

        Raises:
            SchemaError: a row has no topic. KafkaError: rows were not acknowledged; others may be in the log.
        """
        tables = (each for batch in iterator for each in self._tables(batch))
        return Written(send_tables(self._options.client, tables))

    def _tables(self, batch: "pyarrow.RecordBatch") -> Iterator[tuple[str, "pyarrow.RecordBatch"]]:
        """Yield the rows of each topic, in pieces that fit into the buffer of the producer."""
        import pyarrow
        from pyarrow import compute

        if batch.num_rows == 0:
            return
        columns = batch.select(list(self._columns))
        if self._options.topic is not None:
            yield from ((self._options.topic, each) for each in pieces(columns))
            return
        topics = batch.column("topic")
        for topic in compute.unique(topics).to_pylist():
            if topic is None:
                raise SchemaError("column topic: a row has no topic; set the option topic, or filter these rows")
            chosen = columns.filter(compute.equal(topics, pyarrow.scalar(topic, topics.type)))
            yield from ((topic, each) for each in pieces(chosen))


def send_tables(client: Mapping[str, Any], tables: Iterable[tuple[str, "pyarrow.RecordBatch"]]) -> int:
    """Send rows, wait until all are acknowledged, and return their number.

    Arguments:
        client: arguments of the producer.
        tables: topics and columns of records, in `pieces`.

    Raises:
        KafkaError: rows were not acknowledged; others may be in the log.
    """
    rows = 0
    producer: Producer[bytes, bytes]
    with Producer(**client) as producer:
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


class BatchWriter(_Sending, DataSourceArrowWriter):
    """Appends the rows of a batch to topics."""


class StreamWriter(_Sending, DataSourceStreamArrowWriter):
    """Appends the rows of micro-batches to topics."""
