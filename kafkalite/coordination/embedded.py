"""The tree in this process, with a journal file or in memory only.

1. `transactions` describes when a change is durable and visible, and what happens if it cannot be written.
2. The start of a session, and the end of those of an earlier process, are written with the next transaction: their loss
   has no effect, so a start needs no space on the disk. The same holds for `change_later`.
3. Sessions end with the process: the ephemeral znodes of an earlier process are removed when the file is opened. The
   file is then rewritten if it is far larger than the tree.
"""

import errno
from collections.abc import Callable, Sequence

from kafkalite._speedups.storage.file import Disk
from kafkalite.callbacks import call_each
from kafkalite.clock import Clock, Offload, Outcome, Then
from kafkalite.coordination import journal
from kafkalite.coordination.errors import ConnectionLossError, SessionExpiredError
from kafkalite.coordination.journal_file import JournalFile, open_journal
from kafkalite.coordination.transactions import Entry, JournaledTree, Pick
from kafkalite.coordination.tree import ANY_VERSION, Create, Delete, Operation, Set, Tree, Watcher

COMPACT_AT_OPEN_BYTES = 1024 * 1024


class EmbeddedCoordination(JournaledTree):
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
        super().__init__(clock, tree, file, offload, owed, on_failure=self._lose_sessions)
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
            disk: holds the journal.
            path: of the journal file.
            clock: gives the times of the nodes.
            offload: writes and flushes the journal; None = on the loop.
            check: called with the tree before anything is written; raises an error if the tree must not be used.
        """
        file, tree = open_journal(disk, path, journal.EMBEDDED_FORMAT, check)
        return cls(clock, tree, file, offload, smaller(file, tree, end_sessions(tree)))

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
        self.finish_encoding()
        session = EmbeddedSession(self, self.tree.zxid + 1, on_lost)
        self._sessions[session.session_id] = session
        if self._file is not None and not self._busy and not self._unwritten:
            self._owed.append((journal.KIND_OPEN, self.tree.open_session(), b""))
        else:
            self._undoable = None
            self.open_session(None, ignore)
        return session

    def expire(self, session_id: int) -> None:
        """End a session as a service does after the session timeout."""
        session = self._sessions[session_id]
        self.end_session(session_id, lambda outcome: session.lose())

    def end_session(self, session_id: int, then: Then) -> None:
        """Remove a session with its ephemeral nodes."""
        self.finish_encoding()
        if self.failure is None:
            del self._sessions[session_id]
            self._undoable = None
        self.close_session(session_id, then)

    def _lose_sessions(self) -> None:
        sessions, self._sessions = self._sessions, {}
        call_each(EmbeddedSession.lose, sessions.values())


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
        """Create a node; `then` receives a `CreatedNode`.

        Arguments: as of `Coordination.create`.
        """
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


def ignore(outcome: Outcome) -> None:
    """Ignore the outcome for a session that begins: its loss has no effect."""


def end_sessions(tree: Tree) -> list[Entry]:
    """End the sessions of a former process; returns the changes that must be written with the next transaction."""
    owed: list[Entry] = []
    for session in sorted(tree.sessions):
        tree.close_session(session)
        owed.append((journal.KIND_CLOSE, tree.zxid, journal.SESSION.pack(session)))
    tree.take_fired()
    return owed


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
