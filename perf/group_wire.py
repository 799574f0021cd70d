"""Encodes requests of groups and decodes their responses, by hand as in `wire`, for the same reason.

Plain versions where clients' newest ones differ in the encoding alone. Sources: the protocol guide of Apache Kafka,
ConsumerProtocolSubscription and ConsumerProtocolAssignment v0 for the data that members exchange.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from perf.wire import frame, varint

FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH, JOIN, HEARTBEAT, LEAVE, SYNC, CONSUMER_HEARTBEAT = (
    10, 8, 9, 11, 12, 13, 14, 68,
)  # fmt: skip
# Where the error code of an answer stands, behind correlation id, tags of the header and throttle time.
ERROR_AT = 8
FLEXIBLE_ERROR_AT = 9
FETCH_ERROR_AT = -4  # OffsetFetch v9 of one group ends: error(2), tags(1), tags(1)
SESSION_MS = REBALANCE_MS = 120_000
OWNED = Mapping[bytes, Sequence[int]]  # partitions by topic id


def text(value: str | None) -> bytes:
    """A string of the plain encoding, None = null."""
    return b"\xff\xff" if value is None else struct.pack(">h", len(value)) + value.encode()


def data(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def compact(value: str | None) -> bytes:
    return b"\0" if value is None else varint(len(value) + 1) + value.encode()


def compact_array(items: Iterable[bytes]) -> bytes:
    found = list(items)
    return varint(len(found) + 1) + b"".join(found)


class Reader:
    """Fields of an answer in their order."""

    def __init__(self, answer: bytes, at: int) -> None:
        self._answer, self._at = answer, at

    def take(self, count: int) -> bytes:
        taken = self._answer[self._at : self._at + count]
        if len(taken) != count:
            raise ValueError(f"an answer ends {count - len(taken)} bytes early")
        self._at += count
        return taken

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self.take(8), "big", signed=True)

    def text(self) -> str:
        return self.take(max(self.int16(), 0)).decode()

    def data(self) -> bytes:
        return self.take(max(self.int32(), 0))

    def varint(self) -> int:
        total = shift = 0
        while (byte := self.take(1)[0]) > 0x7F:
            total |= (byte & 0x7F) << shift
            shift += 7
        return total | byte << shift

    def compact(self) -> str:
        return self.take(max(self.varint() - 1, 0)).decode()

    def count(self) -> int:
        """The length of a compact array."""
        return max(self.varint() - 1, 0)


def error_of(answer: bytes, at: int = ERROR_AT) -> int:
    return Reader(answer, at).int16()


def find_coordinator(group: str) -> bytes:
    """v2; the answer's error stands at ERROR_AT."""
    return frame(FIND_COORDINATOR, 2, 0, text(group) + b"\0", flexible=False)


# offsets


def offset_commit(group: str, topic: str, offsets: Mapping[int, int]) -> bytes:
    """OffsetCommit v9 of a consumer that is no member, one topic."""
    parts = compact_array(struct.pack(">iqi", part, offset, -1) + b"\1\0" for part, offset in offsets.items())
    topics = compact_array([compact(topic) + parts + b"\0"])
    body = compact(group) + struct.pack(">i", -1) + compact("") + b"\0" + topics + b"\0"
    return frame(OFFSET_COMMIT, 9, 0, body, flexible=True)


def commit_error_at(topic: str) -> int:
    """Where the error of the first partition stands: correlation id, tags, throttle time, topics, name, partitions,
    index."""
    return 4 + 1 + 4 + 1 + len(compact(topic)) + 1 + 4


def offset_fetch(groups: Sequence[str], topic: str, partitions: Sequence[int]) -> bytes:
    """OffsetFetch v9, the same partitions of every group."""
    indexes = compact_array(struct.pack(">i", part) for part in partitions)
    topics = compact_array([compact(topic) + indexes + b"\0"])
    each = (compact(group) + b"\0" + struct.pack(">i", -1) + topics + b"\0" for group in groups)
    return frame(OFFSET_FETCH, 9, 0, compact_array(each) + b"\0\0", flexible=True)


class FetchedGroup(NamedTuple):
    """A group of an OffsetFetch answer; offsets by partition of its one topic."""

    group: str
    offsets: dict[int, int]
    error: int


def fetched(answer: bytes) -> list[FetchedGroup]:
    """The groups of an answer to `offset_fetch`."""
    reader = Reader(answer, FLEXIBLE_ERROR_AT)
    return [_fetched_group(reader) for _ in range(reader.count())]


