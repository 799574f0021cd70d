"""A few requests as bytes, and a generator that sends them at a fixed rate (`_speedups.loadgen` sends all it can).

Requests are written out by hand here, not by kafkalite.protocol: the comparison must not depend on what it compares.
All answers to one such request have the same size on a broker, so a generator counts bytes instead of parsing.
Sources: the protocol guide of Apache Kafka (ApiVersions v0, Metadata v12, Produce v9, record batch v2).
"""

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence

from crc32c import crc32c

from perf.errors import VerificationError

CLIENT = b"perf"
SELECT_MAX = 1024  # select() knows no descriptors from here on


def frame(api_key: int, version: int, correlation_id: int, body: bytes, *, flexible: bool) -> bytes:
    """A request with its size: header v1, or v2 (tags) if flexible."""
    head = struct.pack(">hhih", api_key, version, correlation_id, len(CLIENT)) + CLIENT + (b"\0" if flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


def api_versions(correlation_id: int) -> bytes:
    return frame(18, 0, correlation_id, b"", flexible=False)


def metadata_of_all(correlation_id: int) -> bytes:
    """Metadata v12: topics null = all, no auto-creation, no authorised operations."""
    return frame(3, 12, correlation_id, b"\0\0\0\0", flexible=True)


def varint(value: int) -> bytes:
    """Unsigned LEB128; a record's own fields are zigzag: double the value first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def batch_of_one(value: bytes, timestamp_ms: int) -> bytes:
    """A record batch v2 with one record without key, not compressed."""
    record = b"\0\0\0\x01" + varint(2 * len(value)) + value + b"\0"
    records = varint(2 * len(record)) + record
    after_crc = struct.pack(">hiqqqhii", 0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1) + records
    head = struct.pack(">ibI", -1, 2, crc32c(after_crc))
    return struct.pack(">qi", 0, len(head) + len(after_crc)) + head + after_crc


def produce(topic: str, partition: int, batch: bytes, correlation_id: int = 0) -> bytes:
    """Produce v9, acks=all, one batch for one partition."""
    name = topic.encode()
    body = b"\0" + struct.pack(">hi", -1, 30_000) + b"\x02" + varint(len(name) + 1) + name
    body += b"\x02" + struct.pack(">i", partition) + varint(len(batch) + 1) + batch + b"\0\0\0"
    return frame(0, 9, correlation_id, body, flexible=True)


# In an answer to `produce`, from its end. v9 ends: partition error(2), base offset(8), append time(8), log start(8),
# record errors(1), message(1), tags(1), topic tags(1), throttle(4), tags(1).
PRODUCE_ERROR_AT = -35


def produce_error(answer: bytes) -> int:
    """The error code in an answer to `produce` without its size."""
    error: int = struct.unpack_from(">h", answer, len(answer) + PRODUCE_ERROR_AT)[0]
    return error


def produce_error_at(topic: str) -> int:
    """Where the same error code stands from the front: correlation id(4), tags(1), topics(1), name, partitions(1),
    index(4)."""
    return 4 + 1 + 1 + len(varint(len(topic) + 1)) + len(topic) + 1 + 4


def read_exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(count - len(parts), 1 << 20))
        if not part:
            raise VerificationError("the broker closed the connection")
        parts += part
    return bytes(parts)


def call(connection: socket.socket, request: bytes) -> bytes:
    """Send one request and read its answer, without the size."""
    connection.sendall(request)
    (size,) = struct.unpack(">i", read_exactly(connection, 4))
    return read_exactly(connection, size)


def connect(host: str, port: int) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Pipe:
    """One connection with requests under way; answers must all have the size and the shape of the first.

    error_at: where the error code stands in an answer without its size, from its end if negative. connection: one that
    is there already, with no request under way.
    """

    def __init__(
        self,
        host: str,
        port: int,
        requests: Sequence[bytes],
        error_at: int = PRODUCE_ERROR_AT,
        connection: socket.socket | None = None,
    ) -> None:
        self.socket = connect(host, port) if connection is None else connection
        first = call(self.socket, requests[0])
        self.size, self.sent, self.answered = len(first) + 4, 1, 1
        self._error_at = error_at + (4 if error_at >= 0 else self.size)
        if error := int.from_bytes(first[self._error_at - 4 : self._error_at - 2], "big", signed=True):
            self.socket.close()
            raise VerificationError(f"the first request was answered with error {error}")
        self._requests, self._tail, self._prefix = requests, b"", struct.pack(">i", len(first))

    def send(self, count: int) -> None:
        """Send the next requests, in turn."""
        many = len(self._requests)
        self.socket.sendall(b"".join(self._requests[(self.sent + i) % many] for i in range(count)))
        self.sent += count

    def receive(self) -> int:
        """Take what has come; how many answers that completed. Raises VerificationError if one is an error."""
        data = self._tail + self.socket.recv(1 << 18)
        if len(data) == len(self._tail):
            raise VerificationError("the broker closed the connection")
        whole = len(data) // self.size
        for number in range(whole):
            start, end = number * self.size, (number + 1) * self.size
            error = data[start + self._error_at : start + self._error_at + 2]
            if data[start : start + 4] != self._prefix or error != b"\0\0":
                raise VerificationError(f"a request was answered with {data[start:end].hex()}")
        self._tail = data[whole * self.size :]
        self.answered += whole
        return whole


def paced(pipes: Sequence[Pipe], rate: float, count: int) -> list[float]:
    """Send requests at a fixed rate, also while the broker stalls, and return the latency of each in seconds, from its
    scheduled time to its response.

    Arguments:
        pipes: the connections, used one after the other.
        rate: requests per second.
        count: number of requests.
    """
    of_fd = {pipe.socket.fileno(): (pipe, deque[float]()) for pipe in pipes}
    latencies: list[float] = []
    with select.epoll() as poll:
        for fd in of_fd:
            poll.register(fd, select.EPOLLIN)
        _pace(of_fd, poll, rate, count, latencies)
    return latencies


def _pace(
    of_fd: dict[int, tuple[Pipe, deque[float]]], poll: select.epoll, rate: float, count: int, latencies: list[float]
) -> None:
    connections_in_order = list(of_fd.values())
    planned, started = 0, time.perf_counter()
    while len(latencies) < count:
        now = time.perf_counter()
        while planned < count and started + planned / rate <= now:
            pipe, waiting = connections_in_order[planned % len(connections_in_order)]
            pipe.send(1)
            waiting.append(started + planned / rate)
            planned += 1
        pause = max(0.0, started + planned / rate - time.perf_counter()) if planned < count else 30.0
        if poll.fileno() < SELECT_MAX:
            select.select((poll,), (), (), pause)
            pause = 0.0
        ready = poll.poll(pause)  # by itself it waits for whole milliseconds, which is enough for thousands at rest
        if not ready and planned == count:
            raise VerificationError("no answer for 30 s")
        now = time.perf_counter()
        for fd, _ in ready:
            pipe, waiting = of_fd[fd]
            latencies.extend(now - waiting.popleft() for _ in range(pipe.receive()))
