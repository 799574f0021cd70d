"""ZooKeeper's tree of znodes as a pure data structure: no clock, no files, no sockets (its DataTree.java).

1. A transaction is all or nothing and has one zxid, one above the last; a failed one has no effect.
2. The same transactions in the same order with the same times produce the same tree, so a journal of them is enough.
3. A watch fires once. It is set by the read that returned the value (or its absence, with `exists`). Its events are
   collected in `fired` until the owner takes them: after the change, in the order of the changes.
4. The `cversion` of a znode counts creations and deletions of children; the number of a sequence node counts creations
   only and never repeats.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from kafkalite.coordination.errors import (
    BadArgumentsError,
    BadVersionError,
    CoordinationError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from kafkalite.coordination.watch_table import CHANGED as CHANGED
from kafkalite.coordination.watch_table import CHILDREN as CHILDREN
from kafkalite.coordination.watch_table import CREATED as CREATED
from kafkalite.coordination.watch_table import DELETED as DELETED
from kafkalite.coordination.watch_table import Watcher as Watcher
from kafkalite.coordination.watch_table import WatchEvent as WatchEvent
from kafkalite.coordination.watch_table import WatchTable

ANY_VERSION = -1
NO_SESSION = 0
DATA_BYTES_MAX = 16 * 1024 * 1024
PATH_LENGTH_MAX = 4096
NODE_BYTES = 400  # memory of a node without its name and data, about
SEQUENCE_FORMAT = "{:010d}"
PATH = re.compile(r"(?:/(?!\.\.?(?:/|$))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff]+)+")


class Stat(NamedTuple):
    """The metadata of a node; times in milliseconds since 1970."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class Create(NamedTuple):
    """Create a node; with `sequence`, ten digits follow its name; with `ephemeral`, it is deleted with its session."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class Set(NamedTuple):
    """Replace a node's data if it has this version (-1 = any)."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Remove a node without children if it has this version (-1 = any)."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Fail the transaction unless the node has this version (-1 = any)."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | Set | Delete | Check


class CreatedNode(NamedTuple):
    """The created node: its path with the sequence number, and its Stat."""

    path: str
    stat: Stat


Result: TypeAlias = CreatedNode | Stat | None  # of Create, of Set, of Delete and Check


class SessionRecord(NamedTuple):
    """What a session that outlives its process consists of: the password of 16 bytes, and the timeout."""

    password: bytes
    timeout_ms: int


class TreeNode:
    """A node; its name is the key in its parent."""

    __slots__ = ("children", "creates", "ctime", "czxid", "data", "mtime", "mzxid", "owner", "pzxid", "version")

    def __init__(self, data: bytes, owner: int, zxid: int, now_ms: int) -> None:
        self.data = data
        self.owner = owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = now_ms
        self.version = 0
        self.creates = 0
        self.children: dict[str, TreeNode] = {}

    def stat(self) -> Stat:
        """The node's Stat now."""
        count = len(self.children)
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime=self.ctime,
            mtime=self.mtime,
            version=self.version,
            cversion=self.creates * 2 - count,
            aversion=0,
            ephemeral_owner=self.owner,
            data_length=len(self.data),
            num_children=count,
            pzxid=self.pzxid,
        )


