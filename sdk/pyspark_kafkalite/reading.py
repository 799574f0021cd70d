"""Shared parts of the readers of batches and streams: columns, splits and tasks.

Spark pickles readers, so they have options only; clients exist in the process that uses them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from kafkalite.model import TopicPartition
from pyspark_kafkalite import history
from pyspark_kafkalite.collector import freeze_modules
from pyspark_kafkalite.errors import SchemaError
from pyspark_kafkalite.losses import available
from pyspark_kafkalite.options import SourceOptions
from pyspark_kafkalite.planner import Layout, OffsetRange, Split, SplitLimits, plan
from pyspark_kafkalite.schema import check_columns
from pyspark_kafkalite.stream_offsets import Offsets
from pyspark_kafkalite.task import Task, batches

if TYPE_CHECKING:
    import pyarrow


class SplitPartition(InputPartition):
    """A task, as Spark ships it."""

    def __init__(self, task: "Task | history.HistoryTask") -> None:
        super().__init__(task)


class Divided(NamedTuple):
    """What is read.

    Attributes:
        ranges: from the log.
        losses: a sentence for each range that is lost.
        tasks: that read from the table of the option `history`.
    """

    ranges: list[OffsetRange]
    losses: list[str]
    tasks: list[InputPartition]


class Reading:
    """What readers of batches and streams have in common: columns, splits and tasks.

    Arguments:
        options: of the source.
        schema: of the user, or that of the source.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        if not fields:
            raise SchemaError("schema: it has no columns")
        self._options = options
        self._schema = schema
        self._columns = check_columns(fields, headers=options.headers)
        self._history = None if options.history is None else history.History(options.history)

    def read(self, partition: InputPartition) -> Iterator["pyarrow.RecordBatch"]:
        """Yield the records of a task; Spark passes a partition without a value where there is nothing to read."""
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self._schema, timezone="UTC")
        if isinstance(partition.value, history.HistoryTask):
            yield from history.batches(partition.value, self._columns, schema)
        elif partition.value is not None:
            yield from batches(partition.value, self._columns, schema)
        freeze_modules()

    def _begin(self, start: Offsets, topic_ids: Mapping[str, str]) -> Offsets:
        """Return the offsets of the option `starting*`, with the offsets of the option `history`.

        Arguments:
            start: in the log.
            topic_ids: of the topics.
        """
        if self._history is None:
            return start
        return history.first_offsets(self._history.state(topic_ids), self._options.starting, start, list(start))

    def _divided(
        self, start: Offsets, end: Offsets, earliest: Offsets, latest: Offsets, topic_ids: Mapping[str, str]
    ) -> Divided:
        """Return what is read from the log and what from the table.

        Arguments:
            start, end: offsets of each partition.
            earliest, latest: the log start and log end offsets.
            topic_ids: of the topics.
        """
        if self._history is None:
            return Divided(*available(start, end, earliest, latest), [])
        state, location = self._history.state(topic_ids), self._history.location
        found = history.divide(state, location, start, end, earliest)
        ranges, losses = [], self._history.losses(topic_ids) + found.losses
        for part in (found.before, found.after):
            starts, ends = ({name: pair[which] for name, pair in part.items()} for which in (0, 1))
            in_log, lost = available(starts, ends, earliest, latest)
            ranges += in_log
            losses += lost
        planned = history.tasks(state, location, found.table, self._options.target_split_bytes)
        return Divided(ranges, losses, [SplitPartition(each) for each in planned])

    def _splits(self, ranges: Sequence[OffsetRange], layouts: Mapping[TopicPartition, Layout]) -> list[Split]:
        options = self._options
        limits = SplitLimits(options.target_split_bytes, options.min_partitions, options.max_records)
        return plan(ranges, layouts, limits)

    def _tasks(self, splits: Iterable[Split], topic_ids: dict[str, str]) -> list[InputPartition]:
        options = self._options
        return [
            SplitPartition(
                Task(
                    split.ranges,
                    {each.topic: topic_ids[each.topic] for each in split.ranges if each.topic in topic_ids},
                    options.client,
                    options.isolation,
                    fail_on_data_loss=options.fail_on_data_loss,
                    timeout_s=options.poll_timeout_s,
                    history=options.history,
                )
            )
            for split in splits
        ]
