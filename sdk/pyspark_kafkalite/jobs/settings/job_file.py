"""The file of a job: TOML with the sections of its type. Everything is checked before Spark starts.

    [job]
    type = "lake"
    [source]
    kafka.bootstrap.servers = "localhost:9092"
    subscribe = "orders"
    startingOffsets = "earliest"
    [table]
    path = "orders"

Relative paths are below the directory of the file. `${NAME}` is an environment variable.

Pure, without PySpark.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark_kafkalite.decoding.options import RAW, Decoding
from pyspark_kafkalite.errors import OptionError
from pyspark_kafkalite.jobs.errors import JobError
from pyspark_kafkalite.jobs.settings.decoding_settings import decoding_settings
from pyspark_kafkalite.jobs.settings.job_settings import (
    AUDIT,
    REPLAY,
    WINDOW,
    AuditSettings,
    ReplaySettings,
    TableSettings,
    audit_settings,
    replay_settings,
    table_settings,
)
from pyspark_kafkalite.jobs.settings.progress_settings import ProgressSettings, progress_settings
from pyspark_kafkalite.jobs.settings.sections import Section
from pyspark_kafkalite.jobs.settings.window_settings import WindowSettings, window_settings
from pyspark_kafkalite.options import SourceOptions, source_options
from pyspark_kafkalite.sink_options import sink_options

PROGRESS_GROUP = "progressGroup"
AVAILABLE_NOW = "available-now"
JOB_KEYS = ("type", "name", "trigger", "checkpoint")
SECTIONS = {
    "lake": ("source", "table"),
    "latest": ("source", "table"),
    "window": ("source", "window"),
    "audit": ("source", "table"),
    "replay": ("table", "sink"),
}
"""The sections that a type of job needs."""

OPTIONAL = {
    "lake": ("decoding", "progress"),
    "latest": ("progress",),
    "window": ("table", "sink", "progress"),
    "audit": ("audit", "sink"),
    "replay": ("replay",),
}
COMMON = ("job", "spark")


@dataclass(frozen=True, slots=True)
class JobFile:
    """A checked job file.

    Attributes:
        path: of the file.
        type: of the job, one of `SECTIONS`.
        name: of the application.
        trigger: arguments of `DataStreamWriter.trigger`.
        checkpoint: directory of Spark's checkpoint.
        source: options of the source `kafkalite`; empty = the job has no source.
        table: None = the job has no table.
        window, audit, replay: of a job of this type.
        decoding: of keys and values.
        progress: what shows it.
        sink: options of the sink `kafkalite`; None = the job writes no topic.
        spark: configuration of the session; `master` is its master.
    """

    path: str
    type: str
    name: str
    trigger: Mapping[str, Any]
    checkpoint: str
    source: Mapping[str, str] = field(default_factory=dict)
    table: TableSettings | None = None
    window: WindowSettings | None = None
    audit: AuditSettings | None = None
    replay: ReplaySettings | None = None
    decoding: Decoding = RAW
    progress: ProgressSettings = field(default_factory=ProgressSettings)
    sink: Mapping[str, str] | None = None
    spark: Mapping[str, str] = field(default_factory=dict)

    @property
    def required_table(self) -> TableSettings:
        """The table. Raises JobError: the job has none."""
        if self.table is None:
            raise JobError(f"{self.path}: a job of type {self.type} has no section [table]")
        return self.table

    def source_options(self) -> SourceOptions:
        """The checked options of the source."""
        return source_options(self.source, streaming=True)


def read_job(path: str | os.PathLike[str]) -> JobFile:
    """Read and check a job file.

    Arguments:
        path: of the file.

    Raises:
        JobError: it cannot be read, or a key or a value is not valid; the text names the key and what is allowed.
    """
    origin = os.fspath(path)
    try:
        content = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise JobError(f"{origin}: the job file cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise JobError(f"{origin}: the job file is not TOML: {error}") from None
    return parse_job(content, origin)


def parse_job(content: Mapping[str, Any], origin: str) -> JobFile:
    """Check the content of a job file.

    Arguments:
        content: its sections.
        origin: path of the file; relative paths are below its directory.

    Raises:
        JobError: see `read_job`.
    """
    job = Section(origin, "job", _section(content, "job", origin), JOB_KEYS)
    kind = job.choice("type", None, tuple(SECTIONS))
    needed, allowed = SECTIONS[kind], (*COMMON, *SECTIONS[kind], *OPTIONAL[kind])
    for name in content:
        if name not in allowed:
            raise JobError(f"{origin}: [{name}]: a job of type {kind} does not have it; allowed are {_named(allowed)}")
    for name in needed:
        if name not in content:
            raise JobError(f"{origin}: [{name}] is missing; a job of type {kind} needs {_named(('job', *needed))}")
    if kind == WINDOW and ("table" in content) == ("sink" in content):
        raise JobError(f"{origin}: a job of type {kind} needs one of [table], [sink]")
    directory = Path(origin).absolute().parent
    table = None
    if "table" in content:
        table = table_settings(origin, kind, _section(content, "table", origin), directory)
    name = job.text("name") or Path(origin).stem
    default = f"{table.path}-checkpoint" if table is not None else str(directory / f"{name}-checkpoint")
    checkpoint = job.text("checkpoint")
    progress = progress_settings(origin, _section(content, "progress", origin), directory)
    return JobFile(
        path=origin,
        type=kind,
        name=name,
        trigger=_trigger(job),
        checkpoint=default if checkpoint is None else str(directory / checkpoint),
        source=_source(content, origin, progress.group),
        table=table,
        window=window_settings(origin, _section(content, "window", origin)) if kind == WINDOW else None,
        audit=audit_settings(origin, _section(content, "audit", origin)) if kind == AUDIT else None,
        replay=replay_settings(origin, _section(content, "replay", origin)) if kind == REPLAY else None,
        decoding=decoding_settings(origin, _section(content, "decoding", origin), directory),
        progress=progress,
        sink=_sink(content, origin),
        spark=Section(origin, "spark", _section(content, "spark", origin), None).options(),
    )


def _section(content: Mapping[str, Any], name: str, origin: str) -> Mapping[str, Any]:
    found = content.get(name, {})
    if not isinstance(found, dict):
        raise JobError(f"{origin}: {name} is {found!r}, expected a section [{name}]")
    return found


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(f"[{name}]" for name in names)


def _trigger(job: Section) -> dict[str, Any]:
    value = job.text("trigger", AVAILABLE_NOW)
    if value == AVAILABLE_NOW:
        return {"availableNow": True}
    number, _, unit = (value or "").partition(" ")
    if not number.isdecimal() or unit.removesuffix("s") not in ("millisecond", "second", "minute", "hour", "day"):
        raise job.error("trigger", f'{value!r}, expected "{AVAILABLE_NOW}" or an interval such as "1 minute"')
    return {"processingTime": value}


def _source(content: Mapping[str, Any], origin: str, group: str | None) -> dict[str, str]:
    if "source" not in content:
        return {}
    options = Section(origin, "source", _section(content, "source", origin), None).options()
    if group is not None:
        options.setdefault(PROGRESS_GROUP, group)
    try:
        source_options(options, streaming=True)
    except OptionError as error:
        raise JobError(f"{origin}: [source] {error}") from None
    return options


def _sink(content: Mapping[str, Any], origin: str) -> dict[str, str] | None:
    if "sink" not in content:
        return None
    options = Section(origin, "sink", _section(content, "sink", origin), None).options()
    try:
        found = sink_options(options)
    except OptionError as error:
        raise JobError(f"{origin}: [sink] {error}") from None
    if found.topic is None:
        raise JobError(f"{origin}: [sink] topic is missing, expected the name of a topic")
    return options
