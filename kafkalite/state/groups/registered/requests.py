"""What a registered group is asked, and what it answers: kafkalite's own requests (keys 10001, 10003, 10004) without
versions and bytes. Timeouts are ms; an `error` is a Kafka error code, 0 = none. Members leave by
`groups/classic/requests`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.model import TopicPartition

__all__ = [
    "BY_RESET_POLICY",
    "FROM_LOG_START",
    "ConsumerRegistered",
    "CreateGroup",
    "HeartbeatAnswered",
    "HeartbeatPlus",
    "RegisterConsumer",
    "StartOffsets",
]

BY_RESET_POLICY = -1
"""A start offset: nothing is committed, and the partition was there when the group began; the client decides."""

FROM_LOG_START = -2
"""A start offset: nothing is committed, and the partition came later; who answers puts the log start in its place."""

StartOffsets = Mapping[str, Mapping[int, int]]
"""Where to begin to read, by topic and partition."""

NOWHERE: StartOffsets = {}


class CreateGroup(NamedTuple):
    """Define a group; answered by `groups/classic/requests.Done`.

    Arguments:
        topics: what the group reads; () where there is a pattern, or where the members say what they read.
        pattern: checked to be one that RE2 accepts; None = no pattern.
        assignor: a name of `assignors.ASSIGNORS`.
        ephemeral: the group ends with its last member.
    """

    group: str
    session_timeout_ms: int
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignor: str = "uniform"
    ephemeral: bool = False


class RegisterConsumer(NamedTuple):
    """Register for the next generation; answered by `ConsumerRegistered`, perhaps much later.

    Arguments:
        topics: what the consumer reads; () = what the group's definition says, or, with claims, nothing but these.
        claims: partitions that it takes for itself; they are left out of the assignment.
        session_timeout_ms: 0 = that of the definition.
    """

    group: str
    consumer_id: str
    topics: tuple[str, ...]
    claims: frozenset[TopicPartition]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str = ""
    client_host: str = ""


class ConsumerRegistered(NamedTuple):
    """The answer to a registration: what the consumer owns in this generation, and where to begin."""

    error: int = 0
    generation: int = -1
    partitions: StartOffsets = NOWHERE


class HeartbeatPlus(NamedTuple):
    """A registered consumer lives; answered by `HeartbeatAnswered`. A session timeout of 0 = as it was."""

    group: str
    consumer_id: str
    generation: int
    session_timeout_ms: int = 0


class HeartbeatAnswered(NamedTuple):
    """The generation to use from now on, or an error, upon which the consumer registers again."""

    error: int = 0
    generation: int = -1
