"""The job `latest`: keeps the latest value of each key of a compacted topic; tombstones delete keys.

Each batch rewrites the files of the buckets whose keys it has (copy-on-write), and commits them with its offsets: a
repeated batch is skipped, so the state contains each record once.
"""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_kafkalite.decoding.options import RAW
from pyspark_kafkalite.ingest.batch_job import BatchJob
from pyspark_kafkalite.ingest.plans import ingest_options
from pyspark_kafkalite.ingest.query import Committer, query_id, start_query
from pyspark_kafkalite.jobs.run_options import RunOptions
from pyspark_kafkalite.jobs.settings.job_file import JobFile
from pyspark_kafkalite.jobs.settings.job_settings import TableSettings
from pyspark_kafkalite.options import SourceOptions
from pyspark_kafkalite.tables.locations import find
from pyspark_kafkalite.tables.manifest import ManifestTable
from pyspark_kafkalite.tables.model import Batch, CommittedRange, DataFile, batch_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def start(spark: "SparkSession", job: JobFile, options: RunOptions) -> "StreamingQuery":
    """Start the query. Raises OptionError, TableError: see `ingest`."""
    settings = job.required_table
    table = ManifestTable(settings.path)
    committer = LatestCommitter(table, ingest_options(job.source), settings, allow_gaps=options.allow_gaps)
    return start_query(
        spark,
        table,
        job.source,
        committer,
        checkpoint=job.checkpoint,
        trigger=job.trigger,
        resume_from_table=options.resume_from_table,
        allow_gaps=options.allow_gaps,
        name=job.name,
    )


class LatestCommitter(Committer):
    """Merges each batch into the state, and commits it; for `foreachBatch`.

    Arguments:
        table: of the state.
        options: of the source.
        settings: of the table.
        allow_gaps: see `Batch`.
    """

    def __init__(
        self, table: ManifestTable, options: SourceOptions, settings: TableSettings, *, allow_gaps: bool
    ) -> None:
        super().__init__(table, options, settings.parquet, RAW, allow_gaps=allow_gaps)
        self._state = table
        self._settings = settings

    def __call__(self, plans: "DataFrame", batch_id: int) -> None:
        """Write and commit a batch. Raises: what a worker or the table raises."""
        from pyspark_kafkalite.jobs import buckets

        settings, root = self._settings, Path(self._state.location)
        current = buckets.current_files(self._state.state().files, settings.buckets)
        paths = {bucket: [str(find(root, name)) for name in names] for bucket, names in current.items()}
        name = batch_name(query_id(plans), batch_id)
        batch_job = BatchJob.of(self._options, self._state.attempts, name, settings.parquet)
        job = buckets.BucketJob(batch_job, settings.buckets, settings.null_keys, paths)
        rows = plans.mapInArrow(partial(buckets.reduce_splits, job), buckets.REDUCED_DDL)

        def merge(key: Any, rows: Any) -> Any:  # Spark reads the names of arguments, so no `partial`
            return buckets.merge_bucket(job, key, rows)

        written = rows.groupBy(buckets.BUCKET).applyInArrow(merge, "written string").collect()
        found = [json.loads(row[0]) for row in written]
        ranges = tuple(CommittedRange(**each) for each in found if "bucket" not in each)
        rewritten = [each for each in found if "bucket" in each]
        files = tuple(DataFile(**file) for each in rewritten for file in each["files"])
        removed = tuple(name for each in rewritten for name in current.get(each["bucket"], ()))
        batch = Batch(query_id(plans), batch_id, ranges, files, self.resumes, self._allow_gaps, removed=removed)
        self._state.commit(batch)
        self.show_progress(ranges)
