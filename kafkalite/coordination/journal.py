"""Encodes and decodes the journal file of a tree: that of one process, and that of served sessions.

The file, all numbers little-endian:
    file     = "KLTREE", format version (u16), a snapshot, then transactions
    record   = marker (4 bytes), length of the payload (u32), zlib's CRC-32 of length and payload (u32), payload
    payload  = kind (u8), zxid (u64), durable (u64), body
    snapshot = a NODE record for each node, parents first, then a SNAPSHOT_END record: their number, the sessions

`durable` is the last zxid that was synced when the record was written. It distinguishes a torn tail from damage. After
a hole, records that were written together with it are dropped, because they were not acknowledged. A record that was
written after the hole had been synced proves that an acknowledged record is lost, and the file is rejected.

The snapshot is written completely and renamed into place, so a hole in it is always damage.

In format 1, of the embedded tree, a session is its id and ends with the process. In format 2, of `served`, the start of
a session and the end of a snapshot also have the password and the timeout of each session, which outlives the process.
"""

import struct
import zlib
from collections.abc import Generator, Sequence
from typing import NamedTuple

from kafkalite.coordination.errors import CoordinationError
from kafkalite.coordination.tree import NODE_BYTES, Check, Create, Delete, Operation, SessionRecord, Set, Tree, TreeNode
from kafkalite.slicing import Steps, finish

EMBEDDED_FORMAT, SERVED_FORMAT = 1, 2
STEP = 50  # nodes, records or operations per slice: 0.1 ms to encode, 0.5 ms to load
HEADER = struct.Struct("<6sH")
MAGIC = b"KLTREE"
MARKER = b"\xf4KL\x00"
RECORD = struct.Struct("<4sII")
LENGTH = struct.Struct("<I")
PAYLOAD = struct.Struct("<BQQ")
NODE = struct.Struct("<QQQqqIQQ")  # czxid mzxid pzxid ctime mtime version creates owner
TRANSACTION = struct.Struct("<QqI")  # session, time in ms, operations
OPERATION = struct.Struct("<Bi")  # what, version
COUNTS = struct.Struct("<QI")  # nodes, sessions
SESSION = struct.Struct("<Q")
SESSION_RECORD = struct.Struct("<16sI")  # password, timeout in ms; of format 2

KIND_NODE, KIND_SNAPSHOT_END, KIND_MULTI, KIND_OPEN, KIND_CLOSE = 1, 2, 3, 4, 5
CREATE, SET, DELETE, CHECK, EPHEMERAL, SEQUENCE = 1, 2, 3, 4, 0x10, 0x20


class JournalError(Exception):
    """A journal that cannot be used; the message is one line. `next_step`: the action for the operator."""

    next_step = "restore it from a backup"


class JournalFormatError(JournalError):
    """A journal in a format that this version does not support."""

    next_step = "use the version of kafkalite that wrote it, or a newer one"


# Writing.


def header(version: int = EMBEDDED_FORMAT) -> bytes:
    """The first bytes of the file."""
    return HEADER.pack(MAGIC, version)


def record(kind: int, zxid: int, durable: int, body: bytes) -> bytes:
    """One record with its frame."""
    payload = PAYLOAD.pack(kind, zxid, durable) + body
    return RECORD.pack(MARKER, len(payload), checksum(payload)) + payload


def checksum(payload: bytes) -> int:
    """CRC-32 of a payload and its length."""
    return zlib.crc32(payload, zlib.crc32(LENGTH.pack(len(payload))))


def encode_multi(operations: Sequence[Operation], session: int, now_ms: int) -> bytes:
    """The body of a transaction."""
    parts = [TRANSACTION.pack(session, now_ms, len(operations))]
    for operation in operations:
        if isinstance(operation, Create):
            what = CREATE | (EPHEMERAL if operation.ephemeral else 0) | (SEQUENCE if operation.sequence else 0)
            parts += [OPERATION.pack(what, 0), length_prefix(operation.path.encode()), length_prefix(operation.data)]
        elif isinstance(operation, Set):
            parts += [
                OPERATION.pack(SET, operation.version),
                length_prefix(operation.path.encode()),
                length_prefix(operation.data),
            ]
        else:
            what = DELETE if isinstance(operation, Delete) else CHECK
            parts += [OPERATION.pack(what, operation.version), length_prefix(operation.path.encode())]
    return b"".join(parts)


def encode_record(session: SessionRecord | None) -> bytes:
    """The body of the start of a session; empty in format 1."""
    return b"" if session is None else SESSION_RECORD.pack(*session)


def encode_snapshot(tree: Tree, version: int = EMBEDDED_FORMAT) -> bytes:
    """The bytes of a journal that contains only this tree."""
    encoded: bytes = finish(snapshot_steps(tree, version))
    return encoded


