"""A tree whose transactions are written to a journal file, or that is in memory only; sessions are built on it.

1. A transaction is written and synced before it becomes visible: responses, events and reads wait, in order, for the
   transactions that they show. With an `Offload`, writing and syncing is one job at a time; later transactions are
   written with the next job.
2. If the file cannot be written (a full disk), it is truncated, its transactions are undone, and their callers receive
   ConnectionLossError; the service continues. If it cannot be synced or truncated, its content is unknown: the service
   ends. It ends, too, if a transaction that cannot be undone cannot be written.
3. The file is rewritten from the tree, in one atomic step, when it is far larger than the tree: while running only
   after `compact_bytes`, because the tree is encoded on the loop.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.clock import Clock, Offload, Outcome
from kafkalite.coordination import journal
from kafkalite.coordination.backend import Then
from kafkalite.coordination.errors import ConnectionLossError, CoordinationError
from kafkalite.coordination.tree import Operation, SessionRecord, Tree, TreeChange

Pick = Callable[[list[object]], object]
Entry = tuple[int, int, bytes]  # kind, zxid, body of a record

LOGGER = logging.getLogger("kafkalite.coordination")
COMPACT_BYTES = 64 * 1024 * 1024


class JournaledTree:
    """The tree, its journal, and what waits for the journal.

    Arguments:
        clock: for the times of the nodes.
        tree: what there is already.
        file: the journal, or None for a service in memory.
        offload: where the journal is written; None = within the call.
        owed: transactions of the tree that are to be written with the first change.
        version: the format of the journal.
        compact_bytes: size of the journal from which it is rewritten; None = `COMPACT_BYTES`.
        on_failure: called once when the service ends, after the callers that wait have received their errors.

    Attributes:
        tree: the nodes and sessions, with changes that are not durable yet.
        failure: why the service has ended, or None.
    """

    def __init__(
        self,
        clock: Clock,
        tree: Tree | None = None,
        file: "JournalFile | None" = None,
        offload: Offload | None = None,
        owed: Sequence[Entry] = (),
        *,
        version: int = journal.EMBEDDED_FORMAT,
        compact_bytes: int | None = None,
        on_failure: Callable[[], object] | None = None,
    ) -> None:
        self.tree = Tree() if tree is None else tree
        self.failure: BaseException | None = None
        self._clock = clock
        self._file = file
        self._offload = offload
        self._owed = list(owed)
        self._version = version
        self._durable = self.tree.zxid - len(self._owed)
        self._compact_bytes = COMPACT_BYTES if compact_bytes is None else compact_bytes
        self._compact_at = self._compact_bytes
        self._on_failure = on_failure
        self._unwritten: list[Entry] = []
        self._undoable: list[TreeChange] | None = []  # None: one of the changes cannot be undone
        self._writing: list[TreeChange] | None = None
        self._busy = False
        self._waiting: deque[tuple[int, Callable[[Outcome], object], Outcome]] = deque()
        self._delivering = False

    @property
    def durable_zxid(self) -> int:
        """The last transaction that is in the file and flushed."""
        return self._durable

    @property
    def writing(self) -> bool:
        """Whether a job writes the journal."""
        return self._busy

    def close(self) -> None:
        """Close the file. No write may be in progress."""
        if self._file is not None:
            self._file.close()

    # Calls.

    def read(self, read: Callable[[], object], then: Then) -> None:
        """Complete with the result or error of `read` once all state that it can show is durable."""
        if self._has_failed(then):
            return
        try:
            outcome = Outcome(read())
        except CoordinationError as error:
            outcome = Outcome(error=error)
        self._complete(then, outcome)

    def change(self, operations: Sequence[Operation], session: int, pick: Pick, then: Then) -> None:
        """Execute a transaction; `pick` chooses the response from its results."""
        if self._has_failed(then):
            return
        now_ms = self._clock.wall_ms()
        body = journal.encode_multi(operations, session, now_ms)  # what fails here has changed nothing
        changes: list[TreeChange] = []
        try:
            results = self.tree.multi(operations, session, now_ms, changes)
        except CoordinationError as error:
            self._complete(then, Outcome(error=error))
            return
        try:
            outcome = Outcome(pick(list(results)))
        except BaseException:
            self.tree.undo(changes)
            raise
        self._changed(journal.KIND_MULTI, body, changes, then, outcome)

    def change_later(self, operations: Sequence[Operation], session: int) -> None:
        """Execute a transaction now and write it together with the next one; for a start on a full disk.

        Only while nothing is being written. Raises CoordinationError.
        """
        assert not self._busy and not self._unwritten, "a start makes one change after the other"
        now_ms = self._clock.wall_ms()
        self.tree.multi(operations, session, now_ms)
        self._owed.append((journal.KIND_MULTI, self.tree.zxid, journal.encode_multi(operations, session, now_ms)))

    def open_session(self, record: SessionRecord | None, then: Then) -> None:
        """Begin a session; its id."""
        if self._has_failed(then):
            return
        body = journal.encode_record(record)
        changes: list[TreeChange] = []
        session = self.tree.open_session(record, changes)
        self._changed(journal.KIND_OPEN, body, changes, then, Outcome(session))

    def close_session(self, session: int, then: Then) -> None:
        """End a session of the tree, with its ephemeral nodes and its watches; None."""
        if self._has_failed(then):
            return
        body = journal.SESSION.pack(session)
        changes: list[TreeChange] = []
        self.tree.close_session(session, changes)
        self._changed(journal.KIND_CLOSE, body, changes, then, Outcome())

    def _has_failed(self, then: Then) -> bool:
        if self.failure is not None:
            then(Outcome(error=ConnectionLossError(detail=str(self.failure))))
        return self.failure is not None

    # Writing the journal.

    def _changed(self, kind: int, body: bytes, changes: list[TreeChange], then: Then, outcome: Outcome) -> None:
        """Write the last transaction; its events, then `then` with its outcome, follow."""
        self._notify_watchers()
        self._waiting.append((self.tree.zxid, then, outcome))
        if self._file is not None:
            if self._undoable is not None:
                self._undoable += changes
            self._unwritten.append((kind, self.tree.zxid, body))
            self._write()
        else:
            self._undoable = []
            self._durable = self.tree.zxid
        self._deliver()

    def _write(self) -> None:
        """Begin to write the unwritten transactions.

        An exception here would leave a change in the tree that the file lacks, so it ends the service.
        """
        if self._busy or not self._unwritten or self.failure is not None:
            return
        zxid = self.tree.zxid
        try:
            job, data = self._next_write()
            self._unwritten.clear()
            self._writing, self._undoable = self._undoable, []
            self._busy = True
            if self._offload is not None:
                self._offload.run(job, data, done=lambda outcome: self._written(zxid, outcome))
        except BaseException as error:
            self._fail(error)
            raise
        if self._offload is None:
            self._written(zxid, outcome_of_write(job, data))

    def _next_write(self) -> tuple[Callable[[bytes], None], bytes]:
        """Return the job that makes the file equal to the tree, and its argument."""
        assert self._file is not None
        entries = (*self._owed, *self._unwritten)
        data = b"".join(journal.record(kind, zxid, self._durable, body) for kind, zxid, body in entries)
        if self._file.size + len(data) > self._compact_at:
            whole = journal.encode_snapshot(self.tree, self._version)
            self._compact_at = max(self._compact_bytes, len(whole) * 4)
            if len(whole) * 2 < self._file.size:
                return self._file.replace, whole
        return self._file.append, data

    def _written(self, zxid: int, outcome: Outcome) -> None:
        self._busy = False
        if outcome.error is None:
            self._owed.clear()
            self._durable = zxid
            self._write()
            self._deliver()
        elif isinstance(outcome.error, OSError) and self._writing is not None and self._undoable is not None:
            self._undo_unwritten(outcome.error)
        else:
            self._fail(outcome.error)

    def _undo_unwritten(self, error: OSError) -> None:
        """Undo the transactions that could not be written, and the later ones, so that the tree equals the file."""
        assert self._writing is not None and self._undoable is not None
        self.tree.undo([*self._writing, *self._undoable])
        self._unwritten.clear()
        self._undoable = []
        failure = ConnectionLossError(detail=f"the change was undone: {error}")
        failure.__cause__ = error  # the error message of the response contains it
        refused = Outcome(error=failure)
        self._waiting = deque((self.tree.zxid, then, refused) for _, then, _ in self._waiting)
        self._deliver()

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        lost = Outcome(error=ConnectionLossError(detail=f"the journal failed: {error!r}"))
        self._waiting = deque((self._durable, then, lost) for _, then, _ in self._waiting)
        on_failure = self._on_failure
        if on_failure is not None:
            self._waiting.append((self._durable, lambda outcome: on_failure(), lost))
        self._deliver()

    # Delivering results and watches.

    def _complete(self, then: Then, outcome: Outcome) -> None:
        self._waiting.append((self.tree.zxid, then, outcome))
        self._deliver()

    def _notify_watchers(self) -> None:
        for watcher, event in self.tree.take_fired():
            self._waiting.append((self.tree.zxid, lambda outcome, w=watcher, e=event: w(e), Outcome()))  # type: ignore[misc]

    def _deliver(self) -> None:
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._waiting and self._waiting[0][0] <= self._durable + len(self._owed):
                _, then, outcome = self._waiting.popleft()
                then(outcome)
        except BaseException:  # of a callback: it is raised after the other callbacks
            self._delivering = False
            self._deliver()
            raise
        self._delivering = False


# The file.


class SyncFailedError(Exception):
    """The content of the file is unknown; the cause is the OSError."""


class JournalFile:
    """The file of a journal; its methods may run as jobs.

    Arguments:
        disk, path: where it is.
        file: open for writing.
        size: number of valid bytes.
    """

    def __init__(self, disk: Disk, path: str, file: File, size: int) -> None:
        self.size = size
        self._disk = disk
        self._path = path
        self._file = file

    def append(self, data: bytes) -> None:
        """Write and sync. Raises OSError if nothing was changed, SyncFailedError if the content is unknown."""
        try:
            self._file.pwrite(data, self.size)
        except OSError:
            self._truncate()
            raise
        try:
            self._file.sync()
        except OSError as error:
            raise SyncFailedError(self._path) from error
        self.size += len(data)

    def replace(self, data: bytes) -> None:
        """Replace the file by a smaller one. Raises OSError if the old file is still in use, else SyncFailedError."""
        try:
            self._file = self._disk.replace(self._path, data, sync=True)
        except OSError as error:
            if self._disk.size(self._path) != self.size:
                raise SyncFailedError(self._path) from error
            raise
        self.size = len(data)

    def sync(self) -> None:
        """Flush what an earlier process has written; raises OSError."""
        self._file.sync()

    def truncate_to(self, size: int) -> None:
        """Truncate the file to `size`; raises OSError."""
        self._file.truncate(size)
        self._file.sync()
        self.size = size

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _truncate(self) -> None:
        try:
            self.truncate_to(self.size)
        except OSError as error:
            raise SyncFailedError(self._path) from error


def outcome_of_write(job: Callable[[bytes], None], data: bytes) -> Outcome:
    """Write within the call."""
    try:
        job(data)
    except (OSError, SyncFailedError) as error:
        return Outcome(error=error)
    return Outcome()


def open_journal(
    disk: Disk, path: str, version: int, check: Callable[[Tree], object] | None = None
) -> tuple[JournalFile, Tree]:
    """Read the journal at `path`, or begin one; raises OSError, or JournalError with one line naming the file.

    The journal is read, then checked, then written to: a refused journal is unchanged, byte by byte. What was read is
    flushed: the process that wrote it may have ended before its flush.

    Arguments:
        disk, path: where it is.
        version: the format that it must have.
        check: called with the tree before anything is written; raises an error if the tree must not be used.
    """
    if not disk.exists(path):
        disk.write_atomic(path, journal.encode_snapshot(Tree(), version), sync=True)
    data = disk.read_bytes(path)
    try:
        tree, size, torn = journal.load(data, version)
    except journal.JournalError as error:
        raise journal.JournalError(f"{path}: {error}; {error.next_step}") from error
    if check is not None:
        check(tree)
    file = JournalFile(disk, path, disk.open(path), size)
    file.sync()
    if torn:
        file.truncate_to(size)
        LOGGER.warning(
            "%s: the last %s bytes are an incomplete write and were removed. After a crash that is normal: no change "
            "in them was acknowledged. A copy is partial: stop the broker, and restore the whole log directory",
            path, f"{torn:,}",
        )  # fmt: skip
    return file, tree
