"""Compacts a table: few large files replace many small ones, as one commit. Offsets and the owner of the table stay.

A job may write to the table meanwhile. Needs pyarrow.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafkalite.tables.errors import DamagedTableError, TableError
from pyspark_kafkalite.tables.locations import open_committed
from pyspark_kafkalite.tables.manifest import ManifestTable
from pyspark_kafkalite.tables.model import NO_COMMIT, DataFile, Replacement, Span
from pyspark_kafkalite.tables.parquet_writer import AttemptWriter, ParquetOptions

if TYPE_CHECKING:
    import pyarrow

TARGET_BYTES = 256 << 20
RETENTION_S = 24 * 3600.0
LARGE = 0.75
"""A file of that part of the target size is not compacted."""

ROW_GROUP_BYTES = 64 << 20
TOPIC_COLUMN = "_topic"


class Compaction(NamedTuple):
    """What a compaction has done.

    Attributes:
        sequence: of its commit; -1 = there was nothing to replace.
        replaced, written: numbers of files.
        bytes_before, bytes_after: their sizes.
        removed: files of earlier compactions whose retention has ended.
    """

    sequence: int
    replaced: int
    written: int
    bytes_before: int
    bytes_after: int
    removed: int


def compact(
    table: ManifestTable,
    *,
    target_bytes: int = TARGET_BYTES,
    retention_s: float = RETENTION_S,
    options: ParquetOptions = ParquetOptions(),  # noqa: B008 (immutable)
) -> Compaction:
    """Replace small files by larger ones of the same topic and directory, as one commit.

    Arguments:
        table: an open table of plain Parquet.
        target_bytes: size of a file.
        retention_s: replaced files stay on disk that long, in seconds, for readers that have begun before.
        options: how files are written.

    Raises:
        TableError: another process compacts the table, or it is damaged. OSError: as of the file system. The table is
            unchanged then, or the files are replaced.
    """
    if target_bytes < 1 or retention_s < 0:
        raise ValueError(f"target_bytes is {target_bytes}, retention_s {retention_s}; expected at least 1 and 0")
    if table.state().rewritten:
        raise TableError(f"table {table.location}: its job replaces its files; it needs no compaction")
    with table.compacting():
        removed = table.remove_replaced(retention_s)
        replaced: list[DataFile] = []
        written: list[DataFile] = []
        state = table.state()
        # Rows of a former topic have offsets of the present one.
        current = (each for name, each in state.files.items() if name not in state.former)
        for group in groups(current, target_bytes):
            for files in _of_one_schema(table, group):
                written += _rewritten(table, files, options)
                replaced += files
        if not replaced:
            return Compaction(NO_COMMIT, 0, 0, 0, 0, removed)
        sequence = table.replace(Replacement(tuple(written), tuple(each.name for each in replaced)))
    before, after = (sum(each.bytes for each in files) for files in (replaced, written))
    return Compaction(sequence, len(replaced), len(written), before, after, removed)


def groups(files: Iterable[DataFile], target_bytes: int) -> list[tuple[DataFile, ...]]:
    """Return which files become one: those of one directory and the same topics, in their order. Pure.

    Arguments:
        files: of a table, in the order of their commits.
        target_bytes: most bytes of a group, unless a file alone has more.
    """
    found: list[tuple[DataFile, ...]] = []
    open_groups: dict[tuple[str, frozenset[str]], list[DataFile]] = {}
    for each in files:
        if each.bytes >= LARGE * target_bytes:
            continue
        key = (str(PurePosixPath(each.name).parent), frozenset(span.topic for span in each.spans))
        group = open_groups.setdefault(key, [])
        if sum(one.bytes for one in group) + each.bytes > target_bytes:
            found.append(tuple(group))
            group.clear()
        group.append(each)
    found += (tuple(group) for group in open_groups.values())
    return [each for each in found if len(each) > 1]


def _of_one_schema(table: ManifestTable, files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Divide a group by the schema of its files: columns may have been added."""
    from pyarrow import parquet

    found: dict[str, list[DataFile]] = {}
    for each in files:
        with open_committed(_root(table), each.name) as source:
            schema = parquet.read_schema(source)
        found.setdefault(schema.to_string(show_schema_metadata=False), []).append(each)
    yield from (each for each in found.values() if len(each) > 1)


def _rewritten(table: ManifestTable, files: Sequence[DataFile], options: ParquetOptions) -> list[DataFile]:
    """Write the rows of files to one file for each topic."""
    topics = {span.topic for each in files for span in each.spans}
    divided = len(topics) > 1 and all(each.spans for each in files)
    parent = PurePosixPath(files[0].name).parent
    outputs: dict[str, Output] = {}
    with ExitStack() as stack:
        for topic, batch in _batches(table, files, divided=divided):
            if topic not in outputs:
                name = str(parent / f"part-compacted-{uuid.uuid4().hex}.parquet")
                writer = AttemptWriter(table.compactions, name, batch.schema, options)
                stack.callback(writer.abandon)
                outputs[topic] = Output(writer)
            outputs[topic].append(batch)
        found = [(topic, each.finish()) for topic, each in outputs.items()]
        stack.pop_all()
    rows = sum(each.rows for _, each in found)
    if rows != sum(each.rows for each in files):
        names = ", ".join(each.name for each in files)
        raise DamagedTableError(f"table {table.location}: {names} have {rows} rows, their commits say otherwise")
    spans = merged_spans(files)
    return [
        each._replace(spans=tuple(span for span in spans if not divided or span.topic == topic))
        for topic, each in found
    ]


def _batches(
    table: ManifestTable, files: Sequence[DataFile], *, divided: bool
) -> Iterator[tuple[str, "pyarrow.RecordBatch"]]:
    """Yield the rows of files with their topic; an empty one unless they are divided by topic."""
    from pyarrow import compute, parquet

    for each in files:
        with open_committed(_root(table), each.name) as source, parquet.ParquetFile(source) as file:
            for batch in file.iter_batches():
                if not divided:
                    yield "", batch
                    continue
                column = batch.column(TOPIC_COLUMN)
                for topic in compute.unique(column).to_pylist():
                    yield topic, batch.filter(compute.equal(column, topic))


class Output:
    """One file that is written, in row groups of about `ROW_GROUP_BYTES`.

    Arguments:
        writer: of the file.
    """

    def __init__(self, writer: AttemptWriter) -> None:
        self._writer = writer
        self._waiting: list[pyarrow.RecordBatch] = []
        self._bytes = 0

    def append(self, batch: "pyarrow.RecordBatch") -> None:
        """Add rows."""
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._write()

    def finish(self) -> DataFile:
        """Write the rest, and the end of the file."""
        self._write()
        file = self._writer.finish()
        assert file is not None
        return file

    def _write(self) -> None:
        import pyarrow

        if self._waiting:
            for batch in pyarrow.Table.from_batches(self._waiting).combine_chunks().to_batches():
                self._writer.write(batch)
        self._waiting, self._bytes = [], 0


def merged_spans(files: Iterable[DataFile]) -> tuple[Span, ...]:
    """Return the offsets of files, adjacent and overlapping ones joined; none if those of a file are unknown. Pure."""
    found: list[Span] = []
    for each in files:
        if not each.spans:
            return ()
        found += each.spans
    joined: list[Span] = []
    for span in sorted(found):
        last = joined[-1] if joined else None
        if last is not None and last[:2] == span[:2] and span.start <= last.end:
            joined[-1] = last._replace(end=max(last.end, span.end))
        else:
            joined.append(span)
    return tuple(joined)


def _root(table: ManifestTable) -> Path:
    return Path(table.location)