class Tree:
    """The nodes, the sessions with their ephemeral nodes, and the watches.

    Attributes:
        zxid: the number of the last transaction.
        sessions: the paths of the ephemeral nodes of each session.
        session_records: of the sessions that outlive their process; the embedded tree has none.
        bytes: memory of the nodes, about.
        fired: the watches that fired, with their events; see `take_fired`.
        data_watches, child_watches: the watches of each type.
    """

    def __init__(self) -> None:
        self.zxid = 0
        self.root = TreeNode(b"", NO_SESSION, 0, 0)
        self.bytes = 0
        self.sessions: dict[int, set[str]] = {}
        self.session_records: dict[int, SessionRecord] = {}
        self.fired: list[tuple[Watcher, WatchEvent]] = []
        self.data_watches = WatchTable()
        self.child_watches = WatchTable()

    # Reads.

    def get(self, path: str, watch: Watcher | None = None, session: int = NO_SESSION) -> tuple[bytes, Stat]:
        """Data and Stat; raises NoNodeError. The watch fires when the data changes or the node is deleted."""
        node = self.node(path)
        if watch is not None:
            self.data_watches.add(path, watch, session)
        return node.data, node.stat()

    def exists(self, path: str, watch: Watcher | None = None, session: int = NO_SESSION) -> Stat | None:
        """Stat, or None if the node does not exist. The watch fires when it is created, changed or deleted."""
        check_path(path)
        node = self.find(path)
        if watch is not None:
            self.data_watches.add(path, watch, session)
        return None if node is None else node.stat()

    def children(self, path: str, watch: Watcher | None = None, session: int = NO_SESSION) -> tuple[list[str], Stat]:
        """Names of the children in order, and Stat; raises NoNodeError. The watch fires when they change."""
        node = self.node(path)
        if watch is not None:
            self.child_watches.add(path, watch, session)
        return sorted(node.children), node.stat()

    def walk(self) -> Iterator[tuple[str, TreeNode]]:
        """Every node with its path, parents before children."""
        waiting = [("/", self.root)]
        while waiting:
            path, node = waiting.pop()
            yield path, node
            prefix = "" if path == "/" else path
            waiting += [(f"{prefix}/{name}", child) for name, child in node.children.items()]

    # Changes.

    def multi(
        self, operations: Sequence[Operation], session: int, now_ms: int, taken_back: list["TreeChange"] | None = None
    ) -> list[Result]:
        """Execute all operations or none.

        Arguments:
            session: the owner of ephemeral nodes.
            now_ms: the wall time, for ctime and mtime.
            taken_back: receives the change, for `undo`.
        Returns: one result per operation.
        Raises CoordinationError of the first operation that fails, with `at` its index.
        """
        if session not in self.sessions:
            raise SessionExpiredError()
        change = TreeChange(self, self.zxid + 1, session, now_ms)
        results: list[Result] = []
        for at, operation in enumerate(operations):
            try:
                results.append(change.do(operation))
            except BaseException as error:
                change.undo()
                if isinstance(error, CoordinationError):
                    error.at = at
                raise
        self.zxid += 1
        self._fire(change.events)
        if taken_back is not None:
            taken_back.append(change)
        return results

    def undo(self, changes: list["TreeChange"]) -> None:
        """Undo the last transactions, which must be exactly these; events of their watches stay."""
        for change in reversed(changes):
            assert change.zxid == self.zxid, "only the last transaction can be undone"
            change.undo()
            self.zxid -= 1

    def open_session(self, record: SessionRecord | None = None, taken_back: list["TreeChange"] | None = None) -> int:
        """Begin a session; its id is the zxid of this transaction.

        Arguments:
            record: of a session that outlives the process.
            taken_back: receives the change, for `undo`.
        """
        change = TreeChange(self, self.zxid + 1, self.zxid + 1, 0)
        change.open_session(record)
        self.zxid += 1
        if taken_back is not None:
            taken_back.append(change)
        return self.zxid

    def close_session(self, session: int, taken_back: list["TreeChange"] | None = None) -> None:
        """End a session: its ephemeral nodes and its watches go; raises SessionExpiredError.

        Arguments:
            session: its id.
            taken_back: receives the change, for `undo`, which does not set the watches again.
        """
        if session not in self.sessions:
            raise SessionExpiredError()
        change = TreeChange(self, self.zxid + 1, session, 0)
        try:
            for path in sorted(self.sessions[session]):
                change.delete_ephemeral(path)
            change.close_session()
        except BaseException:
            change.undo()
            raise
        self.zxid += 1
        self.drop_watches(session)
        self._fire(change.events)
        if taken_back is not None:
            taken_back.append(change)

    def drop_watches(self, session: int) -> None:
        """Forget a session's watches."""
        self.data_watches.drop(session)
        self.child_watches.drop(session)

    def take_fired(self) -> list[tuple[Watcher, WatchEvent]]:
        """The watches that fired since the last call, with their events."""
        fired, self.fired = self.fired, []
        return fired

    # Look-ups.

    def find(self, path: str) -> TreeNode | None:
        """The node of a well-formed path, or None."""
        node: TreeNode | None = self.root
        for name in path.split("/")[1:] if path != "/" else ():
            if node is None:
                return None
            node = node.children.get(name)
        return node

    def node(self, path: str) -> TreeNode:
        """The node of any path; raises BadArgumentsError or NoNodeError."""
        check_path(path)
        node = self.find(path)
        if node is None:
            raise NoNodeError(path)
        return node

    def _fire(self, events: list[WatchEvent]) -> None:
        for event in events:
            watchers: dict[Watcher, int] = {}
            if event.kind != CHILDREN:
                watchers |= self.data_watches.take(event.path)
            if event.kind in (CHILDREN, DELETED):
                watchers |= self.child_watches.take(event.path)
            self.fired += [(watcher, event) for watcher in watchers]


