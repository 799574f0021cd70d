"""The records of `__consumer_offsets`: committed offsets and classic groups, and the table of all record types.

Source: the files `*Key.json` and `*Value.json` of Apache Kafka 4.3's group coordinator.
"""

from kafkalite.protocol.schema import ZERO_UUID, Struct, binary, field, int32, int64, string, uuid
from kafkalite.protocol.stored import consumer_group_records, extension_records
from kafkalite.protocol.stored.record_types import RecordTypes, StoredKey, StoredValue

VERSION_WITH_EXPIRY = 1


class OffsetCommitValue(StoredValue, versions=(0, 4), flexible=4, written=4):
    """A committed offset. Timestamps in ms; expiry -1 = by the retention of the broker."""

    offset: int64
    leader_epoch: int32 = field(since=3, default=-1)
    metadata: string
    commit_timestamp: int64
    expire_timestamp: int64 = field(since=1, until=1, default=-1)
    topic_id: uuid = field(since=4, tag=0, default=ZERO_UUID)

    def version_written(self) -> int:
        """1 for a value with an expiry, as no other version has one; it has neither epoch nor topic id."""
        return self.written if self.expire_timestamp == -1 else VERSION_WITH_EXPIRY


class LegacyOffsetCommitKey(StoredKey, type_id=0, value=OffsetCommitValue):
    """The `OffsetCommitKey` of Kafka before 0.9. Kafka 4.3 reads its value in version 0 only, 3.9 in all."""

    group: string
    topic: string
    partition: int32


class OffsetCommitKey(StoredKey, type_id=1, value=OffsetCommitValue):
    """The group and the partition."""

    group: string
    topic: string
    partition: int32


class GroupMetadataValue(StoredValue, versions=(0, 4), flexible=4, written=3):
    """A classic group in one generation. Timeouts and timestamps in ms."""

    class MemberMetadata(Struct):
        member_id: string
        group_instance_id: string | None = field(since=3, default=None)
        client_id: string
        client_host: string
        rebalance_timeout: int32 = field(since=1, default=-1)
        session_timeout: int32
        subscription: binary
        assignment: binary

    protocol_type: string
    generation: int32
    protocol: string | None
    leader: string | None
    current_state_timestamp: int64 = field(since=2, default=-1)
    members: list[MemberMetadata]


class GroupMetadataKey(StoredKey, type_id=2, value=GroupMetadataValue):
    """The classic group."""

    group: string


RECORDS = RecordTypes(
    LegacyOffsetCommitKey, OffsetCommitKey, GroupMetadataKey, *consumer_group_records.KEYS, *extension_records.KEYS
)
read_key = RECORDS.read_key
read_value = RECORDS.read_value
