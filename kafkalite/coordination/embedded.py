"""The tree in this process, with a journal file or in memory only.

1. A transaction is written and synced before it becomes visible: responses, events and reads wait, in order, for the
   transactions that they show. With an `Offload`, writing and syncing is one job at a time; later transactions are
   written with the next job. The start of a session, and the end of those of an earlier process, are written with the
   next transaction: their loss has no effect, so a start needs no space on the disk. The same holds for `change_later`.
2. If the file cannot be written (a full disk), it is truncated, its transactions are undone, and their callers receive
   ConnectionLossError; the service continues. If it cannot be synced or truncated, its content is unknown: the service
   ends, with all sessions.
3. The file is rewritten from the tree, in one atomic step, when it is far larger than the tree: when it is opened, and
   while running only after `COMPACT_BYTES`, because the tree is encoded on the loop.
4. Sessions end with the process: the ephemeral znodes of an earlier process are removed when the file is opened.
"""

import errno
import logging
from collections import deque
from collections.abc import Callable, Sequence

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.clock import Clock, Offload, Outcome
from kafkalite.coordination import journal
from kafkalite.coordination.backend import Then
from kafkalite.coordination.errors import ConnectionLossError, CoordinationError, SessionExpiredError
from kafkalite.coordination.tree import ANY_VERSION, Create, Delete, Operation, Set, Tree, TreeChange, Watcher

LOGGER = logging.getLogger("kafkalite.coordination")

Pick = Callable[[list[object]], object]
Entry = tuple[int, int, bytes]  # kind, zxid, body of a record

COMPACT_BYTES = 64 * 1024 * 1024
COMPACT_AT_OPEN_BYTES = 1024 * 1024


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


