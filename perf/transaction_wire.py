"""Requests of transactional producers (KIP-890, version 2) by hand as in `wire`, for the same reason; their clients.

Sources: the protocol guide of Apache Kafka (FindCoordinator v3, InitProducerId v4, AddPartitionsToTxn v3, Produce v12,
TxnOffsetCommit v5, EndTxn v5, Fetch v12, record batch v2).
"""

import select
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from crc32c import crc32c

from perf.brokers.base import Running
from perf.errors import VerificationError
from perf.group_wire import Reader, compact, compact_array
from perf.wire import call, connect, frame, read_exactly, varint

PRODUCE, FETCH, FIND_COORDINATOR, INIT, ADD, END, OFFSETS = 0, 1, 10, 22, 24, 26, 28
TRANSACTIONAL = 0x10
READ_COMMITTED = 1
TIMEOUT_MS = 60_000
SECONDS_MAX = 60.0
CONCURRENT = 51  # the previous transaction is not complete yet
NOT_YET = {3, 14, 15, 16, CONCURRENT}  # the coordinator is being made or loaded
PAUSE_S = 0.01


class Session(NamedTuple):
    """A producer id and an epoch."""

    producer_id: int
    epoch: int


def find_coordinator(key: str, kind: int) -> bytes:
    return frame(FIND_COORDINATOR, 3, 0, compact(key) + struct.pack(">b", kind) + b"\0", flexible=True)


def init_producer_id(transactional_id: str) -> bytes:
    body = compact(transactional_id) + struct.pack(">iqh", TIMEOUT_MS, -1, -1) + b"\0"
    return frame(INIT, 4, 0, body, flexible=True)


def end_txn(transactional_id: str, session: Session, *, committed: bool) -> bytes:
    body = compact(transactional_id) + struct.pack(">qh?", *session, committed) + b"\0"
    return frame(END, 5, 0, body, flexible=True)


def add_partitions(transactional_id: str, session: Session, partitions: Mapping[str, Sequence[int]]) -> bytes:
    """AddPartitionsToTxn v3 of partitions by topic."""
    topics = [
        compact(name) + compact_array([struct.pack(">i", at) for at in numbers]) + b"\0"
        for name, numbers in partitions.items()
    ]
    body = compact(transactional_id) + struct.pack(">qh", *session) + compact_array(topics) + b"\0"
    return frame(ADD, 3, 0, body, flexible=True)


def add_partitions_error(answer: bytes) -> int:
    """The first error code of a partition in a response to `add_partitions` without its size, 0 = none."""
    return _partition_error(Reader(answer, 4 + 1 + 4), 1)  # behind the throttle time; tags


def _partition_error(reader: Reader, rest: int) -> int:
    """The first error code in an array of topics with partitions, which have `rest` bytes behind it; 0 = none."""
    for _ in range(reader.count()):
        reader.compact()
        for _ in range(reader.count()):
            reader.int32()
            if error := reader.int16():
                return error
            reader.take(rest)
        reader.take(1)
    return 0


def session_of(answer: bytes) -> tuple[int, Session]:
    """The error code, and id and epoch, in a response to InitProducerId or EndTxn without its size."""
    error, producer_id, epoch = struct.unpack_from(">hqh", answer, 9)
    return error, Session(producer_id, epoch)


def batch_of(session: Session, sequence: int, values: Sequence[bytes], timestamp_ms: int) -> bytes:
    """A transactional record batch v2 without keys, not compressed."""
    records = bytearray()
    for number, value in enumerate(values):
        record = b"\0\0" + varint(2 * number) + b"\x01" + varint(2 * len(value)) + value + b"\0"
        records += varint(2 * len(record)) + record
    last, count = len(values) - 1, len(values)
    head = struct.pack(">hiqqqhii", TRANSACTIONAL, last, timestamp_ms, timestamp_ms, *session, sequence, count)
    after_crc = head + records
    start = struct.pack(">ibI", -1, 2, crc32c(after_crc))
    return struct.pack(">qi", 0, len(start) + len(after_crc)) + start + after_crc


