"""The records of `__consumer_offsets` as plain values, without versions or bytes.

`coordinators/group/serde` converts each to the key and value that Kafka stores; records of registered groups exist only
in kafkalite. Times are wall time in ms, -1 = not set.
Source: the files `*Key.json` and `*Value.json` of Apache Kafka's group coordinator.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol, TypeVar

from kafkalite.model import ZERO_UUID, TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"
REGISTERED = "registered"


_Fields = TypeVar("_Fields", bound=tuple[object, ...])


class PackedOffsets(Protocol):
    """The offsets of a request, in its order, without an object for each partition."""

    def __len__(self) -> int:
        """How many partitions."""

    @property
    def metadata_longest(self) -> int:
        """Characters of the longest metadata."""

    def located_topics(self) -> list[tuple[str, bytes]]:
        """Name and id of each topic, in their order."""

    def partitions(self, record_type: type[_Fields]) -> list[_Fields]:
        """Each partition: a `record_type` of topic, partition, offset, leader epoch, metadata or None, topic id."""

    def put_into(
        self, partitions: dict[int, _Fields], at: int, record_type: type[_Fields], committed_ms: int, topic_id: bytes
    ) -> None:
        """Put the offsets of one topic into a dict by partition.

        Arguments:
            partitions: the dict.
            at: index of the topic.
            record_type: called with offset, leader epoch, metadata, commit time, expiry (-1), topic id.
            committed_ms: the commit time, ms since 1970.
            topic_id: 16 bytes.
        """


class OffsetCommitted(NamedTuple):
    """A committed offset: the next offset that the group reads.

    Arguments:
        leader_epoch: epoch of the last record read, -1 = unknown.
        expire_timestamp_ms: -1 = `offsets.retention.minutes` applies; only requests of old versions set it.
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


class OffsetsCommitted(NamedTuple):
    """One `OffsetCommitted` for each partition of a request, in its order: as many records of the log."""

    group: str
    offsets: PackedOffsets
    commit_timestamp_ms: int


