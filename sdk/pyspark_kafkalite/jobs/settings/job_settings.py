"""The sections [table], [audit] and [replay] of a job file. Pure, without PySpark."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pyspark_kafkalite.jobs.settings.sections import Section
from pyspark_kafkalite.tables.parquet_writer import COMPRESSIONS, ParquetOptions
from pyspark_kafkalite.tables.partitions import DATE, NO_PARTITION, PARTITIONS

PARQUET, DELTA = "parquet", "delta"
LAKE, LATEST, WINDOW, AUDIT, REPLAY = "lake", "latest", "window", "audit", "replay"
BUCKETS, BUCKETS_MAX = 16, 9999
NULL_KEYS = ("error", "skip")
KEEP, BY_KEY = "keep", "key"
ROWS = TABLE_ROWS, DEAD_LETTERS = "table", "dead_letters"
TABLE_KEYS = ("path", "compression", "level")
KEYS = {
    LAKE: (*TABLE_KEYS, "format", "partition"),
    LATEST: (*TABLE_KEYS, "buckets", "null_keys"),
    WINDOW: TABLE_KEYS,
    AUDIT: ("path",),
    REPLAY: ("path", "format"),
}


class TableSettings(NamedTuple):
    """A table of a job.

    Attributes:
        path: its directory.
        format: "parquet" or "delta".
        partition: "date" or "none".
        parquet: how files are written.
        buckets: of the job `latest`, the number of files.
        null_keys: of the job `latest`, "error" or "skip": what becomes of records without a key.
    """

    path: str
    format: str = PARQUET
    partition: str = NO_PARTITION
    parquet: ParquetOptions = ParquetOptions()
    buckets: int = BUCKETS
    null_keys: str = NULL_KEYS[0]


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
    path = str(directory / section.required_text("path", '"orders"'))
    buckets = section.integer("buckets", BUCKETS, least=1, most=BUCKETS_MAX)
    null_keys = section.choice("null_keys", NULL_KEYS[0], NULL_KEYS)
    return TableSettings(path, layout, partition, ParquetOptions(compression, level), buckets, null_keys)


class AuditSettings(NamedTuple):
    """The section [audit]; `bucket` is a duration of Spark."""

    bucket: str = "1 hour"


def audit_settings(origin: str, fields: Mapping[str, Any]) -> AuditSettings:
    """Check the section [audit]. Raises JobError: a key or a value is not valid."""
    section = Section(origin, AUDIT, fields, AuditSettings._fields)
    return AuditSettings(section.duration("bucket", "1 hour"))


class ReplaySettings(NamedTuple):
    """The section [replay].

    Attributes:
        rows: "table", or "dead_letters": the records that could not be decoded.
        partitions: "keep" = a row is sent to the partition of its record; "key" = its key selects one.
        where: an SQL expression of the rows that are sent, such as "_offset >= 100"; None = all.
    """

    rows: str = ROWS[0]
    partitions: str = KEEP
    where: str | None = None


def replay_settings(origin: str, fields: Mapping[str, Any]) -> ReplaySettings:
    """Check the section [replay]. Raises JobError: a key or a value is not valid."""
    section = Section(origin, REPLAY, fields, ReplaySettings._fields)
    rows = section.choice("rows", ROWS[0], ROWS)
    return ReplaySettings(rows, section.choice("partitions", KEEP, (KEEP, BY_KEY)), section.text("where"))
