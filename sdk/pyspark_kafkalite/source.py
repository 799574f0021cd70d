"""The data source `kafkalite`: `spark.read.format("kafkalite")` and `spark.readStream.format("kafkalite")`.

Spark pickles readers, so they have options only; clients and state of a stream exist in the process that uses them.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from kafkalite.model import TopicPartition
from pyspark_kafkalite.cluster import Cluster
from pyspark_kafkalite.errors import OptionError
from pyspark_kafkalite.filters import Bounds
from pyspark_kafkalite.losses import report
from pyspark_kafkalite.options import SourceOptions, schema_columns, source_options
from pyspark_kafkalite.reading import Reading
from pyspark_kafkalite.schema import ddl
from pyspark_kafkalite.sink_options import sink_options
from pyspark_kafkalite.stream_offsets import Offsets

if TYPE_CHECKING:
    from pyspark_kafkalite.sink import BatchWriter, ExactlyOnceWriter, StreamWriter
    from pyspark_kafkalite.stream_reader import StreamReader


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
        from pyspark_kafkalite.stream_reader import StreamReader

        return StreamReader(source_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        """Return the writer of a batch. Raises OptionError, SchemaError."""
        from pyspark_kafkalite.sink import BatchWriter

        if overwrite:
            raise OptionError("mode", "overwrite is not possible, as a topic is a log; expected append")
        options = sink_options(self.options)
        if options.decisions is not None:
            raise OptionError("exactlyOnce", "only a stream has batches with an id, expected writeStream")
        return BatchWriter(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter | ExactlyOnceWriter":
        """Return the writer of a stream; Spark passes `overwrite` by its name. Raises OptionError, SchemaError."""
        from pyspark_kafkalite.sink import ExactlyOnceWriter, StreamWriter

        options = sink_options(self.options)
        if options.decisions is not None:
            return ExactlyOnceWriter(options, schema, options.decisions)
        return StreamWriter(options, schema)


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
            self._begin(cluster.resolve(options.starting, found.partitions, options.unmatched_start), found.topic_ids)
        )
        end = dict(cluster.resolve(options.ending, found.partitions, -1))
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
