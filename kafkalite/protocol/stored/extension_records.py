"""kafkalite's own records in `__consumer_offsets`: types from 10000, for the groups of `protocol.extensions`.

Released fields keep their position and meaning; new fields are tagged, so that older brokers can read the rest.
"""

from kafkalite.protocol.schema import Struct, boolean, field, int32, int64, string, uuid
from kafkalite.protocol.stored.record_types import StoredKey, StoredValue


class GroupDefinitionValue(StoredValue, versions=(0, 0), flexible=0):
    """The definition of a group by CreateGroup. Session timeout in ms; either topics or a pattern.

    `first_topics`: topics of the first generation with their number of partitions, null before it. Without a committed
    offset these partitions start by the reset policy of the client, later ones at their log start.
    """

    class FirstTopic(Struct):
        name: string
        partitions_count: int32

    session_timeout_ms: int32
    topics: list[string] | None
    topic_pattern: string | None
    assignor: string
    ephemeral: boolean
    first_topics: list[FirstTopic] | None


class GroupDefinitionKey(StoredKey, type_id=10000, value=GroupDefinitionValue):
    """The group."""

    group_id: string


class GroupGenerationValue(StoredValue, versions=(0, 0), flexible=0):
    """A generation with its members and their partitions. Timestamp: when the group last became empty or non-empty.

    Of a member, `since` is the generation of its last registration, and `epoch` the last generation that changed its
    partitions or their offsets. `process_ids`: of its process, then of the older processes that it fences. Timeouts in
    ms.
    """

    class Member(Struct):
        class OwnedTopic(Struct):
            name: string
            partitions: list[int32]

        consumer_id: string
        client_id: string
        client_host: string
        session_timeout_ms: int32
        rebalance_timeout_ms: int32
        topics: list[string]
        since: int32
        epoch: int32
        owned_partitions: list[OwnedTopic]
        process_ids: list[uuid] = field(tag=0, factory=list)

    generation_id: int32
    state_timestamp: int64
    members: list[Member]


class GroupGenerationKey(StoredKey, type_id=10003, value=GroupGenerationValue):
    """The group."""

    group_id: string


class StaticClaimValue(StoredValue, versions=(0, 0), flexible=0):
    """The static claims of a member; these partitions are excluded from the assignment."""

    class ClaimedTopic(Struct):
        name: string
        partitions: list[int32]

    topics: list[ClaimedTopic]


class StaticClaimKey(StoredKey, type_id=10001, value=StaticClaimValue):
    """The member and its group."""

    group_id: string
    consumer_id: string


class RewindMarkValue(StoredValue, versions=(0, 0), flexible=0):
    """The generation started by a rewind of this partition: commits of older generations are rejected."""

    generation_id: int32


class RewindMarkKey(StoredKey, type_id=10002, value=RewindMarkValue):
    """The partition and its group."""

    group_id: string
    topic: string
    partition: int32


KEYS = (
    GroupDefinitionKey,
    GroupGenerationKey,
    StaticClaimKey,
    RewindMarkKey,
)
