"""The section [table] of a job file. Pure, without PySpark."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pyspark_kafkalite.jobs.sections import Section
from pyspark_kafkalite.tables.attempt import COMPRESSIONS, ParquetOptions
from pyspark_kafkalite.tables.partitions import DATE, NO_PARTITION, PARTITIONS

PARQUET, DELTA = "parquet", "delta"
LAKE = "lake"
TABLE_KEYS = ("path", "compression", "level")
KEYS = {
    LAKE: (*TABLE_KEYS, "format", "partition"),
}


class TableSettings(NamedTuple):
    """A table of a job.

    Attributes:
        path: its directory.
        format: "parquet" or "delta".
        partition: "date" or "none".
        parquet: how files are written.
    """

    path: str
    format: str = PARQUET
    partition: str = NO_PARTITION
    parquet: ParquetOptions = ParquetOptions()


def table_settings(origin: str, kind: str, fields: Mapping[str, Any], directory: Path) -> TableSettings:
    """Check the section [table].

    Arguments:
        origin: the file, for errors.
        kind: type of the job.
        fields: of the section.
        directory: of relative paths.

    Raises:
        JobError: a key or a value is not valid.
    """
    section = Section(origin, "table", fields, KEYS[kind])
    layout = section.choice("format", PARQUET, (PARQUET, DELTA))
    default = DATE if kind == LAKE and layout == PARQUET else NO_PARTITION
    partition = section.choice("partition", default, PARTITIONS if layout == PARQUET else (NO_PARTITION,))
    compression = section.choice("compression", "zstd", COMPRESSIONS)
    level = section.integer("level", 1, least=1, most=22) if section.has("level") else None
    if level is not None and compression != "zstd":
        raise section.error("level", f"it is for zstd, but compression is {compression!r}")
    path = str(directory / section.required("path", '"orders"'))
    return TableSettings(path, layout, partition, ParquetOptions(compression, level))
