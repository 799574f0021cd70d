"""The states of a classic group and the events that change them. `table` has the transitions."""

from enum import Enum


class ClassicState(Enum):
    """States by Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicEvent(Enum):
    """The events; the values are their descriptions in docs/groups.md."""

    MEMBER_ADDED = "a new member joins"
    MEMBER_REJOINED = "a member rejoins: a rebalance is needed or in progress"
    MEMBER_UNCHANGED = "a member rejoins without changes"
    STATIC_REPLACED = "a static member restarts with a new member id"
    PROTOCOL_CHANGED = "a static member restarts and changes the selected protocol"
    MEMBERS_LEFT = "members leave or are removed"
    SESSION_EXPIRED = "the session of a member expires"
    RESERVED_ID_EXPIRED = "a reserved member id is not used in time"
    TOO_MANY_MEMBERS = "the loaded group has more members than allowed"
    MEMBERS_JOINED_IN_DELAY = "the initial delay ends, and members joined during it"
    REBALANCE_TIMEOUT = "the initial delay or the rebalance timeout ends"
    ALL_JOINED = "all remaining members have joined"
    NONE_JOINED = "only static members remain, and none has joined"
    NO_MEMBERS = "no member remains"
    LEADER_SYNCED = "the leader sends the assignment"
    MEMBER_SYNCED = "another member fetches its assignment"
    SYNC_TIMEOUT = "members did not fetch their assignment in time"
    HEARTBEAT = "a member sends a heartbeat"
    DELETED = "the group is deleted"
    UPGRADED = "a member of the consumer protocol joins"
    DOWNGRADED = "the last member of the consumer protocol has left"
