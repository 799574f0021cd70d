"""A task of Spark: it reads the ranges of its split as Arrow batches.

A task receives everything in its partition; nothing of the planner's state exists here.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite_sdk.admin import EARLIEST

from kafkalite.errors import OffsetRangeError
from kafkalite.model import TopicPartition
from pyspark_kafkalite import clients, history
from pyspark_kafkalite.errors import DataLossError
from pyspark_kafkalite.losses import HINT
from pyspark_kafkalite.planner import OffsetRange

if TYPE_CHECKING:
    import pyarrow

LOGGER = logging.getLogger("pyspark_kafkalite")

BATCH_BYTES = 8 << 20


class Task(NamedTuple):
    """The work of one task.

    Attributes:
        ranges: to read, in this order.
        topic_ids: of their topics.
        client: `SourceOptions.client`.
        isolation: "read_uncommitted" or "read_committed".
        fail_on_data_loss: a lost range is an error, else a warning.
        timeout_s: longest time without records.
        history: directory of the table of the option `history`; None = none.
    """

    ranges: tuple[OffsetRange, ...]
    topic_ids: Mapping[str, str]
    client: Mapping[str, Any]
    isolation: str
    fail_on_data_loss: bool
    timeout_s: float
    history: str | None = None


def batches(task: Task, columns: tuple[str, ...], schema: "pyarrow.Schema") -> Iterator["pyarrow.RecordBatch"]:
    """Yield the records of a task.

    Arguments:
        task: its ranges.
        columns: of the batches.
        schema: of the batches.

    Raises:
        DataLossError: a range is not in the log any more. KafkaError: it cannot be read.
    """
    for each in task.ranges:
        start = each.start
        while start < each.end:
            try:
                yield from _read(task, each._replace(start=start), columns, schema)
                break
            except OffsetRangeError as error:
                found = _in_history(task, each, error)
                if found is not None:
                    yield from history.batches(found, columns, schema)
                    start = found.ranges[-1].end
                    continue
                if task.fail_on_data_loss:
                    raise DataLossError(f"{error}; {HINT}") from error
                LOGGER.warning("%s", error)
                start = _next_start(task, each, error)


def _in_history(task: Task, each: OffsetRange, error: OffsetRangeError) -> "history.HistoryTask | None":
    """Return where the table has the lost records: it has copied them since the plan; None = nowhere."""
    if task.history is None:
        return None
    lost = each._replace(start=error.offset, end=_next_start(task, each, error))
    return history.find_copy(task.history, lost, task.topic_ids)


def _next_start(task: Task, each: OffsetRange, error: OffsetRangeError) -> int:
    """Return the log start if it is behind the lost records, else the end of the range: nothing is left of it."""
    name = TopicPartition(each.topic, each.partition)
    earliest = clients.admin(task.client).partitions.offsets({name: EARLIEST})[name].offset
    return earliest if error.offset < earliest < each.end else each.end


def _read(
    task: Task, each: OffsetRange, columns: tuple[str, ...], schema: "pyarrow.Schema"
) -> Iterator["pyarrow.RecordBatch"]:
    import pyarrow

    reader = clients.reader(task.client, task.isolation)
    found = reader.read(
        each.topic,
        each.partition,
        each.start,
        each.end,
        columns=columns,
        batch_bytes=BATCH_BYTES,
        timestamp_unit="us",
        timeout=task.timeout_s,
        topic_id=task.topic_ids.get(each.topic),
    )
    for batch in found:
        record_batch = pyarrow.record_batch(batch)
        if record_batch.schema != schema:
            record_batch = record_batch.cast(schema)  # names of nested fields; no data is copied
        yield record_batch
