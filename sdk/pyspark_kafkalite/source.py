"""The data source `kafkalite`: `spark.read.format("kafkalite")` and `spark.readStream.format("kafkalite")`.

Spark pickles readers, so they have options only; clients and state of a stream exist in the process that uses them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from kafkalite.model import TopicPartition
from pyspark_kafkalite import history
from pyspark_kafkalite.cluster import Cluster
from pyspark_kafkalite.collector import freeze_modules
from pyspark_kafkalite.errors import OptionError, SchemaError
from pyspark_kafkalite.filters import Bounds
from pyspark_kafkalite.losses import available, report
from pyspark_kafkalite.offsets import Offsets
from pyspark_kafkalite.options import SourceOptions, schema_columns, source_options
from pyspark_kafkalite.planner import Layout, OffsetRange, Split, SplitLimits, plan
from pyspark_kafkalite.schema import check_columns, ddl
from pyspark_kafkalite.sink_options import sink_options
from pyspark_kafkalite.task import Task, batches

if TYPE_CHECKING:
    import pyarrow

    from pyspark_kafkalite.sink import BatchWriter, StreamWriter
    from pyspark_kafkalite.stream import StreamReader


class DefaultSource(DataSource):
    """Kafka topics as tables. Spark creates it with the options of the reader."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafkalite"

    def schema(self) -> str:
        """Return the schema, which is that of `format("kafka")`, or the columns of the option `columns`."""
        return ddl(schema_columns(self.options))

    def reader(self, schema: StructType) -> "BatchReader":
        """Return the reader of a batch. Raises OptionError, SchemaError."""
        options = source_options(self.options, streaming=False)
        return (FilteringReader if options.push_filters else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> "StreamReader":
        """Return the reader of a stream. Raises OptionError, SchemaError."""
        from pyspark_kafkalite.stream import StreamReader

        return StreamReader(source_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        """Return the writer of a batch. Raises OptionError, SchemaError."""
        from pyspark_kafkalite.sink import BatchWriter

        if overwrite:
            raise OptionError("mode", "overwrite is not possible, as a topic is a log; expected append")
        return BatchWriter(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":
        """Return the writer of a stream; Spark passes `overwrite` by its name. Raises OptionError, SchemaError."""
        from pyspark_kafkalite.sink import StreamWriter

        return StreamWriter(sink_options(self.options), schema)


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
                    options.fail_on_data_loss,
                    options.poll_timeout_s,
                    options.history,
                )
            )
            for split in splits
        ]


class BatchReader(Reading, DataSourceReader):
    """Reads topics once, between two positions."""

    _bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        """Return the tasks.

        Raises:
            DataLossError: a range is not in the log. OptionError: positions do not fit the partitions. KafkaError: a
            topic does not exist, or the cluster cannot be reached.
        """
        options, bounds = self._options, self._bounds
        cluster = Cluster(options)
        found = cluster.partitions()
        start = dict(
            self._begin(cluster.resolved(options.starting, found.partitions, options.unmatched_start), found.topic_ids)
        )
        end = dict(cluster.resolved(options.ending, found.partitions, -1))
        _check_order(options, start, end)
        selected = [each for each in found.partitions if bounds.selects(each)]
        if bounds.since_ms is not None and self._history is None:
            since = cluster.offsets(dict.fromkeys(selected, bounds.since_ms))
            start |= {each: max(start[each], end[each] if at < 0 else at) for each, at in since.items()}
        for each in selected:
            start[each], end[each] = bounds.clip(start[each], max(start[each], end[each]))
        earliest, latest = cluster.earliest(selected), cluster.latest(selected)
        starts, ends = _only(start, selected), _only(end, selected)
        ranges, losses, tasks = self._divided(starts, ends, earliest, latest, found.topic_ids)
        report(losses, fail=options.fail_on_data_loss)
        return tasks + self._tasks(self._splits(ranges, cluster.layouts(ranges)), dict(found.topic_ids))


class FilteringReader(BatchReader):
    """A reader that receives filters; Spark rejects it unless `spark.sql.python.filterPushdown.enabled` is true."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Apply filters of partition, offset, topic and timestamp; return those that Spark must apply."""
        self._bounds = Bounds()
        for each in filters:
            column = tuple(getattr(each, "attribute", ()))
            if not self._bounds.apply(type(each).__name__, column, getattr(each, "value", None)):
                yield each


def _check_order(options: SourceOptions, start: Offsets, end: Offsets) -> None:
    """Raise OptionError if a chosen end precedes the start."""
    if options.ending.everywhere is None:  # before `latest` only lost records can be
        for each, first in sorted(start.items()):
            if end[each] < first:
                raise OptionError(options.ending.option, f"{each} ends at offset {end[each]}, but begins at {first}")


def _only(offsets: dict[TopicPartition, int], names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return {each: offsets[each] for each in names}
