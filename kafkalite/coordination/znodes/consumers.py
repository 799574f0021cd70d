"""Nodes of groups below `/consumers`, as consumers of Kafka 0.8 to 1.1 write them (ZkUtils.scala, TopicCount.scala).

- `/consumers/G/ids/ID` (ephemeral): the registration of a consumer, JSON.
- `/consumers/G/owners/T/P` (ephemeral): the id of the stream that reads the partition, text.
- `/consumers/G/offsets/T/P`: the next offset, decimal text.

Contents that Java's consumers never write raise `ZnodeError`, whose message names the path.

Deviation: a regular expression is escaped once, as JSON requires and as Kafka before 1.0.1 does. Kafka 1.0.1 and 1.1
escape it twice: a consumer of theirs that registers the pattern `a\\.b` reads its own pattern as `a\\\\.b`. It is
decoded as those consumers decode it.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.coordination.tree import PATH
from kafkalite.coordination.znodes.fields import INT64_MAX, ZnodeError, ZnodeReader, dump, is_encodable, is_whole, parse
from kafkalite.coordination.znodes.names import is_number

CONSUMERS = "/consumers"
STATIC = "static"
WHITE_LIST = "white_list"
BLACK_LIST = "black_list"
VERSION = 1
STREAMS_MAX = 10_000  # of one consumer and topic; each is an entry of the assignment
REGISTRATION_BYTES_MAX = 1024 * 1024
OWNER_BYTES_MAX = 4096
_OFFSET = re.compile(rb"-?[0-9]{1,19}")
_BROKER_PARTITION = re.compile(r"[0-9]{1,10}-[0-9]{1,10}")


# Paths.


def group_path(group: str) -> str:
    """Node of a group."""
    return f"{CONSUMERS}/{group}"


def ids_path(group: str) -> str:
    """Node above the registrations."""
    return f"{CONSUMERS}/{group}/ids"


def id_path(group: str, consumer_id: str) -> str:
    """Node of the registration of a consumer."""
    return f"{CONSUMERS}/{group}/ids/{consumer_id}"


def owners_path(group: str) -> str:
    """Node above the owners of all topics."""
    return f"{CONSUMERS}/{group}/owners"


def topic_owners_path(group: str, topic: str) -> str:
    """Node above the owners of a topic."""
    return f"{CONSUMERS}/{group}/owners/{topic}"


def owner_path(group: str, topic: str, partition: int) -> str:
    """Node of the owner of a partition."""
    return f"{CONSUMERS}/{group}/owners/{topic}/{partition}"


def offsets_path(group: str) -> str:
    """Node above the offsets of all topics."""
    return f"{CONSUMERS}/{group}/offsets"


def topic_offsets_path(group: str, topic: str) -> str:
    """Node above the offsets of a topic."""
    return f"{CONSUMERS}/{group}/offsets/{topic}"


def offset_path(group: str, topic: str, partition: int) -> str:
    """Node of the offset of a partition."""
    return f"{CONSUMERS}/{group}/offsets/{topic}/{partition}"


def check_group(group: str) -> None:
    """Raises: ValueError if a group's name cannot be the name of a node; Kafka's consumers do not encode it."""
    if "/" in group or PATH.fullmatch(group_path(group)) is None:
        raise ValueError(f"group {group!r}: not the name of a znode; '/' and control characters are not allowed")


def partition_of(name: str) -> int | None:
    """The partition in the name of a node below the owners or offsets of a topic, None = it is not a number."""
    return int(name) if is_number(name) else None


def is_broker_partition(name: str) -> bool:
    """Whether the name of a node is `BROKER-PARTITION`, as Kafka before 0.8 wrote it."""
    return _BROKER_PARTITION.fullmatch(name) is not None


# Registrations.


class Registration(NamedTuple):
    """What a consumer reads.

    Attributes:
        subscription: streams by topic; of a pattern, one entry whose key is the regular expression.
        pattern: STATIC, WHITE_LIST or BLACK_LIST.
        timestamp_ms: when it was written, None = the node has no valid time; no release reads it.
    """

    subscription: Mapping[str, int]
    pattern: str = STATIC
    timestamp_ms: int | None = None


def encode_registration(registration: Registration) -> bytes:
    """`/consumers/G/ids/ID`, version 1, with the fields in the order of Java."""
    return dump(
        {
            "version": VERSION,
            "subscription": dict(registration.subscription),
            "pattern": registration.pattern,
            "timestamp": str(registration.timestamp_ms or 0),
        }
    )


def decode_registration(path: str, data: bytes) -> Registration:
    """`/consumers/G/ids/ID`.

    A pattern of another name, or one without an entry, is static, as in Java (TopicCount.constructTopicCount).

    Raises: ZnodeError for content that is not JSON, another version, missing fields, or counts that are not positive.
    """
    if len(data) > REGISTRATION_BYTES_MAX:
        raise ZnodeError(f"{path}: {len(data)} bytes, the limit is {REGISTRATION_BYTES_MAX}")
    content = parse(path, data)
    fields = ZnodeReader(path, content)
    version = fields.whole("version", VERSION)
    if version != VERSION:
        raise ZnodeError(f"{path}: version {version} is not supported, expected {VERSION}")
    subscription, pattern = content.get("subscription"), fields.text("pattern")
    if not isinstance(subscription, dict) or not all(map(_is_subscribed, subscription.items())):
        raise fields.wrong("subscription")
    if pattern in (WHITE_LIST, BLACK_LIST) and subscription:
        if len(subscription) > 1:
            raise fields.wrong("subscription")
    else:
        pattern = STATIC
    return Registration(subscription, pattern, _timestamp(content.get("timestamp")))


def _is_subscribed(entry: tuple[str, object]) -> bool:
    name, streams = entry
    if isinstance(streams, bool) or not isinstance(streams, int):
        return False
    return 1 <= streams <= STREAMS_MAX and is_encodable(name)


def _timestamp(value: object) -> int | None:
    return int(value) if isinstance(value, str) and is_whole(value, digits=18) else None


# Owners.


class StreamId(NamedTuple):
    """A stream of a consumer: ConsumerThreadId of Kafka."""

    consumer_id: str
    stream: int

    def __str__(self) -> str:
        return f"{self.consumer_id}-{self.stream}"


def encode_owner(stream: StreamId) -> bytes:
    """`/consumers/G/owners/T/P`."""
    return str(stream).encode()


def decode_owner(path: str, data: bytes) -> StreamId:
    """`/consumers/G/owners/T/P`; raises ZnodeError."""
    if len(data) > OWNER_BYTES_MAX:
        raise ZnodeError(f"{path}: {len(data)} bytes, the limit is {OWNER_BYTES_MAX}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ZnodeError(f"{path}: not UTF-8") from error
    consumer_id, dash, stream = text.rpartition("-")
    if not (consumer_id and dash and is_number(stream)):
        raise ZnodeError(f"{path}: {text[:100]!r} is not the id of a stream")
    return StreamId(consumer_id, int(stream))


# Offsets.


def encode_offset(offset: int) -> bytes:
    """`/consumers/G/offsets/T/P`."""
    return str(offset).encode()


def decode_offset(path: str, data: bytes) -> int:
    """`/consumers/G/offsets/T/P`, a whole number of 64 bits; Java takes -1 as no offset. Raises ZnodeError."""
    if _OFFSET.fullmatch(data) is None or not -INT64_MAX - 1 <= int(data) <= INT64_MAX:
        raise ZnodeError(f"{path}: {data[:40]!r} is not an offset")
    return int(data)
