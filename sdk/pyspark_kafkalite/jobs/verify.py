"""Compares a table with the log of its topics: contiguity of offsets, number of records. No JVM."""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.model import TopicPartition
from pyspark_kafkalite import clients
from pyspark_kafkalite.cluster import Cluster
from pyspark_kafkalite.jobs.errors import JobError
from pyspark_kafkalite.jobs.settings.job_file import JobFile
from pyspark_kafkalite.jobs.settings.job_settings import AUDIT, DELTA, LAKE
from pyspark_kafkalite.losses import find_recreated, recreated_text
from pyspark_kafkalite.options import SourceOptions
from pyspark_kafkalite.tables.locations import find
from pyspark_kafkalite.tables.manifest import ManifestTable
from pyspark_kafkalite.tables.model import Commit
from pyspark_kafkalite.tables.state import TableState

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset


class VerifiedPartition(NamedTuple):
    """A partition of a table.

    Attributes:
        name: the partition.
        start, end: of the table.
        rows: in the files of the table, with its dead letters.
        missing: offsets that the table records as lost.
        log_start, log_end: of the broker; None = the partition does not exist there.
    """

    name: TopicPartition
    start: int
    end: int
    rows: int
    missing: int
    log_start: int | None
    log_end: int | None

    @property
    def lag(self) -> int | None:
        """Offsets of the log that the table does not have yet."""
        return None if self.log_end is None else max(self.log_end - self.end, 0)


class Verification(NamedTuple):
    """The result: `problems` are sentences, none = the table is right."""

    partitions: tuple[VerifiedPartition, ...]
    problems: tuple[str, ...]


def verify_job(job: JobFile, *, full: bool = False) -> Verification:
    """Verify the table of a job.

    Arguments:
        job: of type lake or audit.
        full: read all offsets from the broker; else only where the table has fewer rows than offsets.

    Raises:
        JobError: the table cannot be verified. TableError: it does not exist, or is damaged. KafkaError.
    """
    settings = job.required_table
    if job.type not in (LAKE, AUDIT):
        raise JobError(f"{job.path}: verify is for {LAKE}; the table of a job of type {job.type} lacks records")
    if settings.format == DELTA:
        raise JobError(f"{job.path}: verify reads tables of plain Parquet, but [table] format is {DELTA}")
    table = ManifestTable(settings.path, create=False)
    problems = list(contiguity(table.commits()))
    try:
        options = job.source_options()
        return _verify(table, options, problems, full=full)
    finally:
        clients.close_clients()


def contiguity(commits: Iterable[Commit]) -> Iterable[str]:
    """Yield a sentence for each range of a commit that does not begin where its partition ends."""
    ends: dict[TopicPartition, int] = {}
    for commit in commits:
        again = {each.topic for each in commit.recreated}
        ends = {name: end for name, end in ends.items() if name.topic not in again}
        lost = {(TopicPartition(each.topic, each.partition), each.start): each.end for each in commit.gaps}
        for each in commit.ranges:
            expected = ends.get(each.name, each.start)
            expected = lost.get((each.name, expected), expected)
            if each.start != expected:
                yield f"{each.name}: commit {commit.sequence} begins at offset {each.start}, expected {expected}"
            ends[each.name] = each.end


def current_commits(commits: Iterable[Commit], topic: str) -> list[Commit]:
    """Return the commits with records of the topic that the table ends with: a former one of this name is left out."""
    found: list[Commit] = []
    for each in commits:
        if any(again.topic == topic for again in each.recreated):
            found.clear()
        found.append(each)
    return found


def current_files(state: TableState, topic: str) -> list[str]:
    """Return the names of files without rows of a former topic of this name; with dead letters."""
    return [name for name in (*state.files, *state.dead_letters) if topic not in state.former.get(name, ())]


