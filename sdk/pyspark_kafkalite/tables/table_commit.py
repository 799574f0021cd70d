"""The commits of a table by a library, with offsets in their metadata: what Delta and Iceberg have in common.

Invariants:
1. The commit of the library decides: files are written into the table's directory and are invisible before.
2. A commit is based on the version that was checked, so of two writers at one version one commits; the other one checks
   again.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from pyspark_kafkalite.tables import commit_rules
from pyspark_kafkalite.tables.attempt_files import AttemptFiles
from pyspark_kafkalite.tables.ddl import ddl_text, normalize_schema
from pyspark_kafkalite.tables.errors import DamagedTableError
from pyspark_kafkalite.tables.model import NO_COMMIT, Batch, Commit, CommitResult, EndOffsets, Recovery

if TYPE_CHECKING:
    import pyarrow

COLUMNS = "_topic string, _partition int, _offset bigint, _timestamp timestamp"
"""Columns of every table."""

T = TypeVar("T")


class LibraryTable(ABC, Generic[T]):
    """A table of a library; `T` is the library's table at one version.

    Arguments:
        root: directory of the files.
        name: of the table, for errors.
    """

    conflict: ClassVar[type[Exception]]
    """What the library raises if another commit was first."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._name = name
        self._files = AttemptFiles(root, name)

    @property
    def location(self) -> str:
        """Directory of the data files."""
        return str(self._root)

    @property
    def attempts(self) -> str:
        """Directory where workers write files; they are in the table when a commit of the library names them."""
        return str(self._root)

    def recover(self) -> Recovery:
        """Publish the dead letters of the last commit. Tools of the library remove the files of failed attempts."""
        last = self.last_commit()
        return Recovery(0 if last is None else self._files.publish_dead_letters(last), 0)

    def commit(self, batch: Batch) -> CommitResult:
        """Add a batch to the table. A batch that is in the table is skipped.

        Raises:
            CommitRefusedError: the batch does not continue the table, which is unchanged. DamagedTableError: an attempt
                is missing or has another size.
        """
        ranges = commit_rules.ranges_of(batch, self._name)
        commit_rules.check_rows(batch)
        if not ranges:
            return CommitResult(NO_COMMIT, repeated=False)
        while True:
            table = self._open_to_commit()
            last = self._last(table)
            if last is not None:
                self._files.publish_dead_letters(last)
            earlier = self._find(table, last, batch)
            if commit_rules.is_repeated(earlier, batch, ranges, self._name) and earlier is not None:
                self._files.discard(batch, earlier)
                return CommitResult(earlier.sequence, repeated=True)
            commit_rules.check_owner(last, batch, self._name)
            commit = commit_rules.next_batch(last, batch, ranges, self._name)
            if self._committed(table, commit):
                self._files.publish_dead_letters(commit)
                return CommitResult(commit.sequence, repeated=False)

    def _committed(self, table: T, commit: Commit) -> bool:
        """Commit; return False if another commit was first."""
        version = self._version(table)
        for each in commit.attempts:
            self._files.check(each)
        try:
            self._create(table, commit)
        except self.conflict:
            if self._version(self._open_to_commit()) == version:
                raise
            return False
        return True

    def last_commit(self) -> Commit | None:
        """The last commit of kafkalite; None = there is none."""
        return self._last(self._open())

    def end_offsets(self) -> EndOffsets:
        """The end of each partition: where a query with a new checkpoint continues (`resume_from_table`)."""
        last = self.last_commit()
        return {} if last is None else dict(last.ends)

    def dead_letter_files(self) -> list[str]:
        """Paths of the committed files with records that could not be decoded."""
        return self._files.dead_letters(self.last_commit())

    @staticmethod
    def _schema_of(commits: Iterable[Commit], of_table: Callable[[], "pyarrow.Schema"]) -> str | None:
        """Return the schema of the last commit that has one; if commits may have expired, the schema of the table.

        Arguments:
            commits: that the library remembers, the last one first.
            of_table: returns the schema of the table.
        """
        first: Commit | None = None
        for first in commits:
            if first.schema is not None:
                return first.schema
        if first is None or first.sequence == NO_COMMIT + 1:
            return None
        return ddl_text(normalize_schema(of_table()))

    @staticmethod
    def _text_of(commit: Commit) -> str:
        """Return a commit as text for the metadata of the library."""
        return json.dumps(commit.to_json(), separators=(",", ":"))

    def _commit_of(self, text: str, version: str) -> Commit:
        """Read a commit from the metadata of a version. Raises DamagedTableError: it cannot be read."""
        origin = f"table {self._name}, {version}"
        try:
            return Commit.from_json(json.loads(text), origin)
        except ValueError as error:
            raise DamagedTableError(f"{origin}: the commit cannot be read: {error}") from error

    @abstractmethod
    def _open(self) -> T:
        """Return the table as it is now."""

    def _open_to_commit(self) -> T:
        """Return the table as it is now, for a commit."""
        return self._open()

    @abstractmethod
    def _version(self, table: T) -> object:
        """Return what differs between two versions of the table."""

    @abstractmethod
    def _last(self, table: T) -> Commit | None:
        """Return the last commit of kafkalite."""

    @abstractmethod
    def _find(self, table: T, last: Commit | None, batch: Batch) -> Commit | None:
        """Return the commit of a batch; a repeated batch is nearly always the last one."""

    @abstractmethod
    def _create(self, table: T, commit: Commit) -> None:
        """Commit with the library. Raises `conflict`: another commit was first."""
