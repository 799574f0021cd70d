"""A table of plain Parquet files. Its commits are JSON files in `_commits`.

    TABLE/part-....parquet             committed files; any Parquet reader reads the directory
    TABLE/_dead_letters/dead-....parquet   committed records that could not be decoded; readers do not list it
    TABLE/_commits/00000000000000000000.json   one for each commit, with the offsets it contains
    TABLE/_attempts/                   files of batches that are not committed; Spark and pyarrow do not list it

Invariants:
1. A commit exists or not: its file is written and flushed under `_attempts`, and a hard link gives it its number. The
   link fails if the number exists, so of two writers one commits. It then evaluates the batch again.
2. A file of a batch is flushed before the commit that names it. After the commit, a hard link publishes it; then its
   attempt is removed. Each step may be repeated, by any process.
3. A commit is published completely before the next one is created. So only the last one can be unfinished.
4. An attempt is removed only if no commit needs it.
5. A commit that another process or an earlier incarnation has created may not be durable yet: its directory is flushed
   before its files are published, since published files without a commit would be visible for ever.
"""

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from pyspark_kafkalite.tables import rules
from pyspark_kafkalite.tables.disk import Disk
from pyspark_kafkalite.tables.errors import DamagedTableError, TableError, UnsupportedFileSystemError
from pyspark_kafkalite.tables.model import NO_COMMIT, Batch, Commit, CommitResult, DataFile, EndOffsets, Recovery

COMMITS = "_commits"
ATTEMPTS = "_attempts"
SEQUENCE_DIGITS = 20


