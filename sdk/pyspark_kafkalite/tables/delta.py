"""A Delta table whose commits contain offsets, through `deltalake`: no jar.

Invariants, besides those of `table_commit`:
1. Each commit sets the application transaction `kafkalite` to its number, so of two writers at one version one commits:
   Delta rejects a second change of one application id. The batch is also the transaction of its query, as Spark's own
   Delta sink writes it.
2. Ranges and ends are metadata of the commit. Commits of others, such as `optimize`, may be between ours.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from pyspark_kafkalite.tables.ddl import parse_ddl
from pyspark_kafkalite.tables.errors import DamagedTableError, TableError, UnsupportedFileSystemError
from pyspark_kafkalite.tables.model import NO_COMMIT, Batch, Commit, DataFile
from pyspark_kafkalite.tables.table_commit import COLUMNS, LibraryTable

APPLICATION = METADATA = "kafkalite"
RECENT = 20  # commits of the history that are read first


class DeltaOffsetTable(LibraryTable[DeltaTable]):
    """A Delta table on a mounted file system; hard links are not needed.

    Delta's VACUUM removes the files of failed attempts.

    Arguments:
        location: directory of the table; it is created.
        schema: of the table, if it cannot grow; None = columns are added with the first batch that has them.

    Raises:
        TableError: the table has another schema. UnsupportedFileSystemError: the location is a URL.
    """

    conflict = CommitFailedError

    def __init__(self, location: str | os.PathLike[str], schema: pyarrow.Schema | None = None) -> None:
        if "://" in os.fspath(location):
            raise UnsupportedFileSystemError(f"table {location}: expected a directory; URLs are not supported")
        root = Path(location).absolute()
        super().__init__(root, str(root))
        self._schema = schema
        self._known: tuple[int, str | None] = NO_COMMIT, None  # the number of a commit, and the schema after it
        if not DeltaTable.is_deltatable(self.location):
            DeltaTable.create(self.location, parse_ddl(COLUMNS) if schema is None else schema)
        if schema is not None:
            self._check_schema(schema.names)

    def _open(self) -> DeltaTable:
        return DeltaTable(self.location)

    def _version(self, table: DeltaTable) -> object:
        return table.version()

    def compact(self, target_bytes: int) -> int:
        """Replace small files by larger ones through Delta's `optimize`; returns how many it has replaced.

        Offsets are metadata of other commits, so they stay. VACUUM removes the replaced files.
        """
        metrics = DeltaTable(self.location).optimize.compact(target_size=target_bytes)
        return int(metrics["numFilesRemoved"])

    def files(self) -> list[str]:
        """Paths of the files of the last version."""
        return [uri.removeprefix("file://") for uri in DeltaTable(self.location).file_uris()]

    def commits(self) -> list[Commit]:
        """All commits that are in the log of Delta, in order."""
        return [self._parsed(entry) for entry in reversed(DeltaTable(self.location).history()) if METADATA in entry]

    def schema_text(self) -> str | None:
        """The schema of the last commit that has one, as text of Spark's DDL; the history is read once at most.

        After Delta has removed that commit from its log, it is the schema of the table.
        """
        last = self.last_commit()
        if last is None:
            return None
        if last.schema is not None:
            self._known = last.sequence, last.schema
        elif self._known[0] not in (last.sequence, last.sequence - 1):
            self._known = last.sequence, self._found_schema()
        self._known = last.sequence, self._known[1]
        return self._known[1]

    def _found_schema(self) -> str | None:
        table = DeltaTable(self.location)
        commits = [self._parsed(entry) for entry in table.history() if METADATA in entry]
        return self._schema_of(commits, lambda: pyarrow.schema(table.schema().to_arrow()))

    def _create(self, table: DeltaTable, commit: Commit) -> None:
        """Commit with Delta. Raises CommitFailedError: another commit of kafkalite was first."""
        properties = CommitProperties(
            custom_metadata={METADATA: self._text_of(commit)},
            app_transactions=[
                Transaction(APPLICATION, commit.sequence),
                Transaction(commit.query_id, commit.batch_id),
            ],
        )
        schema = self._grown(table, commit)
        actions = [_action(each) for each in commit.files]
        table.create_write_transaction(actions, "append", schema, commit_properties=properties)

    def _grown(self, table: DeltaTable, commit: Commit) -> pyarrow.Schema:
        """Add the columns that the table lacks: a commit of Delta without rows, which may be repeated."""
        if commit.schema is None and self._schema is not None:
            return self._schema
        schema = parse_ddl(commit.schema or COLUMNS)
        known = {each.name: each for each in table.schema().fields}
        added = []
        for each in Schema.from_arrow(schema).fields:
            if each.name not in known and self._schema is None:
                added.append(each)
            elif each.name not in known or known[each.name].type != each.type:
                raise TableError(
                    f"table {self.location}: the batch has the column {each.name} {each.type}, which the table does "
                    "not have so; Delta adds columns if the table is opened without a schema, but no fields of columns"
                )
        if added:
            table.alter.add_columns(added)
        return schema

    def _last(self, table: DeltaTable) -> Commit | None:
        sequence = table.transaction_version(APPLICATION)
        if sequence is None:
            return None
        for limit in (RECENT, None):
            for entry in table.history(limit):
                if METADATA in entry:
                    return self._parsed(entry)
        raise DamagedTableError(
            f"table {self.location}: commit {sequence} of kafkalite is not in the log of Delta any more, as the log is "
            "kept for delta.logRetentionDuration; restore it, or create the table again with a longer retention"
        )

    def _find(self, table: DeltaTable, last: Commit | None, batch: Batch) -> Commit | None:
        """The commit of a batch; a repeated batch is nearly always the last one."""
        committed = table.transaction_version(batch.query_id)
        if last is None or committed is None or committed < batch.batch_id:
            return None
        if (last.query_id, last.batch_id) == (batch.query_id, batch.batch_id):
            return last
        commits = (self._parsed(entry) for entry in table.history() if METADATA in entry)
        found = (each for each in commits if (each.query_id, each.batch_id) == (batch.query_id, batch.batch_id))
        return next(found, None)

    def _parsed(self, entry: dict[str, Any]) -> Commit:
        return self._commit_of(entry[METADATA], f"version {entry['version']}")

    def _check_schema(self, names: list[str]) -> None:
        found = [each.name for each in DeltaTable(self.location).schema().fields]
        if found != names:
            raise TableError(
                f"table {self.location}: its columns are {', '.join(found)}, expected {', '.join(names)}; "
                "use another directory"
            )


def _action(file: DataFile) -> AddAction:
    statistics = json.dumps({"numRecords": file.rows})
    return AddAction(file.name, file.bytes, {}, int(time.time() * 1000), True, statistics)