class EmbeddedCoordination:
    """A coordination service of one process.

    Arguments:
        clock: for the times of the nodes.
        tree: what there is already.
        file: the journal, or None for a service in memory.
        offload: where the journal is written; None = within the call.
        owed: transactions of the tree that are to be written with the first change.
    """

    def __init__(
        self,
        clock: Clock,
        tree: Tree | None = None,
        file: JournalFile | None = None,
        offload: Offload | None = None,
        owed: Sequence[Entry] = (),
    ) -> None:
        self.tree = Tree() if tree is None else tree
        self.failure: BaseException | None = None
        self._clock = clock
        self._file = file
        self._offload = offload
        self._owed = list(owed)
        self._durable = self.tree.zxid - len(self._owed)
        self._compact_at = COMPACT_BYTES
        self._unwritten: list[Entry] = []
        self._undoable: list[TreeChange] | None = []  # None: a session began or ended, which cannot be undone
        self._writing: list[TreeChange] | None = None
        self._busy = False
        self._waiting: deque[tuple[int, Callable[[Outcome], object], Outcome]] = deque()
        self._delivering = False
        self._sessions: dict[int, EmbeddedSession] = {}

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        clock: Clock,
        offload: Offload | None = None,
        check: Callable[[Tree], object] | None = None,
    ) -> "EmbeddedCoordination":
        """Read the journal at `path`, or begin one; raises OSError, or JournalError with one line naming the file.

        Arguments:
            check: called with the tree before anything is written; raises an error if the tree must not be used.
        """
        file, tree, owed = open_journal(disk, path, check)
        return cls(clock, tree, file, offload, owed)

    @property
    def durable_zxid(self) -> int:
        """The last transaction that is in the file and flushed."""
        return self._durable

    def connect(
        self,
        on_lost: Callable[[], object] | None = None,
        on_suspended: Callable[[], object] | None = None,
        on_resumed: Callable[[], object] | None = None,
    ) -> "EmbeddedSession":
        """A new session; `on_lost` is called when it ends other than by its own `close`.

        The other two are never called: a session within the process has no connection that could break.
        """
        if self.failure is not None:
            raise ConnectionLossError(detail=str(self.failure))
        session_id = self.tree.open_session()
        session = EmbeddedSession(self, session_id, on_lost)
        self._sessions[session_id] = session
        if self._file is not None and not self._busy and not self._unwritten:
            self._owed.append((journal.KIND_OPEN, session_id, b""))
        else:
            self._undoable = None
            self._changed(journal.KIND_OPEN, b"")
        return session

    def expire(self, session_id: int) -> None:
        """End a session as a service does after the session timeout."""
        session = self._sessions[session_id]
        self.end_session(session_id, lambda outcome: session.lose())

    def close(self) -> None:
        """Close the file. No write may be in progress; open sessions end with the next opening."""
        if self._file is not None:
            self._file.close()

    # Called by sessions.

    def read(self, read: Callable[[], object], then: Then) -> None:
        """Complete with the result or error of `read` once all state that it can show is durable."""
        if self.failure is not None:
            then(Outcome(error=ConnectionLossError(detail=str(self.failure))))
            return
        try:
            outcome = Outcome(read())
        except CoordinationError as error:
            outcome = Outcome(error=error)
        self._complete(then, outcome)

    def change(self, operations: Sequence[Operation], session: int, pick: Pick, then: Then) -> None:
        """Execute a transaction; `pick` chooses the response from its results."""
        if self.failure is not None:
            then(Outcome(error=ConnectionLossError(detail=str(self.failure))))
            return
        now_ms = self._clock.wall_ms()
        try:
            results = self.tree.multi(operations, session, now_ms, self._undoable)
        except CoordinationError as error:
            self._complete(then, Outcome(error=error))
            return
        self._notify_watchers()
        self._waiting.append((self.tree.zxid, then, Outcome(pick(list(results)))))
        self._changed(journal.KIND_MULTI, journal.encode_multi(operations, session, now_ms))

    def change_later(self, operations: Sequence[Operation], session: int) -> None:
        """Execute a transaction now and write it together with the next one; for a start on a full disk.

        Only while nothing is being written. Raises CoordinationError.
        """
        assert not self._busy and not self._unwritten, "a start makes one change after the other"
        now_ms = self._clock.wall_ms()
        self.tree.multi(operations, session, now_ms)
        self._owed.append((journal.KIND_MULTI, self.tree.zxid, journal.encode_multi(operations, session, now_ms)))

    def end_session(self, session_id: int, then: Then) -> None:
        """Remove a session with its ephemeral nodes."""
        if self.failure is not None:
            then(Outcome(error=ConnectionLossError(detail=str(self.failure))))
            return
        del self._sessions[session_id]
        self.tree.close_session(session_id)
        self._undoable = None
        self._notify_watchers()
        self._waiting.append((self.tree.zxid, then, Outcome()))
        self._changed(journal.KIND_CLOSE, journal.SESSION.pack(session_id))

    # Writing the journal.

    def _changed(self, kind: int, body: bytes) -> None:
        if self._file is not None:
            self._unwritten.append((kind, self.tree.zxid, body))
            self._write()
        else:
            self._undoable = []
            self._durable = self.tree.zxid
        self._deliver()

    def _write(self) -> None:
        if self._busy or not self._unwritten or self.failure is not None:
            return
        assert self._file is not None
        entries = (*self._owed, *self._unwritten)
        data = b"".join(journal.record(kind, zxid, self._durable, body) for kind, zxid, body in entries)
        self._unwritten.clear()
        self._writing, self._undoable = self._undoable, []
        self._busy = True
        zxid = self.tree.zxid
        job, argument = self._file.append, data
        if self._file.size + len(data) > self._compact_at:
            whole = journal.encode_snapshot(self.tree)
            self._compact_at = max(COMPACT_BYTES, len(whole) * 4)
            if len(whole) * 2 < self._file.size:
                job, argument = self._file.replace, whole
        if self._offload is None:
            self._written(zxid, outcome_of_write(job, argument))
        else:
            self._offload.run(job, argument, done=lambda outcome: self._written(zxid, outcome))

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
            self._lose(outcome.error)

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

    def _lose(self, error: BaseException) -> None:
        self.failure = error
        lost = Outcome(error=ConnectionLossError(detail=f"the journal failed: {error!r}"))
        self._waiting = deque((self._durable, then, lost) for _, then, _ in self._waiting)
        for session in list(self._sessions.values()):
            self._waiting.append((self._durable, lambda outcome, session=session: session.lose(), lost))  # type: ignore[misc]
        self._sessions.clear()
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


