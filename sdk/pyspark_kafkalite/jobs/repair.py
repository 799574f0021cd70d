"""Repairs the table of a job `lake` that has lost files: their records are read from the topic again. No JVM."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kafkalite.model import TopicPartition
from pyspark_kafkalite.clients import close_clients
from pyspark_kafkalite.cluster import Cluster
from pyspark_kafkalite.errors import DataLossError
from pyspark_kafkalite.ingest.batch_job import BatchJob
from pyspark_kafkalite.ingest.outcome import known_schema
from pyspark_kafkalite.ingest.worker import Job, Written, write_split
from pyspark_kafkalite.jobs.errors import JobError
from pyspark_kafkalite.jobs.settings.job_file import JobFile
from pyspark_kafkalite.jobs.settings.job_settings import DELTA, LAKE, LATEST, WINDOW
from pyspark_kafkalite.losses import find_recreated
from pyspark_kafkalite.options import SourceOptions
from pyspark_kafkalite.planner import OffsetRange
from pyspark_kafkalite.tables.locations import exists, find
from pyspark_kafkalite.tables.manifest import ManifestTable
from pyspark_kafkalite.tables.model import DataFile, Span
from pyspark_kafkalite.tables.reading import read_spans
from pyspark_kafkalite.tables.repair import refill_of, replacement_of
from pyspark_kafkalite.tables.state import TableState
from pyspark_kafkalite.task import Task

NAME = "repaired"
"""Part of the names of the new files."""

STEP = "restore the files, or create the table again"


class Repair(NamedTuple):
    """What a repair has done.

    Attributes:
        lost: names of the files that were lost; none = nothing was changed.
        spans: the offsets that were read again.
        rows: number of records in the new files.
    """

    lost: tuple[str, ...]
    spans: tuple[Span, ...] = ()
    rows: int = 0


def repair_job(job: JobFile) -> Repair:
    """Replace the lost files of a table, as one commit that keeps the offsets.

    Arguments:
        job: of type lake, with the decoding that the job has had.

    Raises:
        JobError: the table is not one of plain Parquet that a job `lake` writes. TableError: it does not exist, or is
            being compacted. DataLossError: the topic does not have the records any more. KafkaError: it cannot be read.
            The table is unchanged then.
    """
    settings = job.required_table
    _check_repairable(job, settings.format)
    table = ManifestTable(settings.path, create=False)
    try:
        with table.repairing():
            return _repaired(job, table, table.lost_files())
    finally:
        close_clients()


def _check_repairable(job: JobFile, table_format: str) -> None:
    """Raise JobError with the next step, unless the job writes records of topics to plain Parquet."""
    if job.type in (LATEST, WINDOW):
        raise JobError(
            f"{job.path}: repair is for {LAKE}: the files of a job of type {job.type} are results, not records of a "
            "topic; delete the table and the checkpoint, and run the job again"
        )
    if job.type != LAKE:
        raise JobError(
            f"{job.path}: repair is for {LAKE}: a job of type {job.type} writes no table; use the file of "
            "the job that does"
        )
    if table_format == DELTA:
        raise JobError(
            f"{job.path}: repair is for {LAKE} of plain Parquet: the log of {DELTA} does not have the offsets of a "
            "file; restore the files from a copy, or delete the table and the checkpoint, and run the job again"
        )


def _repaired(job: JobFile, table: ManifestTable, lost: Sequence[DataFile]) -> Repair:
    if not lost:
        return Repair(())
    state, options = _with_offsets_of_dead_letters(table.state(), table.location), job.source_options()
    refill = refill_of(state, lost, table.location)
    topics = {each.topic for each in refill.spans}
    topic_ids = {topic: found for topic, found in state.topic_ids.items() if topic in topics}
    _check_topics(options, refill.spans, topic_ids, table.location)
    settings = job.required_table
    batch = BatchJob.of(options, table.compactions, NAME, settings.parquet)
    work = Job(batch, job.decoding, known_schema(table), settings.partition)
    written = [write_split(work, _task(options, span, topic_ids)) for span in refill.spans]
    letters = () if job.decoding.topic is not None else _dead_letters(written)  # the topic has them since the commit
    files = [each for one in written for each in one.files]
    table.replace(replacement_of(refill, files, letters, table.location))
    return Repair(tuple(each.name for each in lost), refill.spans, sum(each.rows for each in (*files, *letters)))


def _with_offsets_of_dead_letters(state: TableState, location: str) -> TableState:
    """Return the state with the offsets of dead letters whose commit, of an earlier version, does not have them."""
    unknown = {
        name: file._replace(spans=_spans_of(find(Path(location), name)))
        for name, file in state.dead_letters.items()
        if not file.spans and name not in state.former and exists(Path(location), name)
    }
    return state._replace(dead_letters={**state.dead_letters, **unknown})


def _spans_of(path: Path) -> tuple[Span, ...]:
    import pyarrow

    try:
        return read_spans(path)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise JobError(
            f"the dead letters {path} cannot be read, and their commit does not have their offsets: {error}; restore "
            "the file from a copy, and repair again"
        ) from error


def _task(options: SourceOptions, span: Span, topic_ids: dict[str, str]) -> Task:
    return Task(
        (OffsetRange(*span),),
        topic_ids,
        options.client,
        options.isolation,
        fail_on_data_loss=True,
        timeout_s=options.poll_timeout_s,
    )


def _dead_letters(written: Sequence[Written]) -> tuple[DataFile, ...]:
    return tuple(each for one in written for each in one.dead_letters)


def _check_topics(options: SourceOptions, spans: Sequence[Span], topic_ids: dict[str, str], location: str) -> None:
    """Raise DataLossError: the log does not have the offsets, or the topic is another one."""
    cluster = Cluster(options)
    found = cluster.partitions()
    wanted = {TopicPartition(each.topic, each.partition): each for each in reversed(spans)}  # the first of each
    missing = sorted(set(wanted) - set(found.partitions))
    if missing:
        raise DataLossError(
            f"table {location}: {missing[0]} of the lost files is not in [source], or does not exist any more; {STEP}"
        )
    for topic in sorted({each.topic for each in wanted} & set(found.topic_ids) - set(topic_ids)):
        raise DataLossError(
            f"table {location}: it has no id of topic {topic}, so it is unknown whether the topic is the one whose "
            f"records the lost files had; {STEP}"
        )
    for topic in find_recreated(topic_ids, found.topic_ids):
        raise DataLossError(
            f"table {location}: topic {topic} was deleted and created again; the records of the lost files were those "
            f"of the former one; {STEP}"
        )
    for name, start in sorted(cluster.earliest(wanted).items()):
        if start > wanted[name].start:
            raise DataLossError(
                f"table {location}: the lost files begin {name} at offset {wanted[name].start}, but the log begins at "
                f"{start}: retention has removed the records; {STEP}"
            )
