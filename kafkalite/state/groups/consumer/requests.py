"""What members of a consumer group ask and are told, without versions and bytes (KIP-848), and a group's settings."""

from enum import Enum
from typing import NamedTuple, Protocol

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.groups.assignors import ASSIGNORS, Assignment

__all__ = [
    "JOIN_EPOCH",
    "LEAVE_EPOCH",
    "STATIC_LEAVE_EPOCH",
    "CommandRejected",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupSettings",
    "GroupDescription",
    "HeartbeatResult",
    "MemberDescription",
    "MigrationPolicy",
    "Topic",
    "TopicLookup",
    "check_heartbeat",
]

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
    """Which way groups with members may be converted (ConsumerGroupMigrationPolicy.java)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        """Whether a classic group becomes a consumer group when a member of the consumer protocol joins it."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group becomes a classic one when its last member of the consumer protocol goes."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class ConsumerGroupSettings(NamedTuple):
    """What holds for one group: `group.consumer.*`, or its own settings. Times in ms.

    Arguments:
        assignors: names of `ASSIGNORS` that a member may ask for; the first serves those who ask for none.
        assignment_interval_ms: between two target assignments lies at least this.
        regex_refresh_interval_ms: a pattern is resolved anew after this, even where no topic came.
        migration: which way it may be converted.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    regex_refresh_interval_ms: int = 600_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL


class ConsumerGroupHeartbeat(NamedTuple):
    """A heartbeat; None and -1 = as the last one said.

    Arguments:
        member_id: never empty: who lets the broker choose it (version 0) has got one from the caller.
        member_epoch: 0 joins, -1 leaves, -2 leaves as a static member who will be back.
        subscribed_topic_regex: checked to be one that RE2 accepts; "" = no pattern any more.
        owned: the partitions that the member has, which tells that it gave up what it was asked to.
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
        """Says everything, as after a lost answer: the member must be told its assignment."""
        subscribed = self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        return self.rebalance_timeout_ms != -1 and subscribed and self.owned is not None


class HeartbeatResult(NamedTuple):
    """The answer to a heartbeat. `assignment` is None where nothing changed."""

    error: int
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


class MemberDescription(NamedTuple):
    """A member for ConsumerGroupDescribe. `assignment` includes what it is still to give up."""

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
    """A command that changes nothing and is answered with an error. Never leaves the machine."""

    def __init__(self, code: KafkaErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def check_heartbeat(request: ConsumerGroupHeartbeat, settings: ConsumerGroupSettings) -> None:
    """Refuse what can never be right (GroupMetadataManager.throwIfConsumerGroupHeartbeatRequestIsInvalid)."""
    _refuse_empty("MemberId", request.member_id)
    _refuse_empty("GroupId", request.group)
    _refuse_empty("InstanceId", request.instance_id)
    _refuse_empty("RackId", request.rack_id)
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


def _refuse_empty(name: str, text: str | None) -> None:
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
