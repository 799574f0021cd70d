"""A table of plain Parquet files. Its commits are JSON files in `_commits`.

    TABLE/part-....parquet             committed files; any Parquet reader reads the directory
    TABLE/_dead_letters/dead-....parquet   committed records that could not be decoded; readers do not list it
    TABLE/_hidden/part-....parquet     committed files of a table of the latest state that only its job reads
    TABLE/_commits/00000000000000000000.json   one for each commit, with the offsets it contains
    TABLE/_commits/00000000000000000499.snapshot   the state after a commit, see `snapshots`
    TABLE/_attempts/                   files of batches that are not committed; Spark and pyarrow do not list it
    TABLE/_recovered/                  attempts that a start has found, until it knows that no commit needs them
    TABLE/_compactions/                files of a compaction or a repair that is not committed, and its lock
    TABLE/_replaced/                   files that a compaction has replaced, for readers that have begun before

Invariants:
1. A commit exists or not: its file is written and flushed under `_attempts`, and a hard link gives it its number. The
   link fails if the number exists, so of two writers one commits. It then evaluates the batch again.
2. A file of a batch is flushed before the commit that names it. After the commit, a hard link publishes it; then its
   attempt is removed. Each step may be repeated, by any process.
3. A commit is published completely before the next one is created. So only the last one can be unfinished.
4. An attempt is removed only if no commit needs it, and none can be created that does. A commit is prepared as a file
   first, then its attempts are verified, then it is linked. A start moves all attempts into `_recovered` first, then
   removes prepared commits, then reads the commits. A commit that is linked after that was prepared after the removal,
   so it was verified after the move, and has found that its attempts are missing. A commit removes the other attempts
   of its query up to its batch, those of failed and speculative tasks: no commit that names them can be created any
   more, as a batch that is in the table is skipped. Attempts of other queries, and of later batches, stay.
5. A commit that another process or an earlier incarnation has created may not be durable yet: its directory is flushed
   before its files are published, since published files without a commit would be visible for ever.
6. A commit that replaces files makes them invisible, durably, before it publishes the new ones. So a plain reader may
   miss their rows for a moment, and never sees one twice.
7. `_compactions` is changed by the process that holds its lock only: a job that starts removes attempts, but no file of
   a compaction.
"""

import json
import os
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pyspark_kafkalite.tables import commit_rules, snapshots
from pyspark_kafkalite.tables.disk import Disk
from pyspark_kafkalite.tables.errors import DamagedTableError, TableError, UnsupportedFileSystemError
from pyspark_kafkalite.tables.locations import (
    ATTEMPTS,
    COMMITS,
    COMPACTIONS,
    RECOVERED,
    REPLACED,
    exists,
    find,
    local_directory,
    parquet_files,
)
from pyspark_kafkalite.tables.model import (
    NO_COMMIT,
    Batch,
    Commit,
    CommitResult,
    DataFile,
    EndOffsets,
    Recovery,
    Replacement,
    batch_of_attempt,
    is_hidden,
)
from pyspark_kafkalite.tables.state import StateBuilder, TableState

