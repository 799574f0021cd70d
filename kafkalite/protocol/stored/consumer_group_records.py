"""The records of a consumer group (KIP-848) in `__consumer_offsets`: types 3 to 8 and 16.

Source: the files `ConsumerGroup*Key.json` and `ConsumerGroup*Value.json` of Apache Kafka 4.3's group coordinator.
"""

from kafkalite.protocol.schema import Struct, binary, field, int8, int32, int64, string, uuid
from kafkalite.protocol.stored.record_types import StoredKey, StoredValue


class ConsumerGroupMetadataValue(StoredValue, versions=(0, 0), flexible=0):
    """The group epoch. `metadata_hash`: hash of the subscribed topics (KIP-1101)."""

    epoch: int32
    metadata_hash: int64 = field(tag=0, default=0)


class ConsumerGroupMetadataKey(StoredKey, type_id=3, value=ConsumerGroupMetadataValue):
    """The group."""

    group_id: string


class ConsumerGroupPartitionMetadataValue(StoredValue, versions=(0, 0), flexible=0):
    """The topics of a group, stored by Kafka before 4.1; later versions store a hash and write tombstones."""

    class TopicMetadata(Struct):
        class PartitionMetadata(Struct):
            partition: int32
            racks: list[string]

        topic_id: uuid
        topic_name: string
        num_partitions: int32
        partition_metadata: list[PartitionMetadata]

    topics: list[TopicMetadata]


class ConsumerGroupPartitionMetadataKey(StoredKey, type_id=4, value=ConsumerGroupPartitionMetadataValue):
    """The group."""

    group_id: string


class ConsumerGroupMemberMetadataValue(StoredValue, versions=(0, 0), flexible=0):
    """The subscription and metadata of a member. Timeouts in ms; `classic_member_metadata` of a classic member."""

    class ClassicMemberMetadata(Struct):
        class ClassicProtocol(Struct):
            name: string
            metadata: binary

        session_timeout_ms: int32
        supported_protocols: list[ClassicProtocol]

    instance_id: string | None
    rack_id: string | None
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]
    subscribed_topic_regex: string | None
    rebalance_timeout_ms: int32 = -1
    server_assignor: string | None
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0, nullable_since=0, default=None)


class ConsumerGroupMemberMetadataKey(StoredKey, type_id=5, value=ConsumerGroupMemberMetadataValue):
    """The member and its group."""

    group_id: string
    member_id: string


class ConsumerGroupTargetAssignmentMetadataValue(StoredValue, versions=(0, 0), flexible=0):
    """The group epoch of the target assignment, and its time in ms (KIP-1263)."""

    assignment_epoch: int32
    assignment_timestamp: int64 = field(tag=0, default=0)


class ConsumerGroupTargetAssignmentMetadataKey(StoredKey, type_id=6, value=ConsumerGroupTargetAssignmentMetadataValue):
    """The group."""

    group_id: string


class ConsumerGroupTargetAssignmentMemberValue(StoredValue, versions=(0, 0), flexible=0):
    """The target assignment of a member."""

    class TopicPartition(Struct):
        topic_id: uuid
        partitions: list[int32]

    topic_partitions: list[TopicPartition]


class ConsumerGroupTargetAssignmentMemberKey(StoredKey, type_id=7, value=ConsumerGroupTargetAssignmentMemberValue):
    """The member and its group."""

    group_id: string
    member_id: string


class ConsumerGroupCurrentMemberAssignmentValue(StoredValue, versions=(0, 0), flexible=0):
    """The current assignment of a member. State: 0 stable, 1 unrevoked, 2 unreleased partitions, 127 unknown.

    `assignment_epochs`: for each entry of `partitions`, the epoch of its assignment.
    """

    class TopicPartitions(Struct):
        topic_id: uuid
        partitions: list[int32]
        assignment_epochs: list[int32] | None = field(tag=0, factory=list)

    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


class ConsumerGroupCurrentMemberAssignmentKey(StoredKey, type_id=8, value=ConsumerGroupCurrentMemberAssignmentValue):
    """The member and its group."""

    group_id: string
    member_id: string


class ConsumerGroupRegularExpressionValue(StoredValue, versions=(0, 0), flexible=0):
    """The topics that a pattern matched, in the metadata of `version`, resolved at `timestamp` (ms)."""

    topics: list[string]
    version: int64
    timestamp: int64


class ConsumerGroupRegularExpressionKey(StoredKey, type_id=16, value=ConsumerGroupRegularExpressionValue):
    """The pattern and its group."""

    group_id: string
    regular_expression: string


KEYS = (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)
