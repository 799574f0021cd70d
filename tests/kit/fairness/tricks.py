"""What hostile clients do: each trick is one visit, of a second or two, and leaves nothing that belongs to the broker.

A trick gets a `Visit` and returns when it is over; what it did is in the broker's way only until then. Errors of the
broker are no failures here: it may close the connection of a client that exceeds a limit.
"""

import os
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from random import Random
from threading import Event

from perf.group_wire import find_coordinator, offset_commit
from perf.loads.fairness import wire
from perf.wire import api_versions, metadata_of_all

TIMEOUT_S = 20.0
HELD_S_MAX = 2.0
TCP_REPAIR = 19  # a socket in repair mode is closed without a packet, as when its machine vanishes (CAP_NET_ADMIN)
LONGEST_MS = 2**31 - 1
FRAME_BYTES = 24 << 20  # below socket.request.max.bytes of the rig
BOMB = wire.gzip_batch(bytes(1_000_000))
COMPRESSIBLE = wire.gzip_batch(b"%08d" * 100_000)
NAMES = [f"no-such-{number:06}" for number in range(60_000)]
RESET = struct.pack("ii", 1, 0)


@dataclass
class Visit:
    """What a trick needs: the broker's address, its dice, a topic that others read, and the event that ends early."""

    address: tuple[str, int]
    random: Random
    topic: str
    name: str
    over: Event

    def connect(self) -> socket.socket:
        connection = socket.create_connection(self.address, timeout=TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def hold(self) -> None:
        """Stay for a while."""
        self.over.wait(self.random.uniform(0.1, HELD_S_MAX))

    def leave(self, connection: socket.socket) -> None:
        """End the connection in one of the ways in which connections end: FIN, reset, or without a packet."""
        way = self.random.choice(("close", "reset", "vanish"))
        if way == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        elif way == "vanish" and os.geteuid() == 0:
            connection.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        connection.close()


Trick = Callable[[Visit], None]


def call(connection: socket.socket, request: bytes) -> bytes:
    """Send a request and return its response, without the size. Raises OSError when the connection ends."""
    connection.sendall(request)
    return response(connection)


def response(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(count - len(parts), 1 << 18))
        if not part:
            raise ConnectionResetError("the broker closed the connection")
        parts += part
    return bytes(parts)


def flood(connection: socket.socket, requests: Iterable[bytes]) -> None:
    """Send small requests in one piece and read all responses."""
    wanted = list(requests)
    connection.sendall(b"".join(wanted))
    for _ in wanted:
        response(connection)


def half_open(visit: Visit) -> None:
    """Part of a request, or none, and silence."""
    with ExitStack() as stack:
        for _ in range(visit.random.randint(1, 30)):
            connection = stack.enter_context(closing(visit.connect()))
            connection.sendall(metadata_of_all(1)[: visit.random.randrange(20)])
        visit.hold()


def delayed_fetches(visit: Visit) -> None:
    """Long polls that wait as long as the protocol allows, from a client that then leaves."""
    count = visit.random.choice((1, 100, 5_000))
    connection = visit.connect()
    delayed = wire.fetch({visit.topic: [0]}, offset=10**15, max_wait_ms=LONGEST_MS)
    waiting = wire.fetch({visit.name: [0]}, max_wait_ms=LONGEST_MS, min_bytes=1 << 20)
    connection.settimeout(HELD_S_MAX)
    try:
        connection.sendall(visit.random.choice((delayed, waiting)) * count)
    except TimeoutError:
        visit.hold()  # the broker does not read on, as it should not
    visit.leave(connection)


def slow_reader(visit: Visit) -> None:
    """Requests with large responses that are not read."""
    connection = visit.connect()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    request = visit.random.choice((wire.fetch({visit.topic: [0]}), metadata_of_all(1), wire.describe_log_dirs()))
    connection.sendall(request * 200)
    visit.hold()
    visit.leave(connection)


def slow_writers(visit: Visit) -> None:
    """Frames near the largest size, sent in part, from several connections."""
    with ExitStack() as stack:
        for _ in range(visit.random.randint(1, 8)):
            connection = stack.enter_context(closing(visit.connect()))
            connection.settimeout(HELD_S_MAX)
            _begin_frame(connection, visit.random.randrange(FRAME_BYTES))
        visit.hold()


def _begin_frame(connection: socket.socket, size: int) -> None:
    try:
        connection.sendall(struct.pack(">ihhih", FRAME_BYTES, 0, 7, 1, -1) + bytes(size))
    except TimeoutError as error:  # the broker does not read on: the limit of all requests is reached
        connection.settimeout(TIMEOUT_S)
        assert error.errno is None


def pipelined(visit: Visit) -> None:
    """Thousands of small requests at once."""
    count = visit.random.randint(100, 3_000)
    sorts = (api_versions(1), metadata_of_all(1), wire.list_groups("NoSuchState"), wire.describe_log_dirs())
    weights = (count, count // 50 + 1, count, count // 50 + 1)
    chosen = visit.random.randrange(len(sorts))
    with closing(visit.connect()) as connection:
        flood(connection, [sorts[chosen]] * weights[chosen])


def fetch_sessions(visit: Visit) -> None:
    """Incremental fetches of a session with many partitions, pipelined; sessions are closed or left open."""
    parts = {visit.name: range(visit.random.randint(100, 5_000))}
    connection = visit.connect()
    _, session = wire.session_of(call(connection, wire.fetch(parts, epoch=0)))
    flood(connection, [wire.fetch({}, session=session, epoch=epoch) for epoch in range(1, 100)])
    if visit.random.random() < 0.5:
        call(connection, wire.fetch({}, session=session, epoch=-1))
    visit.leave(connection)


def many_groups(visit: Visit) -> None:
    """Commits of hundreds of groups, members that never come back, and their deletion."""
    groups = [f"{visit.name}-{number}" for number in range(visit.random.randint(50, 1_000))]
    with closing(visit.connect()) as connection:
        call(connection, find_coordinator(groups[0]))
        flood(connection, [offset_commit(group, visit.topic, {0: 1}) for group in groups])
        call(connection, wire.list_groups())
        call(connection, wire.describe_groups(groups))
        member = wire.consumer_join(visit.name, "m", None, "no-such-.*")
        call(connection, member)
        call(connection, wire.join(f"{visit.name}-classic", visit.topic, 6_000))
        call(connection, wire.delete_groups(groups))


def many_topics(visit: Visit) -> None:
    """Topics are created, written and deleted."""
    topics, partitions = visit.random.choice(((1, 500), (100, 1), (20, 10)))
    names = [f"{visit.name}-{number}" for number in range(topics)]
    with closing(visit.connect()) as connection:
        call(connection, wire.create_topics(names, partitions))
        written = dict.fromkeys(range(min(partitions, 50)), wire.gzip_batch(bytes(100)))
        for name in names[:5]:
            call(connection, wire.produce(name, written))
        call(connection, wire.describe_configs(names))
        call(connection, wire.delete_topics(names))


def bombs(visit: Visit) -> None:
    """Batches that decompress to a thousand times their size."""
    count = visit.random.choice((1, 20, 100))
    with closing(visit.connect()) as connection:
        call(connection, wire.create_topics([visit.name], count))
        call(
            connection, wire.produce(visit.name, dict.fromkeys(range(count), visit.random.choice((BOMB, COMPRESSIBLE))))
        )
        call(connection, wire.delete_topics([visit.name]))


def huge_requests(visit: Visit) -> None:
    """Requests with about as many elements as the broker allows, or with a million unknown tags."""
    request = visit.random.choice(
        (
            lambda: wire.metadata(NAMES),
            lambda: wire.describe_groups(NAMES),
            lambda: wire.list_offsets({visit.topic: range(60_000)}),
            lambda: wire.fetch({visit.topic: range(60_000)}, max_wait_ms=LONGEST_MS),
            lambda: wire.describe_configs([visit.topic], None, 2_000),
            lambda: wire.tagged_metadata(1_000_000),
        )
    )
    with closing(visit.connect()) as connection:
        call(connection, request())


def garbage(visit: Visit) -> None:
    """Bytes that are no request."""
    with closing(visit.connect()) as connection:
        connection.sendall(visit.random.randbytes(visit.random.randint(1, 5_000)))
        visit.hold()


TRICKS: tuple[Trick, ...] = (
    half_open,
    delayed_fetches,
    slow_reader,
    slow_writers,
    pipelined,
    fetch_sessions,
    many_groups,
    many_topics,
    bombs,
    huge_requests,
    garbage,
)