SEQUENCE_DIGITS = 20
LOCK = "lock"
PREPARED = ".json"
"""End of the name of a commit that is not linked yet, among the attempts."""


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
        self._root = local_directory(location)
        self._commits = self._root / COMMITS
        self._attempts = self._root / ATTEMPTS
        self._recovered = self._root / RECOVERED
        self._compactions = self._root / COMPACTIONS
        self._replaced = self._root / REPLACED
        self._published = NO_COMMIT
        if not create and not self._commits.is_dir():
            raise TableError(f"table {self._root}: there is no directory {COMMITS}; it is not a table of kafkalite")
        for directory in (self._commits, self._attempts) if create else ():
            self._disk.make_directory(directory)
        read = snapshots.load(self._commits)
        self._snapshot = read.sequence
        self._builder = StateBuilder(read)
        listed = self._listed()
        self._refresh()
        self._check_complete(listed)
        if create and self._state.last is None:
            self._check_new()

    @property
    def location(self) -> str:
        """Directory of the table."""
        return str(self._root)

    @property
    def attempts(self) -> str:
        """Directory where workers write the files of a batch, see `write_attempt`."""
        return str(self._attempts)

    @property
    def compactions(self) -> str:
        """Directory where a compaction writes its files, see `compacting`."""
        return str(self._compactions)

    @property
    def _state(self) -> TableState:
        return self._builder.state

    # writers

    def recover(self) -> Recovery:
        """Publish the files of the last commit, and remove attempts that no commit needs.

        A writer calls it once, before its first batch. Attempts of another writer are removed, too: its commit fails,
        unless it was created before.

        Raises:
            DamagedTableError: a file of the last commit is missing.
        """
        moved = self._move_attempts()
        prepared = [self._attempts / name for name in sorted(os.listdir(self._attempts)) if name.endswith(PREPARED)]
        for path in prepared:
            self._disk.remove(path)
        self._refresh()
        published = self._publish_last()
        removed = [path for path in moved if path.exists()]
        for path in removed:
            self._disk.remove(path)
        self._write_snapshot()
        return Recovery(published, len(removed) + len(prepared))

    def _move_attempts(self) -> list[Path]:
        """Move the attempts into `_recovered`; returns them, with those of an interrupted start."""
        names = [name for name in sorted(os.listdir(self._attempts)) if not name.endswith(PREPARED)]
        earlier = os.listdir(self._recovered) if self._recovered.is_dir() else []
        if names:
            self._disk.make_directory(self._recovered)
        for name in names:
            with suppress(FileExistsError, FileNotFoundError):  # moved before, or published by its writer
                self._disk.link(self._attempts / name, self._recovered / name)
        if names:
            self._disk.flush_directory(self._recovered)
        for name in names:
            self._disk.remove(self._attempts / name)
        return [self._recovered / name for name in sorted({*earlier, *names})]

    def commit(self, batch: Batch) -> CommitResult:
        """Add a batch to the table. A batch that is in the table is skipped; its new attempts are removed.

        Arguments:
            batch: its files are in `attempts`, flushed.

        Raises:
            CommitRefusedError: the batch does not continue the table, which is unchanged.
            DamagedTableError: an attempt is missing or has another size.
            OSError: as of the file system. Whether the batch was committed is unknown: commit it again.
        """
        ranges = commit_rules.ranges_of(batch, self.location)
        commit_rules.check_rows(batch)
        while True:
            self._refresh()
            self._publish_last()
            state = self._state
            if not ranges:
                return CommitResult(NO_COMMIT, repeated=False)
            earlier = self._find(batch.query_id, batch.batch_id)
            if commit_rules.is_repeated(earlier, batch, ranges, self.location) and earlier is not None:
                self._remove_attempts(batch)
                return CommitResult(earlier.sequence, repeated=True)
            commit_rules.check_owner(state.appended, batch, self.location)
            if self._added(commit_rules.next_batch(state.last, batch, ranges, self.location)):
                self._remove_attempts(batch)
                return CommitResult(self._state.sequence, repeated=False)

    @contextmanager
    def compacting(self) -> Iterator[None]:
        """Reserve the compaction of the table for this process, and remove files that an interrupted one has left.

        Raises:
            TableError: another process compacts the table.
        """
        with self._locked():
            self._publish_last()
            self._remove_compactions()
            yield

    @contextmanager
    def repairing(self) -> Iterator[None]:
        """Do what `compacting` does, for a table whose last commit may have lost files: those that exist are published.

        Raises:
            TableError: another process compacts or repairs the table.
        """
        with self._locked():
            self._publish_last(damaged=True)
            self._remove_compactions()
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._disk.make_directory(self._compactions)
        with ExitStack() as stack:
            try:
                stack.enter_context(self._disk.lock(self._compactions / LOCK))
            except BlockingIOError:
                raise TableError(
                    f"table {self.location}: another process compacts or repairs it; try again later"
                ) from None
            self._refresh()
            yield

    def _remove_compactions(self) -> None:
        for name in sorted(os.listdir(self._compactions)):
            if name != LOCK:
                self._disk.remove(self._compactions / name)

    def replace(self, replacement: Replacement) -> int:
        """Replace files by others with the same rows; call it within `compacting`. Batches of a job may be committed
        meanwhile. Returns the number of the commit.

        Raises:
            CommitRefusedError: a file that is replaced is not in the table. DamagedTableError: a new file is missing.
            OSError: as of the file system. Whether the files were replaced is unknown; the table is correct.
        """
        while True:
            self._refresh()
            self._publish_last()
            commit = commit_rules.replacing_commit(self._state, replacement, self.location)
            if self._added(commit):
                return commit.sequence

    def remove_replaced(self, retention_s: float) -> int:
        """Remove the files that were replaced that many seconds ago; returns their number. Raises OSError."""
        removed = 0
        for path in sorted(self._replaced.iterdir()) if self._replaced.is_dir() else ():
            if path.stat().st_ctime <= time.time() - retention_s:  # its other name was removed then
                self._disk.remove(path)
                removed += 1
        return removed

    def _added(self, commit: Commit) -> bool:
        """Create a commit and publish it, unless its number exists; returns whether it was created."""
        if not self._create(commit):
            return False
        self._builder.apply(commit)
        self._publish(commit)
        self._write_snapshot()
        return True

    def _write_snapshot(self) -> None:
        if self._state.sequence - self._snapshot >= snapshots.EVERY:
            snapshots.write(self._commits, self._attempts, self._state, self._disk)
            self._snapshot = self._state.sequence

    def _create(self, commit: Commit) -> bool:
        """Create the file of a commit, unless its number exists; returns whether it was created."""
        content = json.dumps(commit.to_json(), separators=(",", ":")).encode()
        written = self._attempts_of(commit) / f"{commit.sequence}-{uuid.uuid4().hex}{PREPARED}"
        self._disk.write(written, content)
        try:
            self._check_attempts(self._attempts_of(commit), commit.attempts)
            self._disk.link(written, self._commit_path(commit.sequence))
        except DamagedTableError:
            if not self._commit_path(commit.sequence).exists():
                raise
            return False  # the same batch was committed by another driver of its query, which has removed the attempts
        except FileNotFoundError:
            raise DamagedTableError(
                f"table {self.location}: another writer has recovered the table; nothing was committed; stop one of "
                "them"
            ) from None
        except FileExistsError:
            if not os.path.samefile(written, self._commit_path(commit.sequence)):  # NFS: the reply may have been lost
                return False
        finally:
            self._disk.remove(written)
        self._disk.flush_directory(self._commits)
        return True

    def _publish_last(self, *, damaged: bool = False) -> int:
        """Publish the last commit, unless this object has done so; a `damaged` one without its lost files."""
        last = self._state.last
        if last is None or self._published == last.sequence:
            return 0
        self._disk.flush_directory(self._commits)
        return self._publish(last, self.lost_files() if damaged else ())

    def _publish(self, commit: Commit, lost: Collection[DataFile] = ()) -> int:
        """Make the files of a commit visible, and those that it replaces invisible; returns how many it has linked."""
        self._hide(commit)
        linked = [each for each in commit.attempts if each not in lost and self._link(each, commit)]
        for directory in sorted({(self._root / each.name).parent for each in linked}):
            self._disk.flush_directory(directory)
        for each in commit.attempts:
            for attempt in (path for path in self._sources(each, commit) if path.exists()):
                self._disk.remove(attempt)
        self._published = commit.sequence
        return len(linked)

    def _hide(self, commit: Commit) -> None:
        """Make replaced files invisible, durably; those that a compaction has replaced are kept in `_replaced`."""
        paths = [self._root / name for name in commit.removed]
        if commit.replaces:
            self._disk.make_directory(self._replaced)
            for path in (each for each in paths if each.exists()):
                self._keep(path)
            self._disk.flush_directory(self._replaced)
        for path in (each for each in paths if each.exists()):
            self._disk.remove(path)
        for directory in sorted({path.parent for path in paths if path.parent.is_dir()}):
            self._disk.flush_directory(directory)  # also if an interrupted process has removed them

    def _keep(self, path: Path) -> None:
        try:
            self._disk.link(path, self._replaced / path.name)
        except FileExistsError:
            return  # an interrupted process has linked it
        except FileNotFoundError:
            return  # another process has just made it invisible

    def _link(self, file: DataFile, commit: Commit) -> bool:
        """Publish a file; returns whether its directory is to be flushed: its attempt exists."""
        target = self._root / file.name
        if target.parent != self._root:
            self._disk.make_directory(target.parent)
        for attempt in self._sources(file, commit):
            try:
                self._disk.link(attempt, target)
            except FileExistsError:
                return True  # the link may not be durable yet
            except FileNotFoundError:
                continue
            return True
        if not target.exists() and not self._commit_path(commit.sequence + 1).exists():
            raise DamagedTableError(
                f"table {self.location}: file {file.name} of its last commit is missing, in the table and in "
                f"{self._attempts_of(commit).name}; restore it, or read its records from the topic again: "
                "kafkalite pipeline repair"
            )
        return False

    def _sources(self, file: DataFile, commit: Commit) -> tuple[Path, ...]:
        """Where a file is before it is published; a start moves attempts from the first to the second directory."""
        return tuple(each / Path(file.name).name for each in (self._attempts_of(commit), self._recovered))

    def _remove_attempts(self, batch: Batch) -> None:
        """Remove the attempts of a batch that is in the table and published, and those of its query before it."""
        names = {Path(each.name).name for each in batch.attempts}
        for name in sorted(os.listdir(self._attempts)):
            written = batch_of_attempt(name, batch.query_id)
            if name in names or (written is not None and written <= batch.batch_id):
                self._disk.remove(self._attempts / name)

    def _attempts_of(self, commit: Commit) -> Path:
        """Where the files of a commit are before they are published."""
        return self._compactions if commit.replaces else self._attempts

    # readers

    def last_commit(self) -> Commit | None:
        """The last commit; None = the table is empty."""
        self._refresh()
        return self._state.last

    def commits(self) -> list[Commit]:
        """All commits, in order, read from their files: `state` is faster."""
        self._refresh()
        commits = (self._load(sequence) for sequence in range(self._state.sequence + 1))
        return [each for each in commits if each is not None]

    def state(self) -> TableState:
        """The state after the last commit."""
        self._refresh()
        return self._builder.frozen()

    def end_offsets(self) -> EndOffsets:
        """The end of each partition: where a query with a new checkpoint continues (`resume_from_table`)."""
        self._refresh()
        return dict(self._state.ends)

    def schema_text(self) -> str | None:
        """The schema of the last commit that has one, as text of Spark's DDL."""
        return self.state().schema

    def files(self) -> list[str]:
        """Paths of the committed files, also of those that are not published yet. A compaction may move them.

        Hidden ones (`is_hidden`) are left out.
        """
        return [str(find(self._root, name)) for name in self.state().files if not is_hidden(name)]

    def dead_letter_files(self) -> list[str]:
        """Paths of the committed files with records that could not be decoded."""
        return [str(find(self._root, name)) for name in self.state().dead_letters]

    def lost_files(self) -> list[DataFile]:
        """The committed files that do not exist anywhere, also those of dead letters."""
        state = self.state()
        return [
            each for each in (*state.files.values(), *state.dead_letters.values()) if not exists(self._root, each.name)
        ]

    # state

    def _refresh(self) -> None:
        """Read the commits that are new."""
        while (commit := self._load(self._state.sequence + 1)) is not None:
            self._builder.apply(commit)

    def _listed(self) -> str | None:
        """The name of the last commit that exists."""
        return max((name for name in os.listdir(self._commits) if name.endswith(".json")), default=None)

    def _check_complete(self, last: str | None) -> None:
        """Verify that no commit is missing below one that existed before the commits were read."""
        if last is not None and last > self._commit_path(self._state.sequence).name:
            missing = self._commit_path(self._state.sequence + 1).name
            raise DamagedTableError(
                f"table {self.location}: commit {missing} is missing, but {last} exists; restore it from a copy"
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
        if self._state.batches.get(query_id, NO_COMMIT) < batch_id:
            return None
        last = self._state.appended
        if last is not None and (last.query_id, last.batch_id) == (query_id, batch_id):
            return last
        commits = (each for each in self.commits() if not each.replaces)
        return next((each for each in commits if (each.query_id, each.batch_id) == (query_id, batch_id)), None)

    def _check_attempts(self, directory: Path, files: tuple[DataFile, ...]) -> None:
        for each in files:
            path = directory / Path(each.name).name
            size = path.stat().st_size if path.exists() else None
            if size != each.bytes:
                raise DamagedTableError(
                    f"table {self.location}: attempt {each.name} has "
                    f"{'no file' if size is None else f'{size} bytes'}, expected {each.bytes} bytes; another writer "
                    "has recovered the table, or workers see another file system; nothing was committed"
                )

    def _check_new(self) -> None:
        """Reject a file system without hard links, and a directory with files of others."""
        for path in parquet_files(self._root):
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
