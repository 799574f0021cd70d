"""The settings of a group member, and what its machine exchanges with the consumer: requests, changes, identity."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite.protocol.schema import Request, Response
from kafkalite_sdk.membership.assignors import DEFAULT_ASSIGNORS, ClassicAssignor

AUTO, CLASSIC, CONSUMER, REGISTERED = "auto", "classic", "consumer", "registered"
PROTOCOLS = (AUTO, CLASSIC, CONSUMER, REGISTERED)

Partitions = frozenset[TopicPartition]
NO_PARTITIONS: Partitions = frozenset()


class MembershipSettings(NamedTuple):
    """The settings of a group member, times in seconds.

    Attributes:
        group_id: the group.
        protocol: one of PROTOCOLS; "auto" = the protocol of the live members, else the newest one of the broker.
        instance_id: of a static member, the consumer id in a registered group; None = a dynamic member.
        client_id: of the client; it begins the member id in a registered group.
        rack: of the client, None = unknown.
        session_timeout_s: time without a heartbeat after which the broker removes the member (classic, registered).
        heartbeat_interval_s: time between two heartbeats (classic, registered); with KIP-848 the broker decides it.
        max_poll_interval_s: longest time between two polls, and the rebalance timeout.
        request_timeout_s: of a request.
        retry_backoff_s, retry_backoff_max_s: pause before a retry; it doubles with each failure, up to the second.
        metadata_max_age_s: how often a pattern that the client resolves is resolved again.
        assignors: of the classic protocol, in order of preference.
        server_assignor: the assignor of the broker (KIP-848), or of a new registered group; None = its default.
    """

    group_id: str
    protocol: str = AUTO
    instance_id: str | None = None
    client_id: str = "kafkalite"
    rack: str | None = None
    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 3.0
    max_poll_interval_s: float = 300.0
    request_timeout_s: float = 30.0
    retry_backoff_s: float = 0.1
    retry_backoff_max_s: float = 1.0
    metadata_max_age_s: float = 300.0
    assignors: tuple[ClassicAssignor, ...] = DEFAULT_ASSIGNORS
    server_assignor: str | None = None


def check_membership(settings: MembershipSettings) -> None:
    """Raise ValueError for a setting that is not valid; it names the argument of `Consumer`."""
    if not settings.group_id:
        raise ValueError('group is empty; pass group="name", or leave it out to read without a group')
    if settings.protocol not in PROTOCOLS:
        raise ValueError(f"group_protocol is {settings.protocol!r}, expected one of {', '.join(PROTOCOLS)}")
    if not settings.assignors:
        raise ValueError('partition_assignment_strategy has no assignor; pass at least one, for example ["range"]')
    if settings.instance_id == "":
        raise ValueError("group_instance_id is empty; pass None for a dynamic member")


class MemberIdentity(NamedTuple):
    """A member as OffsetCommit and OffsetFetch name it.

    Attributes:
        group: the group id.
        generation: generation of the group, or member epoch (KIP-848).
        member_id: the member id, in a registered group the consumer id.
        instance_id: of a static member, else None; always None in a registered group.
    """

    group: str
    generation: int
    member_id: str
    instance_id: str | None


NO_OFFSETS: Mapping[TopicPartition, int] = {}


class AssignmentChange(NamedTuple):
    """A change of the assignment that the consumer carries out, in this order, before it calls `change_done`.

    Attributes:
        lost: partitions that may already belong to other members. Fetching stops; no commit; `on_partitions_lost`.
        revoked: partitions that the member must release. Fetching stops; commit; `on_partitions_revoked`.
        assigned: new partitions. Offsets, then `on_partitions_assigned`. A partition that is also lost starts again.
        start_offsets: where the broker names the start offsets: of every assigned partition; -1 = the reset policy.
        keep_fetched: revoked partitions are probably assigned again by the next change: prefetched records are kept
            until then, and used if a partition starts at its old position.
        begins, ends: of a rebalance: `on_partitions_revoked` or `on_partitions_assigned` is called without partitions,
            too (aiokafka's listeners).
    """

    lost: Partitions = NO_PARTITIONS
    revoked: Partitions = NO_PARTITIONS
    assigned: Partitions = NO_PARTITIONS
    start_offsets: Mapping[TopicPartition, int] = NO_OFFSETS
    keep_fetched: bool = False
    begins: bool = False
    ends: bool = False

    def __bool__(self) -> bool:
        return bool(self.lost or self.revoked or self.assigned) or self.begins or self.ends


Answered = Callable[[Response, float], None]
Failed = Callable[[KafkaError, float], None]


class GroupCall:
    """A request that the consumer sends for the machine.

    Attributes:
        request: the request.
        to_coordinator: whether the coordinator of the group receives it, else any broker.
        channel: "join" is a connection of its own, because the broker may delay the response; else "group".
        timeout_s: of the request.
        on_answer, on_failure: of the machine.
    """

    __slots__ = ("channel", "on_answer", "on_failure", "request", "timeout_s", "to_coordinator")

    def __init__(
        self,
        request: Request,
        to_coordinator: bool,
        channel: str,
        timeout_s: float,
        on_answer: Answered,
        on_failure: Failed,
    ) -> None:
        self.request = request
        self.to_coordinator = to_coordinator
        self.channel = channel
        self.timeout_s = timeout_s
        self.on_answer = on_answer
        self.on_failure = on_failure
