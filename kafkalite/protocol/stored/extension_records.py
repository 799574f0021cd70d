"""kafkalite's own records in `__consumer_offsets`: types from 10000, for the groups of `protocol.extensions`.

Law: a released field keeps its place and meaning; new ones are tagged fields, so that older brokers read the rest.
"""

from kafkalite.protocol.schema import Struct, boolean, int32, int64, string
from kafkalite.protocol.stored.record_types import StoredKey, StoredValue


class GroupDefinitionValue(StoredValue, versions=(0, 0), flexible=0):
    """What CreateGroup said. Session timeout in ms; either topics or a pattern.

    `first_topics` are the topics of the first generation with their numbers of partitions, null until there is one:
    where nothing is committed, these partitions start by the client's reset policy, and later ones at their log start.
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
    """Which group."""

    group_id: string


class GroupGenerationValue(StoredValue, versions=(0, 0), flexible=0):
    """A generation, with its members and all that they own. The timestamp is since when there are members, or none.

    Of a member, `since` is the generation in which its last registration was answered, and `epoch` the last one that
    changed what it owns, or where it is to read. Timeouts in ms.
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

    generation_id: int32
    state_timestamp: int64
    members: list[Member]


class GroupGenerationKey(StoredKey, type_id=10003, value=GroupGenerationValue):
    """Which group."""

    group_id: string


class StaticClaimValue(StoredValue, versions=(0, 0), flexible=0):
    """The partitions that a member has claimed; they are left out of the dynamic assignment."""

    class ClaimedTopic(Struct):
        name: string
        partitions: list[int32]

    topics: list[ClaimedTopic]


class StaticClaimKey(StoredKey, type_id=10001, value=StaticClaimValue):
    """Which member of which group."""

    group_id: string
    consumer_id: string


class RewindMarkValue(StoredValue, versions=(0, 0), flexible=0):
    """The generation that a rewind of this partition began: commits of older generations are refused."""

    generation_id: int32


class RewindMarkKey(StoredKey, type_id=10002, value=RewindMarkValue):
    """Which partition of which group."""

    group_id: string
    topic: string
    partition: int32
