"""A server of the served tree and clients without sockets, in virtual time."""

import asyncio
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kafkalite._speedups.storage.file import Disk
from kafkalite.coordination import journal
from kafkalite.coordination.journal_file import open_journal
from kafkalite.coordination.served.server import TreeServer
from kafkalite.coordination.transactions import JournaledTree
from kafkalite.coordination.tree import WatchEvent
from kafkalite.coordination.zookeeper import protocol, records
from kafkalite.testing.virtual_clock import InlineOffload, SeededRandom, VirtualClock
from tests.kit.costly_clock import CostlyClock

NEW = (0, bytes(16))


class Bench:
    """The server over a journal in a directory; `restart` is what the death of its process means.

    With `compact_bytes` the journal is rewritten above this size, and its encoding needs many loop iterations.
    """

    def __init__(self, directory: Path, disk: Disk | None = None, compact_bytes: int | None = None) -> None:
        self._compact_bytes = compact_bytes
        self.clock = VirtualClock()
        self.disk = disk or Disk()
        self._path = str(directory / "journal")
        self._random = SeededRandom(0)
        self._open()

    def _open(self) -> None:
        self.offload = InlineOffload()
        file, tree = open_journal(self.disk, self._path, journal.SERVED_FORMAT)
        self.tree = JournaledTree(
            self.clock, tree, file, self.offload, version=journal.SERVED_FORMAT, compact_bytes=self._compact_bytes
        )
        if self._compact_bytes is not None:
            self.tree._slicer._clock = CostlyClock(self.clock)
        self.server = TreeServer(self.tree, self.clock, self._random)

    def write(self) -> None:
        """Run until the journal is written, if its jobs are not held."""
        self.offload.drain()
        while self.tree._encoding is not None:
            self.clock.advance(10)
            self.offload.drain()

    def restart(self) -> None:
        """End the server without any farewell, and start the next one from the journal."""
        self.server.close()
        self.tree.close()
        self._open()

    def close(self) -> None:
        self.server.close()
        self.tree.close()

    def client(self, timeout_ms: int = 6000, key: tuple[int, bytes] = NEW, last_zxid: int = 0) -> "RawClient":
        """A client that has sent its first frame."""
        client = RawClient(self)
        client.send(protocol.encode_connect(records.ConnectRequest(0, last_zxid, timeout_ms, *key, False)))
        self.offload.drain()
        client.greeting()
        return client


class RawTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self, descriptor: int = 3) -> None:
        super().__init__({"socket": SimpleNamespace(fileno=lambda: descriptor)})
        self.written = bytearray()
        self.buffered = 0
        self.closed = self.reading_paused = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.buffered


class RawClient:
    """Frames of a client: requests with numbers, decoded responses and events."""

    def __init__(self, bench: Bench) -> None:
        self.transport = RawTransport()
        self.key = NEW
        self.timeout_ms = -1
        self.events: list[WatchEvent] = []
        self._bench = bench
        self.connection = bench.server.accept()
        self.connection.connection_made(self.transport)
        self._frames = protocol.FrameReader(1 << 26)
        self._xids = itertools.count(1)
        self._opcodes: dict[int, int] = {protocol.PING_XID: protocol.OPCODES[records.PingRequest]}

    def send(self, data: bytes) -> None:
        self.connection.data_received(data)

    def request(self, *requests: Any) -> None:
        """Send requests in one piece."""
        self.send(b"".join(map(self.encoded, requests)))

    def encoded(self, request: Any) -> bytes:
        xid = protocol.PING_XID if isinstance(request, records.PingRequest) else next(self._xids)
        self._opcodes[xid] = protocol.OPCODES[type(request)]
        return protocol.encode_request(xid, request)

    def greeting(self) -> None:
        for frame in self._take():
            response = protocol.decode_connected(frame)
            self.key, self.timeout_ms = (response.session_id, response.password), response.timeout_ms

    def responses(self) -> list[tuple[int, Any]]:
        """(error, response) of what has arrived; events are kept apart."""
        found = []
        for frame in self._take():
            header = protocol.decode_header(frame)
            if header.xid == protocol.EVENT_XID:
                event = protocol.decode_event(frame)
                self.events.append(WatchEvent(protocol.EVENT_KINDS[event.type], event.path))
                continue
            body = None if header.error else protocol.decode_response(frame, self._opcodes[header.xid])
            found.append((header.error, body))
        return found

    def call(self, request: Any) -> tuple[int, Any]:
        """The (error, response) of one request, once the journal is written."""
        self.request(request)
        self._bench.offload.drain()
        (response,) = self.responses()
        return response

    def create(self, path: str, flags: int = 0, acl: Any = records.OPEN_ACL) -> int:
        """Create a node; returns the error."""
        return self.call(records.Create2Request(path, b"", acl, flags))[0]

    def exists(self, path: str) -> bool:
        return self.call(records.ExistsRequest(path, False))[0] == 0

    def disconnect(self) -> None:
        self.transport.closed = True
        self.connection.connection_lost(None)

    def _take(self) -> list[bytes]:
        data = bytes(self.transport.written)
        self.transport.written.clear()
        return list(self._frames.feed(data))
