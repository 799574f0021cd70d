"""A streaming source of plan rows: each row contains the offset ranges of one task of the source `kafkalite`.

Options, offsets, limits and splits are those of `StreamReader`.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from kafkalite.model import TopicPartition
from pyspark_kafkalite.collector import freeze_modules
from pyspark_kafkalite.errors import DataLossError, OptionError
from pyspark_kafkalite.losses import find_recreated, recreated_text, report
from pyspark_kafkalite.options import SourceOptions, source_options
from pyspark_kafkalite.stream_offsets import StreamOffset
from pyspark_kafkalite.stream_reader import StreamReader
from pyspark_kafkalite.task import Task

PLAN = "plan"
RESUMED, ALLOW_GAPS = "resumedOffsets", "allowGaps"
"""Internal options: the end offsets of the table with the ids of its topics, and whether lost offsets are permitted."""

NOT_SUPPORTED = ("columns", "includeHeaders", "pushFilters", "history")


class PlanSource(DataSource):
    """The data source of plan rows; its options are those of the source `kafkalite`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafkalite-plan"

    def schema(self) -> str:
        """Return the schema."""
        return f"{PLAN} string"

    def streamReader(self, schema: StructType) -> "PlanReader":
        """Return the reader of a stream. Raises OptionError."""
        internal = {RESUMED.lower(): "", ALLOW_GAPS.lower(): "false"}
        options = {name: value for name, value in self.options.items() if name.lower() not in internal}
        internal |= {name.lower(): value for name, value in self.options.items() if name.lower() in internal}
        resumed = internal[RESUMED.lower()]
        return PlanReader(
            ingest_options(options),
            None if resumed == "" else StreamOffset.from_json(json.loads(resumed)),
            allow_gaps=internal[ALLOW_GAPS.lower()] == "true",
        )


class PlanReader(StreamReader):
    """Plans the micro-batches of a stream; tasks yield their own plan.

    Arguments:
        options: of the source.
        resumed: the end offsets of the table where a query without a checkpoint begins, and the ids of their topics;
            None = it begins where the option `starting*` says.
        allow_gaps: the offsets after them may be lost, and a topic with another id begins at its start.
    """

    def __init__(self, options: SourceOptions, resumed: StreamOffset | None, *, allow_gaps: bool) -> None:
        super().__init__(options, StructType([StructField("value", BinaryType())]))
        self._resumed = resumed
        self._allow_gaps = allow_gaps

    def initialOffset(self) -> dict[str, Any]:
        """Return the offsets of the table or of the option `starting*`.

        Raises:
            DataLossError: the log does not have the offsets after the table any more, or the topic was created again.
        """
        if self._resumed is None:
            return super().initialOffset()
        found = self._cluster.partitions()
        again = find_recreated(self._resumed.topic_ids, found.topic_ids)
        copied = {each: end for each, end in self._resumed.offsets.items() if each.topic not in again}
        report([recreated_text(topic, self._resumed.offsets) for topic in again], fail=not self._allow_gaps)
        earliest = self._cluster.earliest(found.partitions)
        offsets = {each: self._resumed_at(each, copied.get(each, start), start) for each, start in earliest.items()}
        return StreamOffset(offsets, found.topic_ids, initial=True).to_json()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the plan row of a task."""
        if partition.value is not None:
            task: Task = partition.value
            yield (json.dumps({"ranges": task.ranges, "topic_ids": dict(task.topic_ids)}),)
        freeze_modules()

    def _resumed_at(self, each: TopicPartition, end: int, earliest: int) -> int:
        """Return where a partition continues that the table has up to `end`. Raises DataLossError."""
        if end < earliest and not self._allow_gaps:
            raise DataLossError(
                f"{each}: the table ends at offset {end}, but the log begins at {earliest}: retention has removed "
                f"offsets {end} to {earliest - 1}. Start with allow_gaps=True to continue without them: the commit "
                "records the gap"
            )
        return max(end, earliest)


def ingest_options(options: Mapping[str, str]) -> SourceOptions:
    """Check the options of an ingest.

    Arguments:
        options: names and values as of the source `kafkalite`.

    Raises:
        OptionError: an option is not valid, or ingest does not support it.
    """
    given = {name.lower() for name in options}
    for name in NOT_SUPPORTED:
        if name.lower() in given:
            raise OptionError(name, "ingest does not support it: a table has all columns")
    found = source_options(options, streaming=True)
    if not found.fail_on_data_loss:
        raise OptionError(
            "failOnDataLoss", "ingest does not support false; resume_from_table=True, allow_gaps=True records the loss"
        )
    return found
