"""Requests and results of consumer groups (KIP-848) without versions and bytes, and the settings of a group."""

from enum import Enum
from typing import NamedTuple, Protocol

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.groups.assignors import ASSIGNORS, Assignment

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class Topic(NamedTuple):
    """A topic that exists. `partitions` is their number."""

    topic_id: bytes
    name: str
    partitions: int


class TopicLookup(Protocol):
    """The topics as they are now."""

    def by_name(self, name: str) -> Topic | None: ...

    def by_id(self, topic_id: bytes) -> Topic | None: ...


class MigrationPolicy(Enum):
    """The allowed conversions of groups with members (ConsumerGroupMigrationPolicy.java)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        """Whether a classic group is converted when a member of the consumer protocol joins."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group is converted when its last member of the consumer protocol leaves."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class ConsumerGroupSettings(NamedTuple):
    """The settings of one group: `group.consumer.*`, or its own. Times in ms.

    Arguments:
        assignors: names of `ASSIGNORS` that a member may request; the first is the default.
        assignment_interval_ms: the minimum interval between two target assignments.
        regex_refresh_interval_ms: a pattern is resolved again after this interval, also without new topics.
        migration: the allowed conversions.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    regex_refresh_interval_ms: int = 600_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL


class ConsumerGroupHeartbeat(NamedTuple):
    """A heartbeat; None and -1 = unchanged since the last one.

    Arguments:
        member_id: never empty; in version 0 the caller has generated it.
        member_epoch: 0 joins, -1 leaves, -2 leaves temporarily as a static member.
        subscribed_topic_regex: accepted by RE2; "" = no pattern.
        owned: the partitions that the member owns, which confirms revocations.
    """

    group: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether all fields are set, as after a lost response: the response must contain the assignment."""
        subscribed = self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        return self.rebalance_timeout_ms != -1 and subscribed and self.owned is not None


class HeartbeatResult(NamedTuple):
    """The result of a heartbeat. `assignment` is None if it is unchanged."""

    error: int
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


class MemberDescription(NamedTuple):
    """A member for ConsumerGroupDescribe. `assignment` includes partitions pending revocation."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str
    assignment: Assignment
    target_assignment: Assignment
    speaks_classic: bool = False


class GroupDescription(NamedTuple):
    """A group for ConsumerGroupDescribe. `state` by Kafka's name: Empty, Assigning, Reconciling, Stable."""

    group: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[MemberDescription, ...]


class CommandRejected(Exception):
    """Rejects a command: it changes nothing and returns an error. Never leaves the machine."""

    def __init__(self, code: KafkaErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def check_heartbeat(request: ConsumerGroupHeartbeat, settings: ConsumerGroupSettings) -> None:
    """Reject invalid heartbeats (GroupMetadataManager.throwIfConsumerGroupHeartbeatRequestIsInvalid)."""
    _reject_empty("MemberId", request.member_id)
    _reject_empty("GroupId", request.group)
    _reject_empty("InstanceId", request.instance_id)
    _reject_empty("RackId", request.rack_id)
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise CommandRejected(KafkaErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        raise CommandRejected(KafkaErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and (assignor not in settings.assignors or assignor not in ASSIGNORS):
        message = f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(settings.assignors)}."
        raise CommandRejected(KafkaErrorCode.UNSUPPORTED_ASSIGNOR, message)


def _reject_empty(name: str, text: str | None) -> None:
    if text is not None and not text.strip():
        raise CommandRejected(KafkaErrorCode.INVALID_REQUEST, f"{name} can't be empty.")


def _check_join(request: ConsumerGroupHeartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        raise CommandRejected(KafkaErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise CommandRejected(KafkaErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        message = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        raise CommandRejected(KafkaErrorCode.INVALID_REQUEST, message)
