"""The option `history`: offsets that a table contains are read from its files, the others from the topic.

Each offset is read once: a plan divides ranges by one state of the table. Files that a compaction replaces later can be
read until their retention ends.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.model import TopicPartition
from pyspark_kafkalite.losses import find_recreated
from pyspark_kafkalite.options import EARLIEST, Position
from pyspark_kafkalite.planner import OffsetRange
from pyspark_kafkalite.stream_offsets import Offsets
from pyspark_kafkalite.tables.errors import TableError
from pyspark_kafkalite.tables.locations import open_committed
from pyspark_kafkalite.tables.manifest import ManifestTable
from pyspark_kafkalite.tables.state import TableState

if TYPE_CHECKING:
    import pyarrow

BATCH_BYTES = 8 << 20
TABLE_COLUMNS = {"topic": "_topic", "partition": "_partition", "offset": "_offset", "timestamp": "_timestamp"}
KEYS = tuple(TABLE_COLUMNS.values())[:3]
TIMESTAMP_TYPE = "timestampType"
"""A table does not contain it; its rows have 0, CreateTime."""


class HistoryTask(NamedTuple):
    """What one task reads from a table.

    Attributes:
        location: directory of the table.
        files: names of its files; no other task of the plan has one of them.
        ranges: the offsets to read.
    """

    location: str
    files: tuple[str, ...]
    ranges: tuple[OffsetRange, ...]


class Division(NamedTuple):
    """Where offsets are read.

    Attributes:
        table: from the table.
        before: start and end of what is before the table, by partition, from the topic.
        after: the same of what is behind the table, also if it is empty.
        losses: a sentence for each range that is in neither.
    """

    table: list[OffsetRange]
    before: dict[TopicPartition, tuple[int, int]]
    after: dict[TopicPartition, tuple[int, int]]
    losses: list[str]


class History:
    """The table of a source.

    Arguments:
        location: its directory.
    """

    def __init__(self, location: str) -> None:
        self.location = os.path.abspath(location)
        self._table: ManifestTable | None = None

    def __reduce__(self) -> tuple[type["History"], tuple[str]]:
        return History, (self.location,)  # tasks have what they need

    def state(self, topic_ids: Mapping[str, str]) -> TableState:
        """Return the table after its last commit, without topics that were created again: see `former_topics`.

        Arguments:
            topic_ids: of the topics that are read.

        Raises:
            TableError: there is no table, or it is damaged.
        """
        state = self._state()
        former = former_topics(state, topic_ids)
        return state._replace(starts={name: at for name, at in state.starts.items() if name.topic not in former})

    def losses(self, topic_ids: Mapping[str, str]) -> list[str]:
        """Return a sentence for each topic whose records in the table are those of a former one. Raises TableError."""
        return [
            f"topic {topic} was deleted and created again; the table {self.location} has records of the former one, "
            "which are not read: use another table"
            for topic in former_topics(self._state(), topic_ids)
        ]

    def _state(self) -> TableState:
        if self._table is None:
            self._table = ManifestTable(self.location, create=False)
        state = self._table.state()
        if state.dead_letters or state.rewritten:
            raise TableError(
                f"table {self.location}: it does not contain all records of its topics, so it cannot be their history; "
                "copy the topics without decoding"
            )
        return state


def former_topics(state: TableState, topic_ids: Mapping[str, str]) -> list[str]:
    """Return the topics of which a table has records of a former topic: it was deleted and created again. Pure.

    Arguments:
        state: of the table. A topic whose id it does not have is accepted: an earlier version has copied it.
        topic_ids: of the topics that are read.
    """
    mixed = {topic for topics in state.former.values() for topic in topics} & set(topic_ids)
    return sorted({*mixed, *find_recreated(state.topic_ids, topic_ids)})


def first_offsets(state: TableState, position: Position, start: Offsets, names: Sequence[TopicPartition]) -> Offsets:
    """Return the offsets of a position; `earliest` includes the table. Pure.

    Arguments:
        state: of the table.
        position: of the option.
        start: its offsets in the log.
        names: the partitions.
    """
    found = {}
    for each in names:
        wanted = position.everywhere if position.offsets is None else position.offsets.get(each)
        found[each] = min(start[each], state.starts.get(each, start[each])) if wanted == EARLIEST else start[each]
    return found


def divide(state: TableState, location: str, start: Offsets, end: Offsets, earliest: Offsets) -> Division:
    """Divide ranges between table and topic. Pure.

    Arguments:
        state: of the table.
        location: of the table, for errors.
        start, end: the ranges, by partition.
        earliest: the log start offsets; partitions that were deleted are missing.
    """
    found = Division([], {}, {}, [])
    for name in sorted(end):
        first, last = start[name], max(start[name], end[name])
        begins, ends = state.starts.get(name, last), state.ends.get(name, first)
        if name not in state.starts:
            found.after[name] = first, last
            continue
        if first < begins:
            found.before[name] = first, min(last, begins)
        _add_held(found, state, OffsetRange(*name, max(first, begins), min(last, ends)))
        behind = min(max(first, ends), last)
        log_start = earliest.get(name, behind)
        if first <= ends and behind < min(log_start, last):
            lost = min(log_start, last)
            found.losses.append(
                f"{name}: the table {location} ends at offset {ends}, but the log begins at {log_start}: offsets "
                f"{behind} to {lost - 1} are in neither"
            )
            behind = lost
        found.after[name] = behind, last
    return found


def _add_held(found: Division, state: TableState, held: OffsetRange) -> None:
    """Add a range of the table without the gaps that its commits have recorded."""
    start = held.start
    for gap in sorted(each for each in state.gaps if each[:2] == held[:2]):
        low, high = max(gap.start, start), min(gap.end, held.end)
        if low >= high:
            continue
        name = TopicPartition(held.topic, held.partition)
        found.losses.append(f"{name}: offsets {low} to {high - 1} were lost before the table was written")
        if start < low:
            found.table.append(held._replace(start=start, end=low))
        start = high
    if start < held.end:
        found.table.append(held._replace(start=start))


def tasks(state: TableState, location: str, ranges: Sequence[OffsetRange], target_bytes: int) -> Iterator[HistoryTask]:
    """Yield tasks that read ranges from the files of a table; each file is in one of them. Pure.

    Arguments:
        state: of the table.
        location: of the table.
        ranges: that it contains.
        target_bytes: size of a task.
    """
    by_partition: dict[tuple[str, int], list[OffsetRange]] = {}
    for each in ranges:
        by_partition.setdefault(each[:2], []).append(each)
    names: list[str] = []
    needed: set[OffsetRange] = set()
    size = 0
    for file in state.files.values():
        wanted = {
            each
            for span in file.spans
            for each in by_partition.get(span[:2], ())
            if each.start < span.end and span.start < each.end
        }
        wanted = wanted if file.spans else set(ranges)
        if not wanted:
            continue
        if names and size + file.bytes > target_bytes:
            yield HistoryTask(location, tuple(names), tuple(sorted(needed)))
            names, needed, size = [], set(), 0
        names.append(file.name)
        needed |= wanted
        size += file.bytes
    if names:
        yield HistoryTask(location, tuple(names), tuple(sorted(needed)))


# in tasks


def find_copy(location: str, lost: OffsetRange, topic_ids: Mapping[str, str]) -> HistoryTask | None:
    """Return what reads a range that retention has deleted since the plan; None = the table does not contain all of it.

    Arguments:
        location: of the table.
        lost: the range.
        topic_ids: of the topics that are read.

    Raises:
        TableError: the table is damaged.
    """
    state, name = History(location).state(topic_ids), TopicPartition(lost.topic, lost.partition)
    if divide(state, location, {name: lost.start}, {name: lost.end}, {}).table != [lost]:
        return None
    (found,) = tasks(state, location, [lost], sum(each.bytes for each in state.files.values()))
    return found


def batches(task: HistoryTask, columns: tuple[str, ...], schema: "pyarrow.Schema") -> Iterator["pyarrow.RecordBatch"]:
    """Yield the rows of a task.

    Arguments:
        task: files and ranges.
        columns: of the source.
        schema: of the batches.

    Raises:
        TableError: a file does not exist any more, or the table does not contain records as they were sent.
    """
    from pyarrow import parquet

    for name in task.files:
        with open_committed(Path(task.location), name) as source, parquet.ParquetFile(source) as file:
            stored = {each: TABLE_COLUMNS.get(each, each) for each in columns if each != TIMESTAMP_TYPE}
            _check_columns(task, stored, file.schema_arrow, schema)
            metadata = file.metadata
            total = sum(metadata.row_group(each).total_byte_size for each in range(metadata.num_row_groups))
            rows = max(1, min(65_536, BATCH_BYTES * metadata.num_rows // max(total, 1)))
            for batch in file.iter_batches(rows, columns=sorted({*KEYS, *stored.values()})):
                if (found := _selected(batch, task.ranges)).num_rows:
                    yield _converted(found, columns, stored, schema)


def _check_columns(
    task: HistoryTask, stored: Mapping[str, str], found: "pyarrow.Schema", schema: "pyarrow.Schema"
) -> None:
    import pyarrow

    for column, name in stored.items():
        field = found.field(name) if name in found.names else None
        if field is None or (pyarrow.types.is_binary(schema.field(column).type) and field.type != pyarrow.binary()):
            described = "is missing" if field is None else f"has type {field.type}"
            raise TableError(
                f"table {task.location}: column {name} {described}: a table of decoded records cannot be the "
                "history of its topic; copy the topic without decoding"
            )


def _selected(batch: "pyarrow.RecordBatch", ranges: Sequence[OffsetRange]) -> "pyarrow.RecordBatch":
    """The rows of a batch that are in ranges."""
    import pyarrow
    from pyarrow import compute

    topics, partitions, offsets = (batch.column(name) for name in KEYS)
    mask = pyarrow.array([False] * batch.num_rows)
    for each in ranges:
        same = compute.and_(compute.equal(topics, each.topic), compute.equal(partitions, each.partition))
        within = compute.and_(compute.greater_equal(offsets, each.start), compute.less(offsets, each.end))
        mask = compute.or_(mask, compute.and_(same, within))
    return batch if compute.all(mask).as_py() else batch.filter(mask)


def _converted(
    batch: "pyarrow.RecordBatch", columns: tuple[str, ...], stored: Mapping[str, str], schema: "pyarrow.Schema"
) -> "pyarrow.RecordBatch":
    import pyarrow

    arrays = [
        pyarrow.array([0] * batch.num_rows, pyarrow.int32())
        if column == TIMESTAMP_TYPE
        else batch.column(stored[column]).cast(schema.field(column).type)
        for column in columns
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
