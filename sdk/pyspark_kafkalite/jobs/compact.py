"""Compacts the table of a job `lake`, also while it runs. No JVM."""

from typing import TYPE_CHECKING

from pyspark_kafkalite.jobs.errors import JobError
from pyspark_kafkalite.jobs.settings.job_file import JobFile
from pyspark_kafkalite.jobs.settings.job_settings import DELTA, LAKE
from pyspark_kafkalite.tables.manifest import ManifestTable

if TYPE_CHECKING:
    from pyspark_kafkalite.tables.compaction import Compaction


def compact_job(job: JobFile, target_bytes: int, retention_s: float) -> "Compaction":
    """Replace the small files of a table by larger ones, as one commit that keeps the offsets.

    Arguments:
        job: of type lake.
        target_bytes: size of a file.
        retention_s: how long replaced files are kept for readers, in seconds.

    Raises:
        JobError: the table is not one of plain Parquet that a job `lake` writes. TableError: it does not exist, is
            damaged, or is being compacted.
    """
    from pyspark_kafkalite.tables.compaction import compact

    settings = job.required_table
    if job.type != LAKE:
        raise JobError(f"{job.path}: the files of a job of type {job.type} are not compacted; compact is for {LAKE}")
    if settings.format == DELTA:
        raise JobError(f"{job.path}: compact is for plain Parquet; run OPTIMIZE of Delta on {settings.path}")
    table = ManifestTable(settings.path, create=False)
    return compact(table, target_bytes=target_bytes, retention_s=retention_s, options=settings.parquet)