def produce(transactional_id: str, topic: str, parts: Sequence[tuple[int, bytes]]) -> bytes:
    """Produce v12, acks=all, batches for partitions of one topic."""
    partitions = [struct.pack(">i", at) + varint(len(batch) + 1) + batch + b"\0" for at, batch in parts]
    topics = compact_array([compact(topic) + compact_array(partitions) + b"\0"])
    body = compact(transactional_id) + struct.pack(">hi", -1, 30_000) + topics + b"\0"
    return frame(PRODUCE, 12, 0, body, flexible=True)


def produce_error(answer: bytes) -> int:
    """The first error code of a partition in a response to `produce` without its size, 0 = none."""
    return _partition_error(Reader(answer, 4 + 1), 3 * 8 + 3)  # offsets and time; no record errors, message or tags


def offset_commit(transactional_id: str, group: str, session: Session, topic: str, offset: int) -> bytes:
    """TxnOffsetCommit v5 of partition 0, by a producer whose consumer is no member of the group."""
    partition = struct.pack(">iqi", 0, offset, -1) + b"\0\0"
    topics = compact_array([compact(topic) + compact_array([partition]) + b"\0"])
    ids = compact(transactional_id) + compact(group) + struct.pack(">qhi", *session, -1) + compact("") + b"\0"
    return frame(OFFSETS, 5, 0, ids + topics + b"\0", flexible=True)


def offset_commit_error(answer: bytes, topic: str) -> int:
    """The error code of the partition in a response to `offset_commit` without its size."""
    at = 4 + 1 + 4 + 1 + len(compact(topic)) + 1 + 4
    return int.from_bytes(answer[at : at + 2], "big", signed=True)


def fetch(topic: str, offset: int, wait_ms: int) -> bytes:
    """Fetch v12 of partition 0 with read_committed."""
    partition = struct.pack(">iiqiqi", 0, -1, offset, -1, -1, 1 << 20) + b"\0"
    topics = compact_array([compact(topic) + compact_array([partition]) + b"\0"])
    head = struct.pack(">iiiibii", -1, wait_ms, 1, 1 << 20, READ_COMMITTED, 0, -1)
    return frame(FETCH, 12, 0, head + topics + b"\x01" + compact("") + b"\0", flexible=True)


def last_stable_offset(answer: bytes, topic: str) -> int:
    """The last stable offset in a response to `fetch` without its size. Raises VerificationError."""
    at = 4 + 1 + 4 + 2 + 4 + 1 + len(compact(topic)) + 1 + 4
    error, _, stable = struct.unpack_from(">hqq", answer, at)
    if error:
        raise VerificationError(f"a fetch of {topic} was answered with error {error}")
    return int(stable)


