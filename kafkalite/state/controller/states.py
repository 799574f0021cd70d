"""The states of a partition and of a topic in the controller, and the events that change them.

`partitions.table` and `topics.table` have the transitions. The values are the descriptions in README.md.
"""

from enum import Enum


class PartitionState(Enum):
    """The states of a partition; Kafka's are NEW, ONLINE, OFFLINE and DELETED (NonExistentPartition)."""

    NEW = "no state in the tree; no assigned replica is online"
    CREATING = "its first state is being written"
    ONLINE = "its leader is online"
    OFFLINE = "it has no leader that is online"
    ELECTING = "another state is being written"
    READING = "its state is being read"
    INVALID = "its state in the tree is invalid"
    DELETED = "its topic does not exist, or is being deleted"


class PartitionEvent(Enum):
    """The events of a partition."""

    REPLICAS_CHANGED = "a broker or a log directory of its replicas failed or is back"
    STATE_CHOSEN = "another state is chosen"
    LED = "the written or read state has a leader that is online"
    LEADERLESS = "the written or read state has no leader that is online"
    MISSING = "there is no state in the tree"
    UNREADABLE = "the state in the tree is invalid"
    ISR_WRITTEN = "the written state has the leader and the leader epoch of before"
    REQUESTED = "a request to change its state waits"
    WRITE_FAILED = "the write is rejected, or its result is unknown"
    DELETED = "the topic is deleted"


class TopicState(Enum):
    """The states of a topic."""

    UNREAD = "its nodes are being read"
    WITHOUT_ID = "a topic id is being written"
    INVALID = "its node is invalid"
    ACTIVE = "it exists"
    DELETING = "its replicas are being deleted"
    INELIGIBLE = "its deletion waits for brokers that are not alive, or for log directories"
    REMOVING = "its replicas are deleted, its nodes are being deleted"
    REMOVED = "it does not exist"


class TopicEvent(Enum):
    """The events of a topic."""

    READ = "its nodes are read"
    READ_WITHOUT_ID = "its nodes are read, without a topic id"
    UNREADABLE = "its node is read and invalid"
    MISSING = "its node does not exist"
    DELETION_REQUESTED = "its deletion is requested"
    DELETION_CONFIRMED = "its nodes are read after its deletion was requested"
    DELETION_WITHDRAWN = "the request to delete it was removed"
    REPLICAS_AVAILABLE = "a broker of its replicas is back"
    REPLICAS_UNAVAILABLE = "a broker or a log directory of its replicas failed"
    REPLICAS_DELETED = "a broker has deleted its replicas"
    ONLY_UNAVAILABLE_LEFT = "all replicas that are available are deleted"
    ALL_DELETED = "all replicas are deleted"
    PART_WRITTEN = "a part of its nodes is deleted"
    WRITTEN = "the write is committed"
    WRITE_FAILED = "the write is rejected, or its result is unknown"
