"""What one attempt of a task writes: a transaction that it leaves open for the driver.

1. Each attempt has a transactional id of its own: query, partition and number of the attempt. The next batch uses the
   same ids, so their number is bounded; InitProducerId aborts what an attempt of an undecided batch has left.
2. An attempt whose batch is decided writes nothing: InitProducerId would abort a decided transaction.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite_sdk import DetachedTransaction
from kafkalite_sdk.blocking import Producer
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from pyspark_kafkalite.exactly_once.decision_log import DecisionLog
from pyspark_kafkalite.sending import send_tables

if TYPE_CHECKING:
    import pyarrow

Tables = Iterator[tuple[str, "pyarrow.RecordBatch"]]

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of Spark: StreamExecution.QUERY_ID_KEY, MicroBatchExecution.BATCH_ID_KEY."""

ID_PREFIX = "kafkalite-spark-"


class Attempt(NamedTuple):
    """An attempt of a task.

    Attributes:
        query: id of the query, the same after a restart from its checkpoint.
        batch: id of the micro-batch, the same when it is repeated.
        partition: of the task.
        number: of the attempt; speculative attempts have one of their own.
    """

    query: str
    batch: int
    partition: int
    number: int

    @property
    def transactional_id(self) -> str:
        """The transactional id of the attempt."""
        return f"{id_prefix(self.query)}{self.partition}-{self.number}"


@dataclass
class WrittenOnce(WriterCommitMessage):
    """What an attempt has written.

    Attributes:
        rows: their number.
        query: id of the query.
        transaction: the open transaction; None = there were no rows, or the batch was decided before.
    """

    rows: int
    query: str
    transaction: DetachedTransaction | None


def id_prefix(query: str) -> str:
    """Return how the transactional ids of a query begin."""
    return f"{ID_PREFIX}{query}-"


def current_attempt() -> Attempt:
    """Return the attempt that runs in this process. Raises RuntimeError: it is no task of a micro-batch."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    batch = None if context is None else context.getLocalProperty(BATCH_ID)
    if context is None or query is None or batch is None:
        raise RuntimeError(f"exactlyOnce: Spark has not set {QUERY_ID} and {BATCH_ID} for this task")
    return Attempt(query, int(batch), context.partitionId(), context.attemptNumber())


def write_attempt(attempt: Attempt, client: Mapping[str, Any], log: DecisionLog, tables: Tables) -> WrittenOnce:
    """Write the rows of an attempt in a transaction, and leave it open.

    Arguments:
        attempt: whose rows they are.
        client: arguments of the producer.
        log: of the decisions.
        tables: topics and columns of records, in `pieces`.

    Raises:
        KafkaError: rows were not acknowledged; the transaction is aborted.
    """
    first = next(tables, None)
    if first is None:
        return WrittenOnce(0, attempt.query, None)
    log.create()
    last = log.last(attempt.query, attempt.batch)
    if last is not None and last.batch >= attempt.batch:
        for _ in tables:
            pass  # Spark ends a worker that leaves rows
        return WrittenOnce(0, attempt.query, None)
    producer: Producer[bytes, bytes]
    with Producer(**client, transactional_id=attempt.transactional_id) as producer:
        producer.begin_transaction()
        rows = send_tables(producer, chain([first], tables))
        return WrittenOnce(rows, attempt.query, producer.detach_transaction())
