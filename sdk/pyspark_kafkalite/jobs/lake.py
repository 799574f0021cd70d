"""The job `lake`: copies topics to a table, each record once, partitioned by date."""

from typing import TYPE_CHECKING

from pyspark_kafkalite.jobs.run_options import RunOptions
from pyspark_kafkalite.jobs.settings.job_file import JobFile
from pyspark_kafkalite.jobs.tables import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


def start(spark: "SparkSession", job: JobFile, options: RunOptions) -> "StreamingQuery":
    """Start the query. Raises OptionError, TableError: see `ingest`."""
    from pyspark_kafkalite.ingest import ingest

    settings = job.required_table
    return ingest(
        spark,
        open_table(settings),
        job.source,
        checkpoint=job.checkpoint,
        compression=settings.parquet.compression,
        level=settings.parquet.level,
        trigger=job.trigger,
        resume_from_table=options.resume_from_table,
        allow_gaps=options.allow_gaps,
        partition=settings.partition,
        decoding=job.decoding,
        name=job.name,
    )
