"""The part of a micro-batch that every worker needs, whatever it makes of the records."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark_kafkalite.options import SourceOptions
from pyspark_kafkalite.planner import OffsetRange
from pyspark_kafkalite.tables.parquet_writer import ParquetOptions
from pyspark_kafkalite.task import Task


class BatchJob(NamedTuple):
    """How a micro-batch reads the topic, and where it writes.

    Attributes:
        client: `SourceOptions.client`.
        isolation: "read_uncommitted" or "read_committed".
        timeout_s: longest time without records.
        directory: where attempts are written.
        name: of the batch, for the names of its files, see `batch_name`.
        parquet: how files are written.
    """

    client: Mapping[str, Any]
    isolation: str
    timeout_s: float
    directory: str
    name: str
    parquet: ParquetOptions

    @classmethod
    def of(cls, options: SourceOptions, directory: str, name: str, parquet: ParquetOptions) -> "BatchJob":
        """The job of a batch with these options of the source."""
        return cls(options.client, options.isolation, options.poll_timeout_s, directory, name, parquet)

    def task(self, plan: str) -> Task:
        """The task of a plan row; a lost range is an error."""
        found = json.loads(plan)
        ranges = tuple(OffsetRange(*each) for each in found["ranges"])
        return Task(
            ranges, found["topic_ids"], self.client, self.isolation, fail_on_data_loss=True, timeout_s=self.timeout_s
        )
