"""Subscriptions and assignments of the classic protocol as Java and librdkafka write and read them.

Pure. Members write version 3, with owned partitions, generation and rack.
Sources: ConsumerProtocol.java of Apache Kafka 4.3; rdkafka_assignor.c of librdkafka.
"""

from collections.abc import Iterable

from kafkalite.model import TopicPartition
from kafkalite.protocol.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    read_assignment,
    read_subscription,
    version_of,
    write,
)
from kafkalite_sdk.membership.assignors import MemberSubscription
from kafkalite_sdk.membership.user_data import by_topic, generation_in, previous_assignment

NO_GENERATION = -1


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """The metadata of a member in JoinGroup."""
    owned = by_topic(subscription.owned)
    return write(
        ConsumerProtocolSubscription(
            topics=sorted(subscription.topics),
            user_data=subscription.user_data,
            owned_partitions=[
                ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=numbers)
                for topic, numbers in owned.items()
            ],
            generation_id=subscription.generation,
            rack_id=subscription.rack_id,
        )
    )


def decode_subscription(assignor: str, metadata: bytes, instance_id: str | None) -> MemberSubscription:
    """The subscription of a member, as its leader reads it.

    Arguments:
        assignor: the assignor of the generation; it defines the user data.
        metadata: of the member, in JoinGroup.
        instance_id: of a static member, else None.

    Raises: DecodeError.
    """
    read = read_subscription(metadata)
    owned = frozenset(
        TopicPartition(each.topic, number) for each in read.owned_partitions for number in each.partitions
    )
    generation = read.generation_id
    data = read.user_data or b""
    if assignor == "sticky":
        owned, generation = previous_assignment(data)
    elif assignor == "cooperative-sticky" and generation == NO_GENERATION:
        generation = generation_in(data)
    return MemberSubscription(
        frozenset(read.topics), owned, generation, instance_id, read.rack_id, read.user_data, version_of(metadata)
    )


def encode_assignment(partitions: Iterable[TopicPartition], version: int, user_data: bytes | None = None) -> bytes:
    """The assignment of a member in SyncGroup, in the version of its subscription."""
    assigned = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in by_topic(partitions).items()
    ]
    return write(ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=user_data), version)


def decode_assignment(data: bytes) -> tuple[frozenset[TopicPartition], bytes | None]:
    """The partitions of a member and the user data of the assignor. Raises: DecodeError."""
    read = read_assignment(data)
    partitions = (TopicPartition(each.topic, number) for each in read.assigned_partitions for number in each.partitions)
    return frozenset(partitions), read.user_data