def snapshot_steps(tree: Tree, version: int) -> Steps:
    """Encode a snapshot in slices of STEP nodes; the tree must not change meanwhile. Returns `encode_snapshot`."""
    parts, count = [header(version)], 0
    for path, node in tree.walk():
        times = NODE.pack(
            node.czxid, node.mzxid, node.pzxid, node.ctime, node.mtime, node.version, node.creates, node.owner
        )
        parts.append(
            record(KIND_NODE, tree.zxid, tree.zxid, times + length_prefix(path.encode()) + length_prefix(node.data))
        )
        count += 1
        if count % STEP == 0:
            yield
    records = tree.session_records
    sessions = b"".join(SESSION.pack(each) + encode_record(records.get(each)) for each in sorted(tree.sessions))
    end = COUNTS.pack(count, len(tree.sessions)) + sessions
    parts.append(record(KIND_SNAPSHOT_END, tree.zxid, tree.zxid, end))
    return b"".join(parts)


def length_prefix(data: bytes) -> bytes:
    """The length of the bytes, then the bytes."""
    return LENGTH.pack(len(data)) + data


# Reading.


class LoadedJournal(NamedTuple):
    """A journal read back: the tree, how many bytes of the file hold it, and how many behind them were torn."""

    tree: Tree
    size: int
    torn: int


class JournalRecord(NamedTuple):
    """A complete record."""

    kind: int
    zxid: int
    durable: int
    body: bytes
    end: int


def load(data: bytes, version: int = EMBEDDED_FORMAT) -> LoadedJournal:
    """Read a journal; raises JournalError if an acknowledged transaction is missing, or the file is not a journal.

    Arguments:
        data: the bytes of the file.
        version: the format that the file must have.
    """
    loaded: LoadedJournal = finish(load_steps(data, version))
    return loaded


def load_steps(data: bytes, version: int) -> Steps:
    """`load` in slices of STEP nodes or operations; a transaction of more operations is one slice."""
    at = check_header(data, version)
    tree, at = yield from load_snapshot(data, at, version)
    replayed = 0
    while at < len(data):
        found = read_record(data, at)
        if found is None:
            if proves_loss(data, at, tree.zxid):
                raise JournalError(f"damaged at byte {at}, before synced transactions")
            break
        replayed += replay(tree, found, at, version)
        at = found.end
        if replayed >= STEP:
            replayed = 0
            yield
    return LoadedJournal(tree, at, len(data) - at)


def check_header(data: bytes, expected: int) -> int:
    """Return the position of the first record; raises JournalError."""
    if len(data) < HEADER.size:
        raise JournalError("not a journal of this broker: too short")
    magic, version = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise JournalError("not a journal of this broker")
    if version != expected:
        raise JournalFormatError(f"format version {version} is not supported, expected {expected}")
    return HEADER.size


def load_snapshot(data: bytes, at: int, version: int) -> Generator[None, None, tuple[Tree, int]]:
    """Read the tree at the beginning of the file in slices; returns it and where it ends. Raises JournalError."""
    tree, count = Tree(), 0
    while True:
        found = read_record(data, at)
        if found is None or found.kind not in (KIND_NODE, KIND_SNAPSHOT_END):
            raise JournalError(f"the snapshot is damaged at byte {at}")
        body = Body(found.body, at)
        at = found.end
        if found.kind == KIND_SNAPSHOT_END:
            finish_snapshot(tree, body, count, found.zxid, version)
            return tree, at
        insert_node(tree, body)
        count += 1
        if count % STEP == 0:
            yield


def insert_node(tree: Tree, body: "Body") -> None:
    """Put one node of a snapshot into the tree."""
    czxid, mzxid, pzxid, ctime, mtime, version, creates, owner = body.unpack(NODE)
    path, data = body.path(), body.read_bytes()
    body.end()
    node = TreeNode(data, owner, czxid, ctime)
    node.mzxid, node.pzxid, node.mtime, node.version, node.creates = mzxid, pzxid, mtime, version, creates
    if path == "/":
        tree.root = node
        return
    parent_path, _, name = path.rpartition("/")
    parent = tree.find(parent_path or "/")
    if parent is None or name in parent.children:
        raise JournalError(f"the snapshot has no parent of {path!r}")
    parent.children[name] = node
    tree.bytes += NODE_BYTES + len(name) + len(data)
    if owner:
        tree.sessions.setdefault(owner, set()).add(path)


