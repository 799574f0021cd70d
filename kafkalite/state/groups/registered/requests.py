"""Requests and results of registered groups: kafkalite's own keys 10001, 10003 and 10004 without versions.

Timeouts are in ms; an `error` is a Kafka error code, 0 = none. Members leave with `groups/classic/requests.Leave`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.model import ZERO_UUID, TopicPartition

BY_RESET_POLICY = -1
"""A start offset: there is no committed offset for a partition of the first generation; the client's reset policy
decides.
"""

FROM_LOG_START = -2
"""A start offset: there is no committed offset for a partition that was created later. The handler replaces it by the
log start offset.
"""

StartOffsets = Mapping[str, Mapping[int, int]]
"""Start offsets by topic and partition."""

NOWHERE: StartOffsets = {}


class CreateGroup(NamedTuple):
    """Create a group; the result is a `groups/classic/requests.ErrorOnly`.

    Arguments:
        topics: that the group reads; () = it has a pattern, or each member names its topics.
        pattern: a regular expression that RE2 accepts; None = no pattern.
        assignor: a name of `assignors.ASSIGNORS`.
        ephemeral: the group is deleted when its last member leaves.
    """

    group: str
    session_timeout_ms: int
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignor: str = "uniform"
    ephemeral: bool = False


class RegisterConsumer(NamedTuple):
    """Register for the next generation; the result is a `ConsumerRegistered`, which may be delayed.

    Arguments:
        topics: that the consumer reads; () = those of the group's definition, or with claims only the claims.
        claims: partitions that only this consumer reads; they are excluded from the assignment.
        session_timeout_ms: 0 = that of the definition.
        process_id: of the process; zeros = unknown, which fences no process.
        assignor: of the group that this registration creates, a name of `assignors.ASSIGNORS`; None = the default.
    """

    group: str
    consumer_id: str
    topics: tuple[str, ...]
    claims: frozenset[TopicPartition]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str = ""
    client_host: str = ""
    process_id: bytes = ZERO_UUID
    assignor: str | None = None


class ConsumerRegistered(NamedTuple):
    """The result of a registration: the partitions of the consumer in this generation, with start offsets."""

    error: int = 0
    generation: int = -1
    partitions: StartOffsets = NOWHERE


class HeartbeatPlus(NamedTuple):
    """Extend the session of a member; the result is a `HeartbeatAnswered`. A session timeout of 0 changes nothing; a
    process id of zeros is not validated.
    """

    group: str
    consumer_id: str
    generation: int
    session_timeout_ms: int = 0
    process_id: bytes = ZERO_UUID


class HeartbeatAnswered(NamedTuple):
    """The current generation, or an error: the consumer must register again."""

    error: int = 0
    generation: int = -1