class Client:
    """A transactional producer with one request under way, at the broker that leads and coordinates all.

    Arguments:
        broker: the broker.
        transactional_id: of the producer.
        topic: that it writes to.
    """

    def __init__(self, broker: Running, transactional_id: str, topic: str) -> None:
        self.transactional_id, self.topic = transactional_id, topic
        self.connection = connect(broker.host, broker.port)
        self.retries = 0
        self._sequences: dict[int, int] = {}
        self.session = self._begin()

    def _begin(self) -> Session:
        self._retry(lambda: call(self.connection, find_coordinator(self.transactional_id, 1)), _error_at_9)
        answer = self._retry(lambda: call(self.connection, init_producer_id(self.transactional_id)), _error_at_9)
        return session_of(answer)[1]

    def _retry(self, step: Callable[[], bytes], error_of: Callable[[bytes], int]) -> bytes:
        """The response without an error. Raises VerificationError for other errors and after a minute."""
        deadline = time.monotonic() + SECONDS_MAX
        while (error := error_of(answer := step())) in NOT_YET and time.monotonic() < deadline:
            self.retries += 1
            time.sleep(PAUSE_S)  # nothing announces it
        if error:
            raise VerificationError(f"{self.transactional_id}: a request was answered with error {error}")
        return answer

    def produce_request(self, partitions: Sequence[int], values: Sequence[bytes]) -> bytes:
        """A request with these values for each of the partitions."""
        parts = []
        for at in partitions:
            sequence = self._sequences.get(at, 0)
            self._sequences[at] = sequence + len(values)
            parts.append((at, batch_of(self.session, sequence, values, time.time_ns() // 1_000_000)))
        return produce(self.transactional_id, self.topic, parts)

    def add(self, partitions: Mapping[str, Sequence[int]]) -> None:
        """Add partitions by topic to the transaction, once the former one is complete. Raises VerificationError."""
        request = add_partitions(self.transactional_id, self.session, partitions)
        self._retry(lambda: call(self.connection, request), add_partitions_error)

    def send(self, partitions: Sequence[int], values: Sequence[bytes]) -> None:
        """Append values, and wait for the acknowledgement. Raises VerificationError."""
        request = self.produce_request(partitions, values)
        self._retry(lambda: call(self.connection, request), produce_error)

    def end_request(self, *, committed: bool = True) -> bytes:
        return end_txn(self.transactional_id, self.session, committed=committed)

    def ended(self, answer: bytes) -> None:
        """Continue with the next epoch. Raises VerificationError for an error."""
        error, self.session = session_of(answer)
        self._sequences.clear()
        if error:
            raise VerificationError(f"{self.transactional_id}: EndTxn was answered with error {error}")

    def end(self, *, committed: bool = True) -> None:
        """Commit or abort, and wait for the response. Raises VerificationError."""
        self.ended(call(self.connection, self.end_request(committed=committed)))

    def close(self) -> None:
        self.connection.close()


def _error_at_9(answer: bytes) -> int:
    return int.from_bytes(answer[9:11], "big", signed=True)


class OffsetSender:
    """A producer whose transactions have one record and one offset; the requests follow each other back to back."""

    def __init__(self, client: Client, group: str, value: bytes) -> None:
        self.client, self.group = client, group
        self.ended = 0
        self._value = value
        self._waits_for = END
        self._request = b""

    def next(self) -> None:
        """Send the request that follows."""
        client = self.client
        if self._waits_for == END:
            self._waits_for, self._request = PRODUCE, client.produce_request([0], [self._value])
        elif self._waits_for == PRODUCE:
            commit = offset_commit(client.transactional_id, self.group, client.session, client.topic, self.ended)
            self._waits_for, self._request = OFFSETS, commit
        else:
            self._waits_for, self._request = END, client.end_request()
        client.connection.sendall(self._request)

    def receive(self) -> bool:
        """Take the response; whether a transaction has ended. Raises VerificationError."""
        client = self.client
        (size,) = struct.unpack(">i", read_exactly(client.connection, 4))
        answer = read_exactly(client.connection, size)
        if self._waits_for == END:
            client.ended(answer)
            self.ended += 1
            return True
        error = produce_error(answer) if self._waits_for == PRODUCE else offset_commit_error(answer, client.topic)
        if error in NOT_YET:
            client.retries += 1
            client.connection.sendall(self._request)
            return False
        if error:
            raise VerificationError(f"{client.transactional_id}: request {self._waits_for} has error {error}")
        return False


def drive_all(senders: Sequence[OffsetSender], count: int) -> float:
    """Run transactions on all connections until so many have ended in all; the seconds that they took."""
    of_fd = {sender.client.connection.fileno(): sender for sender in senders}
    begun = ended = 0
    started = time.perf_counter()
    with select.epoll() as poll:
        for fd, sender in of_fd.items():
            poll.register(fd, select.EPOLLIN)
            sender.next()
            begun += 1
        while ended < begun:
            ready = poll.poll(SECONDS_MAX)
            if not ready:
                raise VerificationError(f"no response for {SECONDS_MAX:.0f} s")
            for fd, _ in ready:
                sender = of_fd[fd]
                before = sender.client.retries
                if sender.receive():
                    ended += 1
                    if begun < count:
                        begun += 1
                        sender.next()
                elif sender.client.retries == before:
                    sender.next()
    return time.perf_counter() - started