def finish_snapshot(tree: Tree, body: "Body", count: int, zxid: int, version: int) -> None:
    """Validate the end of the snapshot, and add its sessions to the tree; raises JournalError.

    Arguments:
        tree: has the nodes of the snapshot.
        body: its bytes behind the nodes.
        count: number of nodes read.
        zxid: of the last change in the snapshot.
        version: format of the journal.
    """
    expected, session_count = body.unpack(COUNTS)
    sessions: set[int] = set()
    for _ in range(min(session_count, len(body.data))):
        (session,) = body.unpack(SESSION)
        sessions.add(session)
        if version == SERVED_FORMAT:
            tree.session_records[session] = body.session_record()
    body.end()
    if expected != count or len(sessions) != session_count or not sessions.issuperset(tree.sessions):
        raise JournalError("the snapshot is inconsistent")
    for session in sessions:
        tree.sessions.setdefault(session, set())
    tree.zxid = zxid


def replay(tree: Tree, found: JournalRecord, at: int, version: int) -> int:
    """Replay one transaction; returns the number of its operations. Raises JournalError if it does not fit the tree."""
    count = 1
    if found.zxid != tree.zxid + 1:
        raise JournalError(f"transaction {found.zxid} at byte {at} follows transaction {tree.zxid}")
    body = Body(found.body, at)
    try:
        if found.kind == KIND_MULTI:
            session, now_ms, count = body.unpack(TRANSACTION)
            operations = [body.operation() for _ in range(min(count, len(body.data)))]
            body.end()
            if len(operations) != count:
                raise JournalError(f"transaction {found.zxid} at byte {at} is truncated")
            tree.multi(operations, session, now_ms)
        elif found.kind == KIND_OPEN:
            record = body.session_record() if version == SERVED_FORMAT else None
            body.end()
            tree.open_session(record)
        elif found.kind == KIND_CLOSE:
            (session,) = body.unpack(SESSION)
            body.end()
            tree.close_session(session)
        else:
            raise JournalError(f"unknown record type {found.kind} at byte {at}")
    except CoordinationError as error:
        raise JournalError(f"transaction {found.zxid} at byte {at} cannot be applied: {error}") from error
    tree.take_fired()
    return count


def read_record(data: bytes, at: int) -> JournalRecord | None:
    """The record at `at`, or None if it is incomplete."""
    if len(data) - at < RECORD.size:
        return None
    marker, length, crc = RECORD.unpack_from(data, at)
    start = at + RECORD.size
    if marker != MARKER or length < PAYLOAD.size or length > len(data) - start:
        return None
    payload = data[start : start + length]
    if checksum(payload) != crc:
        return None
    kind, zxid, durable = PAYLOAD.unpack_from(payload)
    return JournalRecord(kind, zxid, durable, payload[PAYLOAD.size :], start + length)


def proves_loss(data: bytes, at: int, zxid: int) -> bool:
    """Whether a record behind the hole at `at` was written when more than `zxid` had been synced."""
    while (at := data.find(MARKER, at + 1)) >= 0:
        found = read_record(data, at)
        if found is not None and found.durable > zxid:
            return True
    return False


class Body:
    """The body of a record, read from front to back; whatever does not fit raises JournalError."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self._at = 0
        self._where = at

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """The next numbers."""
        if len(self.data) - self._at < layout.size:
            raise JournalError(f"the record at byte {self._where} is truncated")
        values = layout.unpack_from(self.data, self._at)
        self._at += layout.size
        return values

    def read_bytes(self) -> bytes:
        """Read a length, then that many bytes."""
        (size,) = self.unpack(LENGTH)
        if size > len(self.data) - self._at:
            raise JournalError(f"the record at byte {self._where} is truncated")
        self._at += size
        return self.data[self._at - size : self._at]

    def session_record(self) -> SessionRecord:
        """The next password and timeout."""
        if len(self.data) - self._at < SESSION_RECORD.size:
            raise JournalError(f"the record at byte {self._where} is truncated")
        self._at += SESSION_RECORD.size
        return SessionRecord(*SESSION_RECORD.unpack_from(self.data, self._at - SESSION_RECORD.size))

    def path(self) -> str:
        """The next path."""
        try:
            return self.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise JournalError(f"the record at byte {self._where} has no readable path") from error

    def operation(self) -> Operation:
        """The next operation of a transaction."""
        what, version = self.unpack(OPERATION)
        path = self.path()
        if what & 0x0F == CREATE:
            return Create(path, self.read_bytes(), bool(what & EPHEMERAL), bool(what & SEQUENCE))
        if what == SET:
            return Set(path, self.read_bytes(), version)
        if what == DELETE:
            return Delete(path, version)
        if what == CHECK:
            return Check(path, version)
        raise JournalError(f"the record at byte {self._where} has an unknown operation {what}")

    def end(self) -> None:
        """Raise JournalError if bytes are left."""
        if self._at != len(self.data):
            raise JournalError(f"the record at byte {self._where} has bytes after its last field")
