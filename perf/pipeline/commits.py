"""Commits of tables with four small files each, as a micro-batch makes them. The files are written before."""

import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
from pyspark_kafkalite.ingest.worker import SCHEMA
from pyspark_kafkalite.tables import ManifestTable
from pyspark_kafkalite.tables.delta import DeltaOffsetTable
from pyspark_kafkalite.tables.model import Batch, CommittedRange, DataFile, Table
from pyspark_kafkalite.tables.parquet_writer import ParquetOptions, write_attempt

from perf.loads.base import quantiles_ms
from perf.pipeline.job import Job, Sample

FILES = 4
ROWS = 10


def parquet_commits(_: Any, job: Job) -> Sample:
    """Commit to a table of plain Parquet."""
    return _commits(ManifestTable, job)


def delta_commits(_: Any, job: Job) -> Sample:
    """Commit to a Delta table."""
    return _commits(lambda directory: DeltaOffsetTable(directory, SCHEMA), job)


def _commits(create: Callable[[str], Table], job: Job) -> Sample:
    table = create(f"{job.directory}/table")
    table.recover()
    query = str(uuid.uuid4())
    pattern = _file(Path(job.directory))
    seconds = []
    for number in range(job.batches):
        batch = Batch(query, number, _ranges(number), tuple(_copies(pattern, table.attempts)))
        started = time.perf_counter()
        table.commit(batch)
        seconds.append(time.perf_counter() - started)
    return quantiles_ms(seconds)


def _file(directory: Path) -> DataFile:
    columns = [pyarrow.nulls(ROWS, each.type) for each in SCHEMA]
    batch = pyarrow.RecordBatch.from_arrays(columns, schema=SCHEMA)
    written = write_attempt(str(directory), "pattern.parquet", SCHEMA, [batch], ParquetOptions())
    assert written is not None
    return written._replace(name=str(directory / written.name))


def _copies(pattern: DataFile, directory: str) -> list[DataFile]:
    names = [f"part-{uuid.uuid4().hex}.parquet" for _ in range(FILES)]
    for name in names:
        shutil.copy(pattern.name, Path(directory, name))
    return [pattern._replace(name=name) for name in names]


def _ranges(number: int) -> tuple[CommittedRange, ...]:
    start = number * ROWS
    return tuple(CommittedRange("orders", each, start, start + ROWS, ROWS, 0, 0) for each in range(FILES))
