"""The transaction log of Apache ZooKeeper with times in ms: when a session ended, when the last owner node was created.

Layout of a file (FileTxnLog): a header of 16 bytes, then for each transaction its checksum (8 bytes), its size (4), the
TxnHeader (session, cxid, zxid, time, type), the record, and the byte 0x42; zeros fill the end of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FILE_HEADER_BYTES = 16
ENTRY = struct.Struct(">qi")
HEADER = struct.Struct(">qiqqi")
CLOSE_SESSION = -11
CREATES = (1, 15, 14)  # create, create2, and the multi in which they may be


class Transaction(NamedTuple):
    """A transaction; `time_ms` is the wall clock of the server, `record` its encoded arguments."""

    session: int
    zxid: int
    time_ms: int
    type: int
    record: bytes


def transactions(data: Path) -> Iterator[Transaction]:
    """All transactions in ZooKeeper's data directory, in order."""
    for log in sorted(data.glob("log.*"), key=lambda each: int(each.suffix[1:], 16)):
        content, at = log.read_bytes(), FILE_HEADER_BYTES
        while at + ENTRY.size <= len(content):
            size = ENTRY.unpack_from(content, at)[1]
            if size == 0:
                break
            at += ENTRY.size
            session, _, zxid, time_ms, kind = HEADER.unpack_from(content, at)
            yield Transaction(session, zxid, time_ms, kind, content[at + HEADER.size : at + size])
            at += size + 1


def rebalance_ms(data: Path, group: str, session: int) -> int:
    """Milliseconds from the end of a session to the last owner node that was created since.

    Arguments:
        data: directory of ZooKeeper's transaction logs.
        group: group id.
        session: of the member that has ended.
    """
    owners = f"/consumers/{group}/owners/".encode()
    ended, last = None, None
    for each in transactions(data):
        if each.type == CLOSE_SESSION and each.session == session:
            ended = each.time_ms
        elif ended is not None and each.type in CREATES and owners in each.record:
            last = each.time_ms
    assert ended is not None, f"session {session:#x} has not ended"
    assert last is not None, f"no owner node was created since session {session:#x} ended"
    return last - ended
