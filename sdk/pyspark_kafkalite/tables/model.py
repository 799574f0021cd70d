"""The content of a commit of a table, and the interface of a table. Pure: no I/O."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from kafkalite.model import TopicPartition
from pyspark_kafkalite.tables.errors import DamagedTableError

FORMAT = 1
NO_COMMIT = -1
DEAD_LETTERS = "_dead_letters"
"""Directory of dead letters in a table. Spark, pyarrow and Delta do not list it."""

HIDDEN = "_hidden"
"""Directory of files of a table of the latest state whose rows only its job reads: readers do not list it."""

EndOffsets = Mapping[TopicPartition, int]


class CommittedRange(NamedTuple):
    """Offsets of one partition; `end` does not belong to them.

    Attributes:
        rows: records of the range; fewer than offsets where the log is compacted or has control batches.
        min_timestamp_ms, max_timestamp_ms: of its records; None = it has none.
        topic_id: of the topic whose offsets they are; None = unknown.
    """

    topic: str
    partition: int
    start: int
    end: int
    rows: int
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None
    topic_id: str | None = None

    @property
    def name(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def offsets(self) -> tuple[str, int, int, int]:
        """What makes two ranges the same."""
        return self[:4]


class Gap(NamedTuple):
    """Offsets that the table does not contain, because the log had lost them."""

    topic: str
    partition: int
    start: int
    end: int


class Recreation(NamedTuple):
    """A topic that was deleted and created again. Its offsets in the table begin again, and records of the former topic
    behind those of the table are lost.

    Attributes:
        topic: its name.
        former_id: of the topic whose records earlier commits have.
        topic_id: of the topic since this commit.
    """

    topic: str
    former_id: str
    topic_id: str


class Span(NamedTuple):
    """Offsets of one partition; `end` does not belong to them."""

    topic: str
    partition: int
    start: int
    end: int


class DataFile(NamedTuple):
    """A Parquet file.

    Attributes:
        name: relative to the table, with `/` between directories. The part after the last one is unique in the table.
        bytes: size of the file.
        rows: number of its rows.
        spans: its rows are among these offsets; none = unknown.
    """

    name: str
    bytes: int
    rows: int
    spans: tuple[Span, ...] = ()

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "DataFile":
        """Read what `_asdict` returned, from JSON. Raises KeyError, TypeError."""
        return cls(**{**fields, "spans": tuple(Span(*each) for each in fields.get("spans", ()))})


class Batch(NamedTuple):
    """What a query asks a table to commit.

    Attributes:
        query_id: of the query; it is the same after a restart from its checkpoint.
        batch_id: of the micro-batch; a repeated batch has the same one.
        ranges: all offsets of the batch, also those without a record.
        files: the attempts that contain their records.
        resumes: the last commit when a query with a new checkpoint began, see `Table.last_commit`; None = the query
            does not resume from the table.
        allow_gaps: offsets that are missing between the table and the batch are recorded as lost, and a topic that was
            created again is recorded, too.
        dead_letters: the attempts that contain the records that could not be decoded, see `dead_letter_name`.
        dead_rows: number of records that are not in `files`, because they could not be decoded.
        schema: of the table with this batch, as text of Spark's DDL; None = as before.
        details: what the query adds to the commit, a JSON object.
        removed: names of files that `files` replace: the table has a state, not records; None = `files` have exactly
            the records of `ranges`.
    """

    query_id: str
    batch_id: int
    ranges: tuple[CommittedRange, ...]
    files: tuple[DataFile, ...]
    resumes: int | None = None
    allow_gaps: bool = False
    dead_letters: tuple[DataFile, ...] = ()
    dead_rows: int = 0
    schema: str | None = None
    details: Mapping[str, Any] | None = None
    removed: tuple[str, ...] | None = None

    @property
    def attempts(self) -> tuple[DataFile, ...]:
        """All files of the batch."""
        return self.files + self.dead_letters


class QueryTotal(NamedTuple):
    """What a query has added to a table since it writes to it.

    Attributes:
        rows: records of its ranges.
        commits: their number, with those that replace its files.
    """

    rows: int
    commits: int


class Commit(NamedTuple):
    """One commit of a table.

    Attributes:
        sequence: its number; the first is 0.
        query_id, batch_id: of the batch; of a commit that replaces files, those of the last batch before it.
        ends: the end of each partition of the table after the commit.
        gaps: offsets that were missing before its ranges.
        removed: names of files that the commit replaces by `files`, which have the same rows unless the table
            has a state.
        dead_letters: files with the records that could not be decoded.
        schema: of the table, as text of Spark's DDL; None = as before.
        details: of the query that has committed, a JSON object.
        topic_ids: of the topics of `ends`, by name. An offset is valid only for the topic with this id. A topic that
            is missing is one that an earlier version has copied: the next commit with its records has its id.
        recreated: topics that were created again since the commit before.
        total: of its query, with this commit; None = an earlier version has made a commit of the query.
    """

    sequence: int
    query_id: str
    batch_id: int
    ranges: tuple[CommittedRange, ...]
    files: tuple[DataFile, ...]
    ends: EndOffsets
    gaps: tuple[Gap, ...] = ()
    removed: tuple[str, ...] = ()
    dead_letters: tuple[DataFile, ...] = ()
    schema: str | None = None
    details: Mapping[str, Any] | None = None
    topic_ids: Mapping[str, str] = {}
    recreated: tuple[Recreation, ...] = ()
    total: QueryTotal | None = None

    @property
    def attempts(self) -> tuple[DataFile, ...]:
        """All files of the batch."""
        return self.files + self.dead_letters

    @property
    def replaces(self) -> bool:
        """Whether it is the commit of a compaction or a repair: it has no batch."""
        return bool(self.removed) and not self.ranges

    def to_json(self) -> dict[str, Any]:
        """The commit as a JSON object."""
        return {
            "format": FORMAT,
            "sequence": self.sequence,
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "ranges": [_without_id(each) for each in self.ranges],
            "files": [each._asdict() for each in self.files],
            "removed": list(self.removed),
            "gaps": [each._asdict() for each in self.gaps],
            "dead_letters": [each._asdict() for each in self.dead_letters],
            "schema": self.schema,
            "details": self.details,
            "ends": [[topic, partition, end] for (topic, partition), end in sorted(self.ends.items())],
            "topic_ids": dict(sorted(self.topic_ids.items())),
            "recreated": [each._asdict() for each in self.recreated],
            "total": None if self.total is None else self.total._asdict(),
        }

    @classmethod
    def from_json(cls, fields: Any, origin: str) -> "Commit":
        """Read a commit.

        Arguments:
            fields: what `to_json` returned.
            origin: of the object, for errors.

        Raises:
            DamagedTableError: it is not a commit, or one of a newer version.
        """
        if not isinstance(fields, dict):
            raise DamagedTableError(f"{origin}: the commit cannot be read: it is no JSON object")
        if fields.get("format") != FORMAT:
            raise DamagedTableError(
                f"{origin}: the commit has format {fields.get('format')!r}, this version of kafkalite reads {FORMAT}; "
                "use the version that wrote it"
            )
        try:
            ids, total = fields.get("topic_ids", {}), fields.get("total")
            return cls(
                sequence=fields["sequence"],
                query_id=fields["query_id"],
                batch_id=fields["batch_id"],
                ranges=tuple(CommittedRange(**each, topic_id=ids.get(each["topic"])) for each in fields["ranges"]),
                files=tuple(DataFile.from_json(each) for each in fields["files"]),
                ends={TopicPartition(topic, partition): end for topic, partition, end in fields["ends"]},
                gaps=tuple(Gap(**each) for each in fields["gaps"]),
                removed=tuple(fields["removed"]),
                dead_letters=tuple(DataFile.from_json(each) for each in fields.get("dead_letters", ())),
                schema=fields.get("schema"),
                details=fields.get("details"),
                topic_ids=dict(ids),
                recreated=tuple(Recreation(**each) for each in fields.get("recreated", ())),
                total=None if total is None else QueryTotal(**total),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedTableError(f"{origin}: the commit cannot be read: {error!r}") from error


class Replacement(NamedTuple):
    """What a compaction or a repair asks a table to commit: other files with the same rows.

    Attributes:
        files: the new ones; they are in `ManifestTable.compactions`, flushed.
        removed: names of the files that they replace, also of dead letters.
        dead_letters: new files with records that could not be decoded.
    """

    files: tuple[DataFile, ...]
    removed: tuple[str, ...]
    dead_letters: tuple[DataFile, ...] = ()


class CommitResult(NamedTuple):
    """What became of a batch.

    Attributes:
        sequence: of the commit that contains it; -1 = the batch has no offsets.
        repeated: the batch was in the table before, nothing was changed.
    """

    sequence: int
    repeated: bool


class Recovery(NamedTuple):
    """What `Table.recover` has done.

    Attributes:
        published: files of the last commit that were made visible.
        removed: attempts that no commit needs.
    """

    published: int
    removed: int


class Table(Protocol):
    """A table that contains each offset of its topics once. Formats: plain Parquet, Delta, Iceberg."""

    @property
    def location(self) -> str:
        """Directory of the table."""
        ...

    @property
    def attempts(self) -> str:
        """Directory where workers write the files of a batch, under the names that they will have in the table."""
        ...

    def recover(self) -> Recovery:
        """Repeat what an interrupted commit has left, and remove attempts that no commit needs."""
        ...

    def commit(self, batch: Batch) -> CommitResult:
        """Add a batch, all or nothing. Raises CommitRefusedError: it does not continue the table."""
        ...

    def last_commit(self) -> Commit | None:
        """The last commit; None = the table is empty."""
        ...

    def end_offsets(self) -> EndOffsets:
        """The offsets where a query continues the table."""
        ...

    def commits(self) -> list[Commit]:
        """All commits that the table remembers, in order."""
        ...

    def schema_text(self) -> str | None:
        """The schema of the last commit that has one, as text of Spark's DDL."""
        ...

    def files(self) -> list[str]:
        """Paths of the committed files."""
        ...

    def dead_letter_files(self) -> list[str]:
        """Paths of the committed files with records that could not be decoded."""
        ...