class EmbeddedSession:
    """One session with an `EmbeddedCoordination`; created by its `connect`."""

    def __init__(self, service: EmbeddedCoordination, session_id: int, on_lost: Callable[[], object] | None) -> None:
        self._service = service
        self._session_id = session_id
        self._on_lost = on_lost
        self._lost = False

    @property
    def session_id(self) -> int:
        """The owner of this session's ephemeral nodes."""
        return self._session_id

    @property
    def lost(self) -> bool:
        """Whether the session is over."""
        return self._lost

    @property
    def suspended(self) -> bool:
        """False: there is no connection."""
        return False

    def get(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        """(data, Stat) of a node."""
        self._read(lambda tree: tree.get(path, watch, self._session_id), then)

    def exists(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        """Stat of a node, or None."""
        self._read(lambda tree: tree.exists(path, watch, self._session_id), then)

    def children(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        """(names of the children in order, Stat) of a node."""
        self._read(lambda tree: tree.children(path, watch, self._session_id), then)

    def create(self, path: str, data: bytes, then: Then, *, ephemeral: bool = False, sequence: bool = False) -> None:
        """Make a node; `CreatedNode`."""
        self._change((Create(path, data, ephemeral, sequence),), first, then)

    def set(self, path: str, data: bytes, then: Then, version: int = ANY_VERSION) -> None:
        """Replace a node's data if it has this version; the new Stat."""
        self._change((Set(path, data, version),), first, then)

    def delete(self, path: str, then: Then, version: int = ANY_VERSION) -> None:
        """Remove a node if it has this version; None."""
        self._change((Delete(path, version),), first, then)

    def multi(self, operations: Sequence[Operation], then: Then) -> None:
        """Execute all operations or none; a list with `CreatedNode`, Stat or None for each."""
        self._change(tuple(operations), lambda results: results, then)

    def multi_later(self, operations: Sequence[Operation]) -> None:
        """Execute all operations or none at once; see `EmbeddedCoordination.change_later`. Raises CoordinationError."""
        self._service.change_later(tuple(operations), self._session_id)

    def close(self, then: Then) -> None:
        """End the session and delete its ephemeral nodes; None."""
        if self._lost:
            then(Outcome())
            return
        self._lost = True
        self._on_lost = None
        self._service.end_session(self._session_id, then)

    def lose(self) -> None:
        """Called by the service: the session is over."""
        self._lost = True
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost()

    def _read(self, read: Callable[[Tree], object], then: Then) -> None:
        if self._lost:
            then(Outcome(error=SessionExpiredError()))
        else:
            self._service.read(lambda: read(self._service.tree), then)

    def _change(self, operations: Sequence[Operation], pick: Pick, then: Then) -> None:
        if self._lost:
            then(Outcome(error=SessionExpiredError()))
        else:
            self._service.change(operations, self._session_id, pick, then)


def first(results: list[object]) -> object:
    """The only result of a transaction of one operation."""
    return results[0]


def outcome_of_write(job: Callable[[bytes], None], data: bytes) -> Outcome:
    """Write within the call."""
    try:
        job(data)
    except (OSError, SyncFailedError) as error:
        return Outcome(error=error)
    return Outcome()


def open_journal(
    disk: Disk, path: str, check: Callable[[Tree], object] | None = None
) -> tuple[JournalFile, Tree, list[Entry]]:
    """Read the journal at `path`, or begin one, and end a former process's sessions; raises OSError, JournalError.

    Also returns the changes that must be written with the next transaction, after a lack of space. The journal is read,
    then checked, then written to: a refused journal is unchanged, byte by byte.
    """
    if not disk.exists(path):
        disk.write_atomic(path, journal.encode_snapshot(Tree()), sync=True)
    data = disk.read_bytes(path)
    try:
        tree, size, torn = journal.load(data)
    except journal.JournalError as error:
        raise journal.JournalError(f"{path}: {error}; {error.next_step}") from error
    if check is not None:
        check(tree)
    file = JournalFile(disk, path, disk.open(path), size)
    if torn:
        file.truncate_to(size)
        LOGGER.warning(
            "%s: the last %s bytes are an incomplete write and were removed. After a crash that is normal: no change "
            "in them was acknowledged. A copy is partial: stop the broker, and restore the whole log directory",
            path, f"{torn:,}",
        )  # fmt: skip
    owed: list[Entry] = []
    for session in sorted(tree.sessions):
        tree.close_session(session)
        owed.append((journal.KIND_CLOSE, tree.zxid, journal.SESSION.pack(session)))
    tree.take_fired()
    return file, tree, smaller(file, tree, owed)


def smaller(file: JournalFile, tree: Tree, owed: list[Entry]) -> list[Entry]:
    """Rewrite a journal that is far larger than its tree; returns the changes to write later. Raises OSError."""
    whole = journal.encode_snapshot(tree) if file.size > COMPACT_AT_OPEN_BYTES else b""
    if not whole or len(whole) * 2 >= file.size:
        return owed
    try:
        file.replace(whole)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return owed
    return []
