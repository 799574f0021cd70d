"""The sink: `df.write.format("kafkalite")` and `df.writeStream.format("kafkalite")`.

At least once, as the API of Spark provides it: a task that is repeated, after a failure or as a speculative twin, sends
its rows again. Within a task the producer is idempotent, so its own retries cause no duplicates. With the option
`exactlyOnce` a stream writes transactions: see `pyspark_kafkalite.exactly_once`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_kafkalite.errors import SchemaError
from pyspark_kafkalite.pieces import pieces
from pyspark_kafkalite.sending import send_with
from pyspark_kafkalite.sink_options import SinkOptions, sink_columns

if TYPE_CHECKING:
    import pyarrow

    from pyspark_kafkalite.exactly_once.committer import BatchCommitter
    from pyspark_kafkalite.exactly_once.decision_log import DecisionLog


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

    def write(self, iterator: Iterator["pyarrow.RecordBatch"]) -> WriterCommitMessage:
        """Send the rows of a task, and wait until all are acknowledged.

        Raises:
            SchemaError: a row has no topic. KafkaError: rows were not acknowledged; others may be in the log.
        """
        return Written(send_with(self._options.client, self._tables(iterator)))

    def _tables(self, iterator: Iterator["pyarrow.RecordBatch"]) -> Iterator[tuple[str, "pyarrow.RecordBatch"]]:
        return (each for batch in iterator for each in self._tables_of(batch))

    def _tables_of(self, batch: "pyarrow.RecordBatch") -> Iterator[tuple[str, "pyarrow.RecordBatch"]]:
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


class BatchWriter(_Sending, DataSourceArrowWriter):
    """Appends the rows of a batch to topics."""


class StreamWriter(_Sending, DataSourceStreamArrowWriter):
    """Appends the rows of micro-batches to topics."""


class ExactlyOnceWriter(_Sending, DataSourceStreamArrowWriter):
    """Appends the rows of micro-batches to topics in transactions, each batch once.

    Arguments:
        options, schema: as of `StreamWriter`.
        decisions: the topic of decisions.
    """

    def __init__(self, options: SinkOptions, schema: StructType, decisions: str) -> None:
        super().__init__(options, schema)
        self._decisions = decisions

    def write(self, iterator: Iterator["pyarrow.RecordBatch"]) -> WriterCommitMessage:
        """Write the rows of a task in a transaction that the driver ends.

        Raises:
            SchemaError: a row has no topic. KafkaError: rows were not acknowledged; the transaction is aborted.
        """
        from pyspark_kafkalite.exactly_once.attempts import current_attempt, write_attempt

        return write_attempt(current_attempt(), self._options.client, self._log(), self._tables(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Decide the batch and commit its transactions; as `BatchCommitter.commit`."""
        from pyspark_kafkalite.exactly_once.attempts import WrittenOnce

        self._committer().commit([each for each in messages if isinstance(each, WrittenOnce)], batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the transactions of a batch whose tasks have failed; as `BatchCommitter.abort`."""
        from pyspark_kafkalite.exactly_once.attempts import WrittenOnce

        self._committer().abort([each if isinstance(each, WrittenOnce) else None for each in messages])

    def _log(self) -> "DecisionLog":
        from pyspark_kafkalite.exactly_once.decision_log import DecisionLog

        return DecisionLog(self._options.shared, self._decisions)

    def _committer(self) -> "BatchCommitter":
        from pyspark_kafkalite.exactly_once.committer import BatchCommitter

        return BatchCommitter(self._options, self._log())
