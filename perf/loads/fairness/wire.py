"""Requests of the hostile loads as bytes, and the few fields of their responses that the loads check.

The requests are written by hand, like those of `perf.wire`: the comparison does not depend on what it compares. The
versions are the last ones without flexible encoding that Apache Kafka 4.3 serves, where there is one.
Source: the protocol guide of Apache Kafka.
"""

import gzip
import struct
import time
from collections.abc import Iterable, Mapping, Sequence

from crc32c import crc32c

from perf.group_wire import Reader, compact, compact_array, data, text
from perf.wire import frame, varint

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
JOIN, SYNC, DESCRIBE_GROUPS, LIST_GROUPS = 11, 14, 15, 16
CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS, DESCRIBE_LOG_DIRS = 19, 20, 32, 35
DELETE_GROUPS, OFFSET_DELETE, CONSUMER_HEARTBEAT = 42, 47, 68
TOPIC_RESOURCE, GZIP = 2, 1
TIMEOUT_MS = 120_000
FETCH_BYTES_MAX = 1 << 20
FIRST_UNKNOWN_TAG = 100


def array(items: Iterable[bytes]) -> bytes:
    """An array of the plain encoding."""
    found = list(items)
    return struct.pack(">i", len(found)) + b"".join(found)


def names(items: Iterable[str]) -> bytes:
    return array(text(item) for item in items)


# topics


def create_topics(topics: Iterable[str], partitions: int, configs: Mapping[str, str] | None = None) -> bytes:
    """CreateTopics v4: every topic with so many partitions, one replica, and the configs."""
    settings = array(text(key) + text(value) for key, value in (configs or {}).items())
    head = struct.pack(">ihi", partitions, 1, 0)
    body = array(text(name) + head + settings for name in topics) + struct.pack(">i?", TIMEOUT_MS, False)
    return frame(CREATE_TOPICS, 4, 0, body, flexible=False)


def created(response: bytes) -> set[int]:
    """The error codes of a response to `create_topics`."""
    reader, found = Reader(response, 8), set()
    for _ in range(reader.int32()):
        reader.text()
        found.add(reader.int16())
        reader.text()
    return found


def delete_topics(topics: Iterable[str]) -> bytes:
    """DeleteTopics v3."""
    return frame(DELETE_TOPICS, 3, 0, names(topics) + struct.pack(">i", TIMEOUT_MS), flexible=False)


def deleted(response: bytes) -> set[int]:
    """The error codes of a response to `delete_topics` or `delete_groups`."""
    reader, found = Reader(response, 8), set()
    for _ in range(reader.int32()):
        reader.text()
        found.add(reader.int16())
    return found


def metadata(topics: Iterable[str]) -> bytes:
    """Metadata v4 of these topics, without auto-creation."""
    return frame(METADATA, 4, 0, names(topics) + b"\0", flexible=False)


def tagged_metadata(tags: int) -> bytes:
    """Metadata v12 of no topic, with so many empty unknown tags at its end."""
    unknown = b"".join(varint(FIRST_UNKNOWN_TAG + number) + b"\0" for number in range(tags))
    return frame(METADATA, 12, 0, b"\1\0\0" + varint(tags) + unknown, flexible=True)


def describe_configs(topics: Iterable[str], keys: Sequence[str] | None = None, repeat: int = 1) -> bytes:
    """DescribeConfigs v1 of topics, all keys (None) or these; each topic `repeat` times."""
    wanted = b"\xff\xff\xff\xff" if keys is None else names(keys)
    each = [struct.pack(">b", TOPIC_RESOURCE) + text(name) + wanted for name in topics]
    return frame(DESCRIBE_CONFIGS, 1, 0, array(each * repeat) + b"\0", flexible=False)


def describe_log_dirs() -> bytes:
    """DescribeLogDirs v1 of everything."""
    return frame(DESCRIBE_LOG_DIRS, 1, 0, b"\xff\xff\xff\xff", flexible=False)


# records


def gzip_batch(value: bytes) -> bytes:
    """A record batch v2 with one record, its key `k`, compressed by gzip."""
    now_ms = time.time_ns() // 1_000_000
    record = b"\0\0\0\x02k" + varint(2 * len(value)) + value + b"\0"
    records = gzip.compress(varint(2 * len(record)) + record, 6)
    after_crc = struct.pack(">hiqqqhii", GZIP, 0, now_ms, now_ms, -1, -1, -1, 1) + records
    head = struct.pack(">ibI", -1, 2, crc32c(after_crc))
    return struct.pack(">qi", 0, len(head) + len(after_crc)) + head + after_crc


def produce(topic: str, batches: Mapping[int, bytes]) -> bytes:
    """Produce v7, acks=all, one batch for each partition."""
    parts = array(struct.pack(">i", index) + data(batch) for index, batch in batches.items())
    body = text(None) + struct.pack(">hi", -1, 30_000) + array([text(topic) + parts])
    return frame(PRODUCE, 7, 0, body, flexible=False)