class TreeChange:
    """One running transaction: it can be undone until its end.

    The functions of `undo` refer to no change, so that a transaction leaves no cycle to the garbage collector.
    """

    def __init__(self, tree: Tree, zxid: int, session: int, now_ms: int) -> None:
        self.events: list[WatchEvent] = []
        self._tree = tree
        self.zxid = zxid
        self._session = session
        self._now_ms = now_ms
        self._undo: list[Callable[[], None]] = []

    def do(self, operation: Operation) -> Result:
        """Execute one operation; after a CoordinationError nothing is changed."""
        if isinstance(operation, Create):
            return self._create(operation)
        node = self._tree.node(operation.path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersionError(operation.path, detail=f"the version is {node.version}, expected {operation.version}")
        if isinstance(operation, Set):
            return self._set(operation, node)
        if isinstance(operation, Delete):
            self._delete(operation.path, node)
        return None

    def delete_ephemeral(self, path: str) -> None:
        """Delete an ephemeral node of the session, which has no children; unlike `do`, without a check of its path."""
        node = self._tree.find(path)
        assert node is not None, f"the ephemeral node {path} does not exist"
        self._delete(path, node)

    def open_session(self, record: SessionRecord | None) -> None:
        """Add the session."""
        sessions, records, session = self._tree.sessions, self._tree.session_records, self._session
        sessions[session] = set()
        if record is not None:
            records[session] = record

        def undo() -> None:
            del sessions[session]
            records.pop(session, None)

        self._undo.append(undo)

    def close_session(self) -> None:
        """Remove the session, whose ephemeral nodes are deleted already."""
        sessions, records, session = self._tree.sessions, self._tree.session_records, self._session
        ephemerals, record = sessions.pop(session), records.pop(session, None)

        def undo() -> None:
            sessions[session] = ephemerals
            if record is not None:
                records[session] = record

        self._undo.append(undo)

    def undo(self) -> None:
        """Undo all changes."""
        for step in reversed(self._undo):
            step()

    def _create(self, operation: Create) -> CreatedNode:
        path, data = operation.path, operation.data
        check_path(path + SEQUENCE_FORMAT.format(0) if operation.sequence else path)
        check_data(path, data)
        parent_path, _, name = path.rpartition("/")
        parent = self._tree.find(parent_path or "/")
        if parent is None:
            raise NoNodeError(path)
        if parent.owner != NO_SESSION:
            raise NoChildrenForEphemeralsError(path)
        if operation.sequence:
            name += SEQUENCE_FORMAT.format(parent.creates)
            path = f"{parent_path}/{name}"
        if name in parent.children or path == "/":
            raise NodeExistsError(path)
        owner = self._session if operation.ephemeral else NO_SESSION
        node = TreeNode(data, owner, self.zxid, self._now_ms)
        ephemerals = self._tree.sessions[self._session]
        before = parent.pzxid

        tree, size = self._tree, NODE_BYTES + len(name) + len(data)

        def undo() -> None:
            del parent.children[name]
            parent.creates -= 1
            parent.pzxid = before
            ephemerals.discard(path)
            tree.bytes -= size

        tree.bytes += size
        parent.children[name] = node
        parent.creates += 1
        parent.pzxid = self.zxid
        if owner:
            ephemerals.add(path)
        self._undo.append(undo)
        self.events += [WatchEvent(CREATED, path), WatchEvent(CHILDREN, parent_path or "/")]
        return CreatedNode(path, node.stat())

    def _set(self, operation: Set, node: TreeNode) -> Stat:
        check_data(operation.path, operation.data)
        before = node.data, node.version, node.mzxid, node.mtime
        tree, growth = self._tree, len(operation.data) - len(node.data)

        def undo() -> None:
            node.data, node.version, node.mzxid, node.mtime = before
            tree.bytes -= growth

        tree.bytes += growth
        node.data, node.version, node.mzxid, node.mtime = operation.data, node.version + 1, self.zxid, self._now_ms
        self._undo.append(undo)
        self.events.append(WatchEvent(CHANGED, operation.path))
        return node.stat()

    def _delete(self, path: str, node: TreeNode) -> None:
        if path == "/":
            raise BadArgumentsError(path, detail="the root cannot be deleted")
        if node.children:
            raise NotEmptyError(path)
        parent_path, _, name = path.rpartition("/")
        parent = self._tree.find(parent_path or "/")
        assert parent is not None, f"{path} has no parent"
        ephemerals = self._tree.sessions.get(node.owner)
        before = parent.pzxid

        tree, size = self._tree, NODE_BYTES + len(name) + len(node.data)

        def undo() -> None:
            parent.children[name] = node
            parent.pzxid = before
            if ephemerals is not None:
                ephemerals.add(path)
            tree.bytes += size

        tree.bytes -= size
        del parent.children[name]
        parent.pzxid = self.zxid
        if ephemerals is not None:
            ephemerals.discard(path)
        self._undo.append(undo)
        self.events += [WatchEvent(DELETED, path), WatchEvent(CHILDREN, parent_path or "/")]


def check_data(path: str, data: bytes) -> None:
    """Raise BadArgumentsError if the data exceeds the limit of a node."""
    if len(data) > DATA_BYTES_MAX:
        raise BadArgumentsError(path, detail=f"the data has {len(data)} bytes, the limit is {DATA_BYTES_MAX}")


def check_path(path: str) -> None:
    """Raise BadArgumentsError unless this is the path of a node (PathUtils.java)."""
    if path != "/" and (len(path) > PATH_LENGTH_MAX or PATH.fullmatch(path) is None):
        raise BadArgumentsError(repr(path), detail="not a path")