class ManifestTable:
    """A table of plain Parquet files on a file system with hard links.

        table = ManifestTable("/data/orders")
        table.recover()
        table.commit(batch)

    Arguments:
        location: directory of the table; it is created.
        create: a table that does not exist is created; readers do not.
        disk: file operations; another one in tests.

    Raises:
        UnsupportedFileSystemError: the file system has no hard links. DamagedTableError: a commit is missing or cannot
            be read. TableError: the directory contains Parquet files but no commits; or there is no table to read.
    """

    def __init__(self, location: str | os.PathLike[str], *, create: bool = True, disk: Disk | None = None) -> None:
        self._disk = disk or Disk()
        self._root = _local(location)
        self._commits = self._root / COMMITS
        self._attempts = self._root / ATTEMPTS
        self._read: list[Commit] = []
        self._published = NO_COMMIT
        if not create and not self._commits.is_dir():
            raise TableError(f"table {self._root}: there is no directory {COMMITS}; it is not a table of kafkalite")
        for directory in (self._commits, self._attempts) if create else ():
            self._disk.make_directory(directory)
        self._refresh()
        self._check_complete()
        if create and not self._read:
            self._check_new()

    @property
    def location(self) -> str:
        """Directory of the table."""
        return str(self._root)

    @property
    def attempts(self) -> str:
        """Directory where workers write the files of a batch, see `write_attempt`."""
        return str(self._attempts)

    # writers

    def recover(self) -> Recovery:
        """Publish the files of the last commit, and remove attempts that no commit needs.

        A writer calls it once, before its first batch. Attempts of another writer are removed, too: its commit fails.

        Raises:
            DamagedTableError: a file of the last commit is missing.
        """
        self._refresh()
        published = self._publish_last()
        removed = [self._attempts / name for name in sorted(os.listdir(self._attempts))]
        for path in removed:
            self._disk.remove(path)
        return Recovery(published, len(removed))

    def commit(self, batch: Batch) -> CommitResult:
        """Add a batch to the table. A batch that is in the table is skipped; its new attempts are removed.

        Arguments:
            batch: its files are in `attempts`, flushed.

        Raises:
            CommitRefusedError: the batch does not continue the table, which is unchanged.
            DamagedTableError: an attempt is missing or has another size.
            OSError: as of the file system. Whether the batch was committed is unknown: commit it again.
        """
        ranges = rules.ranges_of(batch, self.location)
        rules.check_rows(batch)
        while True:
            self._refresh()
            self._publish_last()
            last = self._read[-1] if self._read else None
            if not ranges:
                return CommitResult(NO_COMMIT, repeated=False)
            earlier = self._find(batch.query_id, batch.batch_id)
            if rules.is_repeated(earlier, batch, ranges, self.location) and earlier is not None:
                self._discard(batch, earlier)
                return CommitResult(earlier.sequence, repeated=True)
            rules.check_owner(last, batch, self.location)
            gaps = rules.check_continuity({} if last is None else last.ends, batch, ranges, self.location)
            self._check_attempts(batch)
            commit = rules.next_commit(last, batch, ranges, gaps)
            if self._create(commit):
                self._read.append(commit)
                self._publish(commit)
                return CommitResult(commit.sequence, repeated=False)

    def _create(self, commit: Commit) -> bool:
        """Create the file of a commit, unless its number exists; returns whether it was created."""
        content = json.dumps(commit.to_json(), separators=(",", ":")).encode()
        written = self._attempts / f"{commit.sequence}-{uuid.uuid4().hex}.json"
        self._disk.write(written, content)
        try:
            self._disk.link(written, self._commit_path(commit.sequence))
        except FileExistsError:
            if not os.path.samefile(written, self._commit_path(commit.sequence)):  # NFS: the reply may have been lost
                return False
        finally:
            self._disk.remove(written)
        self._disk.flush_directory(self._commits)
        return True

    def _publish_last(self) -> int:
        """Publish the last commit, unless this object has done so."""
        if not self._read or self._published == self._read[-1].sequence:
            return 0
        self._disk.flush_directory(self._commits)
        return self._publish(self._read[-1])

    def _publish(self, commit: Commit) -> int:
        """Make the files of a commit visible, and those that it replaces invisible; returns how many it has linked."""
        linked = [each for each in commit.attempts if self._link(each)]
        directories = {(self._root / each.name).parent for each in linked}
        for path in [self._root / name for name in commit.removed]:
            if path.exists():
                self._disk.remove(path)
                directories.add(path.parent)
        for directory in sorted(directories):
            self._disk.flush_directory(directory)
        for each in commit.attempts:
            if (attempt := self._attempt_path(each)).exists():
                self._disk.remove(attempt)
        self._published = commit.sequence
        return len(linked)

    def _link(self, file: DataFile) -> bool:
        """Publish a file; returns whether its directory is to be flushed: its attempt exists."""
        attempt, target = self._attempt_path(file), self._root / file.name
        if target.parent != self._root:
            self._disk.make_directory(target.parent)
        try:
            self._disk.link(attempt, target)
        except FileExistsError:
            return True  # the link may not be durable yet
        except FileNotFoundError:
            if not target.exists():
                raise DamagedTableError(
                    f"table {self.location}: file {file.name} of its last commit is missing, in the table and in "
                    f"{ATTEMPTS}; restore it, or create the table again"
                ) from None
            return False
        return True

    def _discard(self, batch: Batch, earlier: Commit) -> None:
        """Remove the attempts of a repeated batch."""
        needed = {each.name for each in earlier.attempts}
        for each in batch.attempts:
            if each.name not in needed:
                self._disk.remove(self._attempt_path(each))

    # readers

    def last_commit(self) -> Commit | None:
        """The last commit; None = the table is empty."""
        self._refresh()
        return self._read[-1] if self._read else None

    def commits(self) -> list[Commit]:
        """All commits, in order."""
        self._refresh()
        return list(self._read)

    def end_offsets(self) -> EndOffsets:
        """The end of each partition: where a query with a new checkpoint continues (`resume_from_table`)."""
        last = self.last_commit()
        return {} if last is None else dict(last.ends)

    def schema_text(self) -> str | None:
        """The schema of the last commit that has one, as text of Spark's DDL."""
        return next((each.schema for each in reversed(self.commits()) if each.schema is not None), None)

    def files(self) -> list[str]:
        """Paths of the committed files, also of those that are not published yet."""
        self._refresh()
        removed = {name for commit in self._read for name in commit.removed}
        files = [(each, commit) for commit in self._read for each in commit.files if each.name not in removed]
        return [str(self._visible_path(*each)) for each in files]

    def dead_letter_files(self) -> list[str]:
        """Paths of the committed files with records that could not be decoded."""
        self._refresh()
        files = [(each, commit) for commit in self._read for each in commit.dead_letters]
        return [str(self._visible_path(*each)) for each in files]

    def _visible_path(self, file: DataFile, commit: Commit) -> Path:
        """Where a committed file is; its attempt is removed only after it was published."""
        attempt = self._attempt_path(file)
        if commit is self._read[-1] and attempt.exists():
            return attempt
        return self._root / file.name

    # state

    def _refresh(self) -> None:
        """Read the commits that are new."""
        while (commit := self._load(len(self._read))) is not None:
            self._read.append(commit)

    def _check_complete(self) -> None:
        """Verify that no commit is missing below the last one."""
        last = max((name for name in os.listdir(self._commits) if name.endswith(".json")), default=None)
        if last is not None and last > self._commit_path(len(self._read) - 1).name:
            raise DamagedTableError(
                f"table {self.location}: commit {self._commit_path(len(self._read)).name} is missing, but {last} "
                "exists; restore it from a copy"
            )

    def _load(self, sequence: int) -> Commit | None:
        path = self._commit_path(sequence)
        try:
            fields = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DamagedTableError(f"{path}: the commit cannot be read: {error}") from error
        return Commit.from_json(fields, str(path))

    def _find(self, query_id: str, batch_id: int) -> Commit | None:
        """The commit of a batch; a repeated batch is nearly always the last one."""
        found = (each for each in reversed(self._read) if (each.query_id, each.batch_id) == (query_id, batch_id))
        return next(found, None)

    def _check_attempts(self, batch: Batch) -> None:
        for each in batch.attempts:
            path = self._attempt_path(each)
            size = path.stat().st_size if path.exists() else None
            if size != each.bytes:
                raise DamagedTableError(
                    f"table {self.location}: attempt {each.name} of batch {batch.batch_id} has "
                    f"{'no file' if size is None else f'{size} bytes'}, expected {each.bytes} bytes; another writer "
                    "has recovered the table, or workers see another file system; nothing was committed"
                )

    def _check_new(self) -> None:
        """Reject a file system without hard links, and a directory with files of others."""
        for path in _parquet_files(self._root):
            raise TableError(
                f"table {self.location}: {path.relative_to(self._root)} belongs to no commit: the directory was not "
                "written by kafkalite; use an empty directory"
            )
        probe, second = (self._attempts / f"{name}-{uuid.uuid4().hex}" for name in ("probe", "link"))
        self._disk.write(probe, b"")
        try:
            self._disk.link(probe, second)
        except OSError as error:
            raise UnsupportedFileSystemError(
                f"table {self.location}: its file system has no hard links ({error.strerror}); write a Delta table "
                "there: pyspark_kafkalite.tables.delta"
            ) from error
        finally:
            self._disk.remove(probe)
            self._disk.remove(second)

    def _commit_path(self, sequence: int) -> Path:
        return self._commits / f"{sequence:0{SEQUENCE_DIGITS}}.json"

    def _attempt_path(self, file: DataFile) -> Path:
        return self._attempts / Path(file.name).name


def _local(location: str | os.PathLike[str]) -> Path:
    text = os.fspath(location)
    scheme, separator, rest = text.partition("://")
    if separator and scheme != "file":
        raise UnsupportedFileSystemError(
            f"table {text}: {scheme} has no hard links, expected a directory of a mounted file system"
        )
    return Path(rest if separator else text).absolute()


def _parquet_files(root: Path) -> Iterator[Path]:
    """Files that a plain reader of the directory would read."""
    for directory, names, files in os.walk(root):
        names[:] = [each for each in names if not each.startswith(("_", "."))]
        yield from (Path(directory, each) for each in sorted(files) if each.endswith(".parquet"))