class _PartOf(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None
    topic_id: bytes


def commits_of(record: OffsetsCommitted) -> Iterator[OffsetCommitted]:
    """The single records of a packed one."""
    group, offsets, committed_ms = record
    for topic, partition, offset, epoch, metadata, topic_id in offsets.partitions(_PartOf):
        yield OffsetCommitted(group, topic, partition, offset, epoch, metadata or "", committed_ms, -1, topic_id)


class OffsetDeleted(NamedTuple):
    """The tombstone of a committed offset."""

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
    """The marker of a transaction of `producer_id`: its pending offsets become visible, or are dropped.

    The log stores it as a control batch. Replay needs no more than the first two.

    Arguments:
        producer_epoch: the epoch in the marker.
        coordinator_epoch: of the transaction coordinator.
        version: of the transaction, as in `records.control.TransactionMarker`.
    """

    producer_id: int
    committed: bool
    producer_epoch: int = -1
    coordinator_epoch: int = -1
    version: int = 0


class ClassicMemberRecord(NamedTuple):
    """A member of a classic group. `subscription` is its metadata under the group's protocol; timeouts in ms."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class ClassicGroupMetadata(NamedTuple):
    """A classic group in one generation, whole. Without members it is Empty, else Stable."""

    group: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[ClassicMemberRecord, ...]


class GroupDeleted(NamedTuple):
    """The tombstone of a group itself. `group_type` selects the record that it deletes."""

    group: str
    group_type: str


PartitionEpochs = Mapping[bytes, Mapping[int, int]]
"""By topic id and partition: the target epoch at which the member was given it."""


class ClassicMemberMetadata(NamedTuple):
    """The join of a member of the classic protocol in a consumer group. `protocols`: (name, metadata)."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerGroupMetadata(NamedTuple):
    """The epoch of a consumer group (type 3). `metadata_hash` is of the topics it is subscribed to."""

    group: str
    epoch: int
    metadata_hash: int = 0


class ConsumerGroupPartitionMetadata(NamedTuple):
    """The topics of a group, as Kafka before 4.1 stored them (type 4); they are only deleted."""

    group: str


class ConsumerGroupMemberMetadata(NamedTuple):
    """The subscription and other metadata of a member (type 5).

    Arguments:
        subscribed_topic_names: in order, each once.
        subscribed_topic_regex: "" = none.
        classic: None = the member uses the consumer protocol.
    """

    group: str
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMemberMetadata | None = None


class ConsumerGroupTargetAssignmentMetadata(NamedTuple):
    """The group epoch of the target assignment, and the time of its computation (type 6)."""

    group: str
    assignment_epoch: int
    assignment_timestamp_ms: int = 0


class ConsumerGroupTargetAssignmentMember(NamedTuple):
    """The target assignment of a member (type 7): partitions by topic id."""

    group: str
    member_id: str
    partitions: Mapping[bytes, frozenset[int]]


class ConsumerGroupCurrentMemberAssignment(NamedTuple):
    """The current assignment of a member (type 8). `state` is Kafka's number; epoch -2 = a static member has left
    temporarily.
    """

    group: str
    member_id: str
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: PartitionEpochs
    pending_revocation: PartitionEpochs


class ConsumerGroupRegularExpression(NamedTuple):
    """The topics that a pattern matched (type 16), in order, in the metadata of `version`."""

    group: str
    pattern: str
    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


class ConsumerGroupTombstone(NamedTuple):
    """The tombstone of one of the records above; that of the group itself is `GroupDeleted`.

    Arguments:
        of: the class of the record that is deleted.
        key: the member id or the pattern; "" where the group is the whole key.
    """

    group: str
    of: type
    key: str = ""


class GroupDefinition(NamedTuple):
    """The definition of a registered group (type 10000).

    Arguments:
        session_timeout_ms: -1 = the group was created by its first member, not by CreateGroup.
        topics: the topics that the group reads; () if there is a pattern, or if the members name their topics.
        first_topics: names and partition counts of the topics of the first generation, None before it.
    """

    group: str
    session_timeout_ms: int
    topics: tuple[str, ...]
    pattern: str | None
    assignor: str
    ephemeral: bool
    first_topics: tuple[tuple[str, int], ...] | None = None


class StaticClaim(NamedTuple):
    """The partitions that a member claims, independent of the assignment (type 10001)."""

    group: str
    consumer_id: str
    topic_partitions: frozenset[TopicPartition]


class StaticClaimDeleted(NamedTuple):
    """A tombstone: the consumer has no claims any more."""

    group: str
    consumer_id: str


class RewindMark(NamedTuple):
    """The generation that a rewind of this partition began (type 10002)."""

    group: str
    topic: str
    partition: int
    generation: int


class RewindMarkDeleted(NamedTuple):
    """A tombstone: the group or the topic was deleted."""

    group: str
    topic: str
    partition: int


class RegisteredMember(NamedTuple):
    """A member of a generation; timeouts in ms.

    Arguments:
        topics: the topics of its registration.
        since: the generation in which its last registration was answered; its commits of older ones are rejected.
        epoch: the last generation that changed its partitions or their offsets; the client must have received it.
        process_ids: of its process, then of the older processes that it fences, the last one first; () = unknown.
    """

    consumer_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    topics: tuple[str, ...]
    since: int
    epoch: int
    owned: frozenset[TopicPartition]
    process_ids: tuple[bytes, ...] = ()


class GroupGeneration(NamedTuple):
    """The generation of a registered group, whole (type 10003). `state_timestamp_ms`: since when it has members, or
    none."""

    group: str
    generation: int
    state_timestamp_ms: int
    members: tuple[RegisteredMember, ...]


class GroupGenerationDeleted(NamedTuple):
    """A tombstone of the generation: the group is being deleted."""

    group: str