def _without_id(each: CommittedRange) -> dict[str, Any]:
    """The fields of a range in a commit, which has the ids of its topics once."""
    fields = each._asdict()
    del fields["topic_id"]
    return fields


def batch_name(query_id: str, batch_id: int) -> str:
    """Return the part of the names of a batch's files that other batches do not have, see `batch_of_attempt`."""
    return f"{batch_id:010}-{query_id}"


def batch_of_attempt(name: str, query_id: str) -> int | None:
    """Return the batch that has written an attempt; None = it is not one of the query.

    Arguments:
        name: of the file, `part-BATCH-QUERY-....parquet`.
        query_id: of the query.
    """
    found = re.match(rf"[a-z]+-(\d+)-{re.escape(query_id)}-", name)
    return None if found is None else int(found[1])


def dead_letter_name(name: str) -> str:
    """Return the name in the table of an attempt that contains dead letters."""
    return f"{DEAD_LETTERS}/{name}"


def hidden_name(name: str) -> str:
    """Return the name in the table of an attempt that contains hidden rows."""
    return f"{HIDDEN}/{name}"


def is_hidden(name: str) -> bool:
    """Whether the rows of a file of a table are hidden.

    Arguments:
        name: of the file, see `DataFile`.
    """
    return name.startswith(f"{HIDDEN}/")


def merge_ranges(ranges: Iterable[CommittedRange]) -> list[CommittedRange]:
    """Join the adjacent ranges of each partition, sorted by partition and offset. Empty ranges are dropped."""
    joined: list[CommittedRange] = []
    for each in sorted(ranges):
        last = joined[-1] if joined else None
        if each.start == each.end:
            continue
        if last is None or last.name != each.name or last.end != each.start:
            joined.append(each)
            continue
        lowest = [value for value in (last.min_timestamp_ms, each.min_timestamp_ms) if value is not None]
        highest = [value for value in (last.max_timestamp_ms, each.max_timestamp_ms) if value is not None]
        joined[-1] = last._replace(
            end=each.end,
            rows=last.rows + each.rows,
            min_timestamp_ms=min(lowest, default=None),
            max_timestamp_ms=max(highest, default=None),
        )
    return joined
