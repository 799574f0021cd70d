"""The embedded consumer protocol of classic groups: subscriptions and assignments, versions 0 to 3.

The broker reads these bytes only to display them and to convert groups. As in Kafka's clients, a newer version is read
as the newest known one: later versions may only add fields at the end.
Source: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json of Apache Kafka 4.3, ConsumerProtocol.java.
"""

from typing import TypeVar

from kafkalite._speedups.codec import decode, encode
from kafkalite.errors import DecodeError
from kafkalite.protocol.schema import Message, Struct, binary, field, int32, string

VERSION_MAX = 3
PREFIX_SIZE = 2


class ConsumerProtocolSubscription(Message, versions=(0, VERSION_MAX)):
    """The subscribed topics of a member, and its owned partitions in generation `generation_id`."""

    class TopicPartition(Struct):
        topic: string
        partitions: list[int32]

    topics: list[string]
    user_data: binary | None = None
    owned_partitions: list[TopicPartition] = field(since=1, factory=list)
    generation_id: int32 = field(since=2, default=-1)
    rack_id: string | None = field(since=3, default=None)


class ConsumerProtocolAssignment(Message, versions=(0, VERSION_MAX)):
    """The partitions that the leader has assigned to a member."""

    class TopicPartition(Struct):
        topic: string
        partitions: list[int32]

    assigned_partitions: list[TopicPartition]
    user_data: binary | None = None


Payload = TypeVar("Payload", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


def version_of(data: bytes) -> int:
    """The version of a subscription or assignment; the assignment of a member has that of its subscription.

    Raises: DecodeError if it is missing or negative.
    """
    if len(data) < PREFIX_SIZE:
        raise DecodeError("truncated", f"no version in {len(data)} bytes")
    version = int.from_bytes(data[:PREFIX_SIZE], "big", signed=True)
    if version < 0:
        raise DecodeError("version", f"version {version} of the consumer protocol")
    return version


def _read(cls: type[Payload], data: bytes) -> Payload:
    return decode(cls, min(version_of(data), VERSION_MAX), data[PREFIX_SIZE:], exact=False)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """The subscription in JoinGroup's metadata. Raises: DecodeError; its position counts from behind the version."""
    return _read(ConsumerProtocolSubscription, data)


def read_subscribed_topics(data: bytes) -> list[str]:
    """The topics of a subscription, whatever follows them: all versions begin with them, and some clients leave out
    fields of their version. Raises: DecodeError.

    Source: ClassicGroup.computeSubscribedTopics of Apache Kafka, which reads each subscription as version 0.
    """
    version_of(data)
    return decode(ConsumerProtocolSubscription, 0, data[PREFIX_SIZE:], exact=False).topics


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """The assignment in SyncGroup; without bytes it is empty.

    Raises: DecodeError; its position counts from behind the version.
    """
    return _read(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment(assigned_partitions=[])


def write(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int = VERSION_MAX) -> bytes:
    """The bytes of a subscription or assignment in a version of 0 to 3; newer ones are written as 3.

    Raises: EncodeError.
    """
    known = min(version, VERSION_MAX)
    return known.to_bytes(PREFIX_SIZE, "big", signed=True) + encode(message, known)
