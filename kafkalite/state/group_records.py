"""The records of `__consumer_offsets` as the machines know them: plain values, without versions or bytes.

`coordinators` maps each to the stored key and value that Kafka writes. Times are wall time in ms, -1 = not set.
Source: the files `*Key.json` and `*Value.json` of Apache Kafka's group coordinator.
"""

from typing import NamedTuple

from kafkalite.model import ZERO_UUID

__all__ = [
    "CLASSIC",
    "CONSUMER",
    "ClassicGroup",
    "ClassicMember",
    "GroupDeleted",
    "OffsetCommitted",
    "OffsetDeleted",
    "TransactionEnded",
    "TransactionalOffset",
]

CLASSIC = "classic"
CONSUMER = "consumer"


class OffsetCommitted(NamedTuple):
    """A group has read a partition up to `offset` (the next one to read).

    Arguments:
        leader_epoch: epoch of the last record read, -1 = unknown.
        expire_timestamp_ms: -1 = as `offsets.retention.minutes` says; only requests of old versions set it.
        topic_id: 16 bytes, zeros = unknown.
    """

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: bytes = ZERO_UUID


class OffsetDeleted(NamedTuple):
    """A tombstone: the group has no committed offset for the partition any more."""

    group: str
    topic: str
    partition: int


class TransactionalOffset(NamedTuple):
    """A commit within the transaction of `producer_id`: pending until its marker.

    The log stores it as an offset commit in a transactional batch.
    """

    producer_id: int
    committed: OffsetCommitted


class TransactionEnded(NamedTuple):
    """The marker of a transaction of `producer_id`: its pending offsets become visible, or are dropped."""

    producer_id: int
    committed: bool


class ClassicMember(NamedTuple):
    """A member of a classic group. `subscription` is its metadata under the group's protocol; timeouts in ms."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class ClassicGroup(NamedTuple):
    """A classic group in one generation, whole. Without members it is Empty, else Stable."""

    group: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[ClassicMember, ...]


class GroupDeleted(NamedTuple):
    """A tombstone of the group itself. `kind` is "classic" or "consumer": which record type it deletes."""

    group: str
    kind: str