def produced(response: bytes) -> set[int]:
    """The error codes of a response to `produce`."""
    reader, found = Reader(response, 4), set()
    for _ in range(reader.int32()):
        reader.text()
        for _ in range(reader.int32()):
            reader.int32()
            found.add(reader.int16())
            reader.take(24)
    return found


def fetch(
    topics: Mapping[str, Sequence[int]],
    *,
    offset: int = 0,
    session: int = 0,
    epoch: int = -1,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
) -> bytes:
    """Fetch v11 from one offset; epoch -1: without a session, 0: begin one, above: an incremental one."""
    part_tail = struct.pack(">iqqi", -1, offset, -1, FETCH_BYTES_MAX)
    each = (text(name) + array(struct.pack(">i", index) + part_tail for index in of) for name, of in topics.items())
    limits = struct.pack(">iiiib", -1, max_wait_ms, min_bytes, FETCH_BYTES_MAX, 0)
    body = limits + struct.pack(">ii", session, epoch) + array(each) + array(()) + text("")
    return frame(FETCH, 11, 0, body, flexible=False)


def session_of(response: bytes) -> tuple[int, int]:
    """The error code and the fetch session of a response to `fetch`."""
    reader = Reader(response, 8)
    return reader.int16(), reader.int32()


def records_of(response: bytes) -> bytes:
    """The record batches in a response to `fetch` of one partition. Raises ValueError if it has an error code."""
    reader = Reader(response, 8)
    error, _, topics = reader.int16(), reader.int32(), reader.int32()
    if error or not topics:
        raise ValueError(f"a fetch failed with error {error} and {topics} topics")
    reader.text()
    reader.take(8)
    if error := reader.int16():
        raise ValueError(f"a fetch of a partition failed with error {error}")
    reader.take(24)
    for _ in range(reader.int32()):
        reader.take(16)
    reader.int32()
    return reader.data()


def list_offsets(topics: Mapping[str, Sequence[int]]) -> bytes:
    """ListOffsets v3 of the latest offsets."""
    each = (text(name) + array(struct.pack(">iq", index, -1) for index in of) for name, of in topics.items())
    return frame(LIST_OFFSETS, 3, 0, struct.pack(">ib", -1, 0) + array(each), flexible=False)


def listed(response: bytes) -> set[int]:
    """The error codes of a response to `list_offsets`."""
    reader, found = Reader(response, 8), set()
    for _ in range(reader.int32()):
        reader.text()
        for _ in range(reader.int32()):
            reader.int32()
            found.add(reader.int16())
            reader.take(16)
    return found


# groups


def list_groups(state: str | None = None) -> bytes:
    """ListGroups v4, of all groups or of those in a state."""
    return frame(LIST_GROUPS, 4, 0, compact_array([] if state is None else [compact(state)]) + b"\0", flexible=True)


def describe_groups(groups: Iterable[str]) -> bytes:
    """DescribeGroups v2."""
    return frame(DESCRIBE_GROUPS, 2, 0, names(groups), flexible=False)


def delete_groups(groups: Iterable[str]) -> bytes:
    """DeleteGroups v1."""
    return frame(DELETE_GROUPS, 1, 0, names(groups), flexible=False)


def delete_offsets(group: str, topics: Mapping[str, Sequence[int]]) -> bytes:
    """OffsetDelete v0."""
    each = (text(name) + array(struct.pack(">i", index) for index in of) for name, of in topics.items())
    return frame(OFFSET_DELETE, 0, 0, text(group) + array(each), flexible=False)


def join(group: str, topic: str, session_ms: int) -> bytes:
    """JoinGroup v3 of a new consumer, the last version that gives a member id at once (KIP-394)."""
    subscription = struct.pack(">hi", 0, 1) + text(topic) + data(b"")
    body = text(group) + struct.pack(">ii", session_ms, session_ms) + text("") + text("consumer")
    return frame(JOIN, 3, 0, body + array([text("range") + data(subscription)]), flexible=False)


def joined(response: bytes) -> tuple[int, int, str]:
    """Error code, generation and member id of a response to `join`."""
    reader = Reader(response, 8)
    error, generation = reader.int16(), reader.int32()
    reader.text()
    reader.text()
    return error, generation, reader.text()


def sync_alone(group: str, generation: int, member: str) -> bytes:
    """SyncGroup v2 of the leader of a group of one, with an empty assignment."""
    nothing = struct.pack(">hi", 0, 0) + data(b"")
    body = text(group) + struct.pack(">i", generation) + text(member) + array([text(member) + data(nothing)])
    return frame(SYNC, 2, 0, body, flexible=False)


def consumer_join(group: str, member: str, topics: Sequence[str] | None, pattern: str | None = None) -> bytes:
    """ConsumerGroupHeartbeat v1 with epoch 0: a member joins with topics or with a pattern (RE2)."""
    subscribed = b"\0" if topics is None else compact_array(compact(name) for name in topics)
    body = compact(group) + compact(member) + struct.pack(">i", 0) + b"\0\0" + struct.pack(">i", TIMEOUT_MS)
    return frame(CONSUMER_HEARTBEAT, 1, 0, body + subscribed + compact(pattern) + b"\0\1\0", flexible=True)
