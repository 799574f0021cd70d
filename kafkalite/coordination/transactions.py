"""A tree whose transactions are written to a journal file, or that is in memory only; sessions are built on it.

1. A transaction is written and synced before it becomes visible: responses, events and reads wait, in order, for the
   transactions that they show. With an `Offload`, writing and syncing is one job at a time; later transactions are
   written with the next job.
2. If the file cannot be written (a full disk), it is truncated, its transactions are undone, and their callers receive
   ConnectionLossError; reads are executed again, and the service continues. If it cannot be synced or truncated, its
   content is unknown: the service ends. It ends, too, if a transaction that cannot be undone cannot be written.
3. The file is rewritten from the tree, in one atomic step, when it is far larger than the tree: while running only
   after `compact_bytes`. The tree is encoded in slices of the loop; calls wait meanwhile, so that it does not change.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import NamedTuple

from kafkalite.callbacks import once
from kafkalite.clock import Clock, Offload, Outcome, Then
from kafkalite.coordination import journal
from kafkalite.coordination.errors import ConnectionLossError, CoordinationError
from kafkalite.coordination.journal_file import JournalFile, outcome_of_write
from kafkalite.coordination.tree import Operation, SessionRecord, Tree, TreeChange, Watcher, WatchEvent
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.slicing import Slicer, finish

Pick = Callable[[list[object]], object]
Entry = tuple[int, int, bytes]  # kind, zxid, body of a record

LOGGER = logging.getLogger("kafkalite.coordination")
COMPACT_BYTES = 64 * 1024 * 1024
DELIVERY_S = 0.004  # of a loop iteration, for responses and events that were waiting for the journal


class WaitingCall(NamedTuple):
    """A call that completes when transaction `zxid` is durable.

    Attributes:
        zxid: the last transaction that its outcome shows.
        then: its callback.
        outcome: its result.
        read: executes it again, if it is a read.
    """

    zxid: int
    then: Then
    outcome: Outcome
    read: Callable[[], object] | None = None

    def repeat(self, zxid: int, undone: Outcome) -> "WaitingCall":
        """Return this call after the transactions behind `zxid` were undone; `undone` is the outcome of a change."""
        outcome = undone if self.read is None else outcome_of_read(self.read)
        return WaitingCall(zxid, self.then, outcome, self.read)


class Encoding(NamedTuple):
    """The encoding of the tree in slices, and the records that are appended if the whole is not far smaller."""

    steps: Generator[None, None, bytes]
    data: bytes


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
        file: JournalFile | None = None,
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
        self._waiting: deque[WaitingCall] = deque()
        self._delivering = False
        self._delivers_later = False
        self._slicer = Slicer(clock, RateLimitedLog(LOGGER, clock).raised)
        self._encoding: Encoding | None = None
        self._held: deque[tuple[Callable[[], object], Then]] = deque()  # calls while the tree is encoded
        self._releasing = False  # the next call is one of these

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
        if self._has_failed(then) or self._hold(partial(self.read, read), then):
            return
        self._waiting.append(WaitingCall(self.tree.zxid, then, outcome_of_read(read), read))
        self._deliver()

    def change(self, operations: Sequence[Operation], session: int, pick: Pick, then: Then) -> None:
        """Execute a transaction; `pick` chooses the response from its results."""
        if self._has_failed(then) or self._hold(partial(self.change, operations, session, pick), then):
            return
        now_ms = self._clock.wall_ms()
        changes: list[TreeChange] = []
        try:
            results = self.tree.multi(operations, session, now_ms, changes)
        except CoordinationError as error:
            self._complete(then, Outcome(error=error))
            return
        try:
            body = journal.encode_multi(operations, session, now_ms)
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
        if self._has_failed(then) or self._hold(partial(self.open_session, record), then):
            return
        body = journal.encode_record(record)
        changes: list[TreeChange] = []
        session = self.tree.open_session(record, changes)
        self._changed(journal.KIND_OPEN, body, changes, then, Outcome(session))

    def close_session(self, session: int, then: Then) -> None:
        """End a session of the tree, with its ephemeral nodes and its watches; None."""
        if self._has_failed(then) or self._hold(partial(self.close_session, session), then):
            return
        body = journal.SESSION.pack(session)
        changes: list[TreeChange] = []
        self.tree.close_session(session, changes)
        self._changed(journal.KIND_CLOSE, body, changes, then, Outcome())

    def _has_failed(self, then: Then) -> bool:
        if self.failure is not None:
            then(Outcome(error=ConnectionLossError(detail=str(self.failure))))
        return self.failure is not None

    def _hold(self, call: Callable[[Then], object], then: Then) -> bool:
        """Keep a call while the tree is encoded, and behind such calls; returns whether it is kept."""
        releasing, self._releasing = self._releasing, False
        if releasing or (self._encoding is None and not self._held):
            return False
        completed_once = once(then)  # the call may raise after its completion
        self._held.append((partial(call, completed_once), completed_once))
        return True

    # Writing the journal.

    def _changed(self, kind: int, body: bytes, changes: list[TreeChange], then: Then, outcome: Outcome) -> None:
        """Write the last transaction; its events, then `then` with its outcome, follow."""
        self._notify_watchers()
        self._waiting.append(WaitingCall(self.tree.zxid, then, outcome))
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
        assert self._file is not None
        self._busy = True
        try:
            entries = (*self._owed, *self._unwritten)
            data = b"".join(journal.record(kind, zxid, self._durable, body) for kind, zxid, body in entries)
        except BaseException as error:
            self._fail(error)
            raise
        self._unwritten.clear()
        self._writing, self._undoable = self._undoable, []
        if self._file.size + len(data) > self._compact_at:
            self._encoding = encoding = Encoding(journal.snapshot_steps(self.tree, self._version), data)
            self._slicer.run(encoding.steps, partial(self._encoded, encoding))
        else:
            self._run(self._file.append, data)

    def finish_encoding(self) -> None:
        """Encode the rest of the tree at once, if it is being encoded; the calls that waited are made."""
        if self._encoding is not None:
            self._encoded(self._encoding, Outcome(finish(self._encoding.steps)))

    def _encoded(self, encoding: "Encoding", outcome: Outcome) -> None:
        """Replace the file by the encoded tree if that is far smaller, else append; then make the held calls."""
        if encoding is not self._encoding:
            return  # it was finished at once, or the service has ended
        self._encoding = None
        if outcome.error is not None:
            self._fail(outcome.error)
            raise outcome.error
        assert self._file is not None
        whole: bytes = outcome.value
        self._compact_at = max(self._compact_bytes, len(whole) * 4)
        if len(whole) * 2 < self._file.size:
            self._run(self._file.replace, whole)
        else:
            self._run(self._file.append, encoding.data)
        self._release()

    def _release(self) -> None:
        """Make the calls that were held, in their order; an exception is the outcome of its call, and raised, too."""
        while self._held and self._encoding is None:
            call, then = self._held.popleft()
            self._releasing = True
            try:
                call()
            except BaseException as error:
                self._releasing = False
                self._complete(then, Outcome(error=error))
                self._release()
                raise
        self._releasing = False

    def _run(self, job: Callable[[bytes], None], data: bytes) -> None:
        """Run a job that makes the file equal to the tree; one that cannot begin ends the service."""
        zxid = self.tree.zxid
        if self._offload is None:
            self._written(zxid, outcome_of_write(job, data))
            return
        try:
            self._offload.run(job, data, done=lambda outcome: self._written(zxid, outcome))
        except BaseException as error:
            self._fail(error)
            raise

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
        """Undo the transactions that could not be written, and the later ones, so that the tree equals the file.

        Reads that may show them are executed again: a full disk fails changes alone.
        """
        assert self._writing is not None and self._undoable is not None
        self.tree.undo([*self._writing, *self._undoable])
        self._unwritten.clear()
        self._undoable = []
        failure = ConnectionLossError(detail=f"the change was undone: {error}")
        failure.__cause__ = error  # the error message of the response contains it
        self._waiting = deque(call.repeat(self.tree.zxid, Outcome(error=failure)) for call in self._waiting)
        self._deliver()

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._encoding = None
        lost = Outcome(error=ConnectionLossError(detail=f"the journal failed: {error!r}"))
        self._waiting = deque(WaitingCall(self._durable, call.then, lost) for call in self._waiting)
        on_failure = self._on_failure
        if on_failure is not None:
            self._waiting.append(WaitingCall(self._durable, lambda outcome: on_failure(), lost))
        self._deliver()
        self._release()

    # Delivering results and watches.

    def _complete(self, then: Then, outcome: Outcome) -> None:
        self._waiting.append(WaitingCall(self.tree.zxid, then, outcome))
        self._deliver()

    def _notify_watchers(self) -> None:
        for watcher, event in self.tree.take_fired():
            self._waiting.append(WaitingCall(self.tree.zxid, partial(notify, watcher, event), Outcome()))

    def _deliver(self) -> None:
        """Complete what is durable, in order; after DELIVERY_S, the rest in a later loop iteration."""
        if self._delivering or self._delivers_later:
            return
        self._delivering = True
        until = self._clock.monotonic() + DELIVERY_S
        try:
            while self._waiting and self._waiting[0].zxid <= self._durable + len(self._owed):
                if self._clock.monotonic() > until:
                    self._delivers_later = True
                    self._clock.call_at(until, self._deliver_rest)
                    break
                call = self._waiting.popleft()
                call.then(call.outcome)
        except BaseException:  # of a callback: it is raised after the other callbacks
            self._delivering = False
            self._deliver()
            raise
        self._delivering = False

    def _deliver_rest(self) -> None:
        self._delivers_later = False
        self._deliver()


def outcome_of_read(read: Callable[[], object]) -> Outcome:
    """Execute a read."""
    try:
        return Outcome(read())
    except CoordinationError as error:
        return Outcome(error=error)


def notify(watcher: Watcher, event: WatchEvent, outcome: Outcome) -> None:
    """Call a watcher with its event; the outcome is that of a waiting call."""
    watcher(event)