def _fetched_group(reader: Reader) -> FetchedGroup:
    name, offsets, error = reader.compact(), dict[int, int](), 0
    for _ in range(reader.count()):
        reader.compact()
        for _ in range(reader.count()):
            part, offset, _ = reader.int32(), reader.int64(), reader.int32()
            reader.compact()
            error, offsets[part] = reader.int16() or error, offset
            reader.take(1)
        reader.take(1)
    error = reader.int16() or error
    reader.take(1)
    return FetchedGroup(name, offsets, error)


# classic members


def join(group: str, member: str, topic: str) -> bytes:
    """JoinGroup v5 of a consumer that reads one topic."""
    subscription = struct.pack(">hi", 0, 1) + text(topic) + data(b"")
    body = text(group) + struct.pack(">ii", SESSION_MS, REBALANCE_MS) + text(member) + text(None) + text("consumer")
    return frame(JOIN, 5, 0, body + struct.pack(">i", 1) + text("range") + data(subscription), flexible=False)


class Joined(NamedTuple):
    """An answer to `join`; members only where the receiver leads."""

    error: int
    generation: int
    member: str
    members: list[str]


def joined(answer: bytes) -> Joined:
    reader = Reader(answer, ERROR_AT)
    error, generation, _, _, member = reader.int16(), reader.int32(), reader.text(), reader.text(), reader.text()
    members = []
    for _ in range(reader.int32()):
        members.append(reader.text())
        reader.text()
        reader.data()
    return Joined(error, generation, member, members)


def sync(group: str, generation: int, member: str, topic: str, assigned: Mapping[str, Sequence[int]]) -> bytes:
    """SyncGroup v3; `assigned`: partitions by member, of the leader."""
    parts = (text(each) + data(_assignment(topic, partitions)) for each, partitions in assigned.items())
    body = text(group) + struct.pack(">i", generation) + text(member) + text(None) + struct.pack(">i", len(assigned))
    return frame(SYNC, 3, 0, body + b"".join(parts), flexible=False)


def _assignment(topic: str, partitions: Sequence[int]) -> bytes:
    indexes = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 0, 1) + text(topic) + indexes + data(b"")


def synced(answer: bytes) -> list[int]:
    """The partitions in an answer without error to `sync`."""
    reader = Reader(Reader(answer, ERROR_AT + 2).data(), 2)
    reader.int32()
    reader.text()
    return [reader.int32() for _ in range(reader.int32())]


def heartbeat(group: str, generation: int, member: str) -> bytes:
    body = text(group) + struct.pack(">i", generation) + text(member) + text(None)
    return frame(HEARTBEAT, 3, 0, body, flexible=False)


def leave(group: str, member: str) -> bytes:
    return frame(LEAVE, 2, 0, text(group) + text(member), flexible=False)


# members of consumer groups (KIP-848)


def consumer_heartbeat(
    group: str, member: str, epoch: int, *, topic: str | None = None, owned: OWNED | None = None
) -> bytes:
    """ConsumerGroupHeartbeat v1; `topic` and `owned` only where they changed."""
    topics = b"\0" if topic is None else compact_array([compact(topic)])
    timeout = -1 if topic is None else REBALANCE_MS
    body = compact(group) + compact(member) + struct.pack(">i", epoch) + b"\0\0" + struct.pack(">i", timeout)
    return frame(CONSUMER_HEARTBEAT, 1, 0, body + topics + b"\0\0" + _owned(owned) + b"\0", flexible=True)


def _owned(owned: OWNED | None) -> bytes:
    if owned is None:
        return b"\0"
    return compact_array(
        topic_id + compact_array(struct.pack(">i", part) for part in parts) + b"\0" for topic_id, parts in owned.items()
    )


class Beaten(NamedTuple):
    """An answer to `consumer_heartbeat`; assigned None = as before."""

    error: int
    epoch: int
    assigned: dict[bytes, list[int]] | None


def beaten(answer: bytes) -> Beaten:
    reader = Reader(answer, FLEXIBLE_ERROR_AT)
    error, _, _, epoch, _ = reader.int16(), reader.compact(), reader.compact(), reader.int32(), reader.int32()
    if reader.take(1) != b"\1":
        return Beaten(error, epoch, None)
    assigned = {}
    for _ in range(reader.count()):
        topic_id = reader.take(16)
        assigned[topic_id] = [reader.int32() for _ in range(reader.count())]
        reader.take(1)
    return Beaten(error, epoch, assigned)