def _verify(table: ManifestTable, options: SourceOptions, problems: list[str], *, full: bool) -> Verification:
    from pyarrow import dataset

    state = table.state()
    cluster = Cluster(options)
    existing = cluster.partitions()
    again = find_recreated(state.topic_ids, existing.topic_ids)
    problems += [recreated_text(topic, state.ends) for topic in again]
    known = {each for each in existing.partitions if each.topic not in again}
    names = sorted(state.ends)
    earliest = cluster.earliest([each for each in names if each in known])
    latest = cluster.latest([each for each in names if each in known])
    found = []
    every = table.commits()
    for topic, of_topic in groupby(names, attrgetter("topic")):
        commits = current_commits(every, topic)
        paths = [str(find(Path(table.location), each)) for each in current_files(state, topic)]
        files = dataset.dataset(paths, format="parquet", ignore_prefixes=[]) if paths else None
        for name in of_topic:
            offsets = _offsets(files, name)
            one = _partition(commits, name, len(offsets), earliest.get(name), latest.get(name))
            problems += _row_problems(commits, one, offsets)
            if topic not in again:
                problems += _log_problems(one)
            if one.log_end is not None and (full or one.rows < one.end - one.start - one.missing):
                problems += _compared(options, one, offsets)
            found.append(one)
    return Verification(tuple(found), tuple(problems))


def _partition(
    commits: list[Commit], name: TopicPartition, rows: int, log_start: int | None, log_end: int | None
) -> VerifiedPartition:
    ranges = [each for commit in commits for each in commit.ranges if each.name == name]
    gaps = [each for commit in commits for each in commit.gaps if (each.topic, each.partition) == name]
    missing = sum(each.end - each.start for each in gaps)
    return VerifiedPartition(name, ranges[0].start, ranges[-1].end, rows, missing, log_start, log_end)


def _offsets(files: "pyarrow.dataset.Dataset | None", name: TopicPartition) -> "pyarrow.Array":
    """The offsets of a partition in the files, sorted."""
    import pyarrow
    from pyarrow import compute

    if files is None:
        return pyarrow.array([], pyarrow.int64())
    chosen = (compute.field("_topic") == name.topic) & (compute.field("_partition") == name.partition)
    offsets = files.to_table(columns=["_offset"], filter=chosen)["_offset"].combine_chunks()
    return offsets.take(compute.array_sort_indices(offsets))


def _row_problems(commits: list[Commit], one: VerifiedPartition, offsets: "pyarrow.Array") -> Iterable[str]:
    from pyarrow import compute

    distinct = len(compute.unique(offsets))
    if distinct != len(offsets):
        yield f"{one.name}: {len(offsets) - distinct} rows of the table have the offset of another row"
    committed = sum(each.rows for commit in commits for each in commit.ranges if each.name == one.name)
    if committed != len(offsets):
        yield f"{one.name}: the commits have {committed} rows, the files {len(offsets)}"
    if len(offsets) and not (one.start <= offsets[0].as_py() and offsets[-1].as_py() < one.end):
        yield f"{one.name}: the files have offsets beyond those of the commits, {one.start} to {one.end - 1}"


def _log_problems(one: VerifiedPartition) -> Iterable[str]:
    if one.log_end is None or one.log_start is None:
        yield f"{one.name}: the partition does not exist on the broker"
    elif one.end > one.log_end:
        yield f"{one.name}: the table ends at offset {one.end}, the log at {one.log_end}: the topic was created again"
    elif one.end < one.log_start:
        yield (
            f"{one.name}: the table ends at offset {one.end}, but the log begins at {one.log_start}: "
            f"{one.log_start - one.end} offsets are lost"
        )


def _compared(options: SourceOptions, one: VerifiedPartition, offsets: "pyarrow.Array") -> Iterable[str]:
    """Compare the offsets with those of the log, as far as it has them."""
    import pyarrow
    from pyarrow import compute

    start, end = max(one.start, one.log_start or 0), min(one.end, one.log_end or 0)
    if start >= end:
        return
    reader = clients.reader(options.client, options.isolation)
    batches = reader.read(*one.name, start, end, columns=("offset",), timeout=options.poll_timeout_s)
    columns = [pyarrow.record_batch(batch).column(0) for batch in batches]
    log = pyarrow.chunked_array(columns, pyarrow.int64())
    mine = offsets.filter(compute.and_(compute.greater_equal(offsets, start), compute.less(offsets, end)))
    lacking = len(log) - compute.sum(compute.is_in(log, value_set=mine)).as_py() if len(log) else 0
    extra = len(mine) - (compute.sum(compute.is_in(mine, value_set=log)).as_py() or 0)
    if lacking:
        yield f"{one.name}: {lacking} records of the log between offsets {start} and {end - 1} are not in the table"
    if extra:
        yield f"{one.name}: {extra} rows of the table between offsets {start} and {end - 1} are not in the log"
