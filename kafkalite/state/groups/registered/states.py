"""The states of a registered group and the events that change them. `table` has the transitions."""

from enum import Enum


class RegisteredState(Enum):
    """States, by Kafka's names where clients see them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class RegisteredEvent(Enum):
    """The events; the values are their descriptions in docs/groups.md."""

    DEFINED = "CreateGroup defines the group"
    REGISTERED = "a member registers: it is new or changed, or a rebalance is in progress"
    REPEATED = "a member registers again without changes"
    CLAIMED = "a member registers for claimed partitions only"
    MEMBER_LEFT = "a member leaves or its session expires"
    CLAIMING_MEMBER_LEFT = "a member with claimed partitions only leaves or its session expires"
    NO_MEMBERS = "no member remains"
    NO_MEMBERS_EPHEMERAL = "no member remains in an ephemeral group"
    TOPICS_CHANGED = "topics are created, deleted or grow, or the pattern is resolved"
    ALL_REGISTERED = "all members of the assignment have registered"
    REBALANCE_TIMEOUT = "the longest rebalance timeout ends"
    HEARTBEAT = "a member sends a heartbeat"
    STALE_HEARTBEAT = "a member that must register sends a heartbeat"
    REWOUND = "partitions are rewound"
    DELETED = "the group is deleted"
