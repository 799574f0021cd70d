"""All registered groups of a shard: which there are, who may do what with their offsets, and their part of the log.

Pure. Laws:
1. What is durable changes in `apply` alone. Before `loaded` it builds the groups from the records; later a living group
   has already become what its records say, and `apply` notes that this is stored.
2. A group that nobody could register with is not kept: a refused first registration leaves nothing behind.
3. An ephemeral group takes its offsets along.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, TimerName, Token, answered
from kafkalite.state.groups.assignors import ASSIGNORS
from kafkalite.state.groups.classic.requests import ErrorOnly, Leave, left_nobody, unknown_in
from kafkalite.state.groups.consumer.requests import TopicLookup
from kafkalite.state.groups.group import GroupType
from kafkalite.state.groups.records import (
    REGISTERED,
    GroupDefinition,
    GroupDeleted,
    GroupGeneration,
    GroupGenerationDeleted,
    RewindMark,
    RewindMarkDeleted,
    StaticClaim,
    StaticClaimDeleted,
)
from kafkalite.state.groups.registered.core import NOT_DEFINED, CommittedOffsets, RegisteredSettings
from kafkalite.state.groups.registered.group import RegisteredGroup
from kafkalite.state.groups.registered.requests import (
    ConsumerRegistered,
    CreateGroup,
    HeartbeatAnswered,
    HeartbeatPlus,
    RegisterConsumer,
)
from kafkalite.state.groups.registered.subscribed_groups import RegisteredReaders
from kafkalite.state.groups.registered.table import RegisteredState
from kafkalite.state.groups.registered.topic_references import RegisteredTopicReferences

__all__ = ["RegisteredGroups", "RegisteredRecord"]

RegisteredRecord = (
    GroupDefinition
    | GroupDeleted
    | GroupGeneration
    | GroupGenerationDeleted
    | StaticClaim
    | StaticClaimDeleted
    | RewindMark
    | RewindMarkDeleted
)
DEFAULT_ASSIGNOR = "uniform"


class RegisteredGroups(GroupType):
    """The registered groups of one shard.

    Arguments:
        settings: the broker's settings.
        topics: the topics as they are at any time; `topics_changed` tells that they are others.
        offsets: what is committed.

    Attributes:
        groups: by name.
        topic_readers: which groups a change of a topic concerns.
    """

    name = REGISTERED
    record_types = (
        GroupDefinition,
        GroupGeneration,
        GroupGenerationDeleted,
        StaticClaim,
        StaticClaimDeleted,
        RewindMark,
        RewindMarkDeleted,
    )

    def __init__(self, settings: RegisteredSettings, topics: TopicLookup, offsets: CommittedOffsets) -> None:
        self.settings = settings
        self.groups: dict[str, RegisteredGroup] = {}
        self._topics = topics
        self._offsets = offsets
        self._memory = RegisteredTopicReferences()
        self.topic_readers = RegisteredReaders()
        self._loaded = False

    def __contains__(self, name: str) -> bool:
        return name in self.groups

    # requests

    def create(self, request: CreateGroup, token: Token, now: Now) -> Effects:
        """Define a group; answers `Done`. The same definition again is none.

        Errors: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, INVALID_REQUEST (not either topics or a pattern),
        UNSUPPORTED_ASSIGNOR, NON_EMPTY_GROUP (it has members, and is defined otherwise).
        """
        group = self.groups.get(request.group)
        topics = tuple(sorted(set(request.topics)))
        definition = GroupDefinition(
            request.group, request.session_timeout_ms, topics, request.pattern, request.assignor, request.ephemeral
        )
        error = self._definition_refusal(definition)
        if not error and group is not None and group.members:
            same = group.definition._replace(first_topics=None) == definition
            error = KafkaErrorCode.NONE if same else KafkaErrorCode.NON_EMPTY_GROUP
        elif not error:
            effects = (group or self._found(definition, now)).define(definition, now)
            effects.answer(token, ErrorOnly())
            return effects
        return answered(token, ErrorOnly(error))

    def register(self, request: RegisterConsumer, token: Token, now: Now) -> Effects:
        """Register for the next generation; answers `ConsumerRegistered`, perhaps much later.

        Errors: INVALID_GROUP_ID, INVALID_REQUEST (no consumer id), INVALID_SESSION_TIMEOUT, GROUP_MAX_SIZE_REACHED,
        UNKNOWN_TOPIC_OR_PARTITION (of a claim), UNRELEASED_INSTANCE_ID (another member claims it),
        REBALANCE_IN_PROGRESS (a later registration took its place), UNKNOWN_MEMBER_ID (it has left meanwhile).
        """
        if not request.group:
            return answered(token, ConsumerRegistered(KafkaErrorCode.INVALID_GROUP_ID))
        if not request.consumer_id:
            return answered(token, ConsumerRegistered(KafkaErrorCode.INVALID_REQUEST))
        request = request._replace(topics=tuple(sorted(set(request.topics))))
        group = self.groups.get(request.group)
        if group is not None:
            return self._with_offsets(group, group.register(request, token, now))
        definition = GroupDefinition(request.group, NOT_DEFINED, (), None, DEFAULT_ASSIGNOR, ephemeral=False)
        group = self._found(definition, now)
        effects = group.register(request, token, now)
        if not group.members:
            del self.groups[request.group]
        elif not any(isinstance(record, GroupDefinition) for record in effects.records):
            effects.records.insert(0, definition)
        return effects

    def heartbeat(self, request: HeartbeatPlus, token: Token, now: Now) -> Effects:
        """Say that a member is alive; answers `HeartbeatAnswered`.

        Errors: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, INVALID_SESSION_TIMEOUT, ILLEGAL_GENERATION (there has not been
        one like this), REBALANCE_IN_PROGRESS (register).
        """
        group = self.groups.get(request.group)
        if group is not None:
            return group.heartbeat(request, token, now)
        return answered(token, HeartbeatAnswered(unknown_in(request.group)))

    def leave(self, request: Leave, token: Token, now: Now) -> Effects:
        """Leave; answers `Left` with an error per member."""
        group = self.groups.get(request.group)
        if group is not None:
            return self._with_offsets(group, group.leave(request, token, now))
        return answered(token, left_nobody(request))

    # time, topics and the log

    def expired(self, name: TimerName, now: Now) -> Effects:
        """A timer of this machine has run out; one of a group that has gone is nothing."""
        group = self.groups.get(name[1])
        if group is None:
            return Effects()
        if name[2] == "pattern":
            return group.pattern_due(now)
        effects = (
            group.session_expired(name[3], now) if name[2] == "session" else group.registration_timeout_expired(now)
        )
        return self._with_offsets(group, effects)

    def topics_changed(self, names: Collection[str], now: Now, among: Iterable[str] | None = None) -> Effects:
        """Topics came, went or grew: groups that read them, or may do so by their pattern, look at them now.

        Arguments:
            among: groups that `topic_readers` names, None = all of them.
        """
        effects = Effects()
        changed = frozenset(names)
        for name in self.topic_readers.concerned(changed) if among is None else among:
            group = self.groups.get(name)
            if group is not None and (group.definition.pattern is not None or group.reads_any(changed)):
                effects.extend(group.topics_changed(now))
        return effects

    def groups_of_topic(self, topic: str) -> list[str]:
        """The groups that keep rewind marks of a topic, or began with it."""
        return self._memory.of(topic)

    def topics_deleted(self, group: str, topics: Collection[str]) -> list[object]:
        """The records by which a group forgets topics: those that are created under the same names are others."""
        found = self.groups.get(group)
        if found is None:
            return []
        gone = frozenset(topics)
        records: list[object] = [
            RewindMarkDeleted(group, *topic_partition)
            for topic_partition in sorted(found.marks)
            if topic_partition[0] in gone
        ]
        first = found.definition.first_topics
        if first is not None and not gone.isdisjoint(dict(first)):
            kept = tuple(each for each in first if each[0] not in gone)
            records.append(found.definition._replace(first_topics=kept))
        return records

    def patterns_resolved(self, group: str, found: Mapping[str, Collection[str]], version: int, now: Now) -> Effects:
        """The topics that the pattern of a group matches. The result for an earlier definition is ignored."""
        reader = self.groups.get(group)
        names = None if reader is None else found.get(reader.definition.pattern or "")
        if reader is None or names is None:
            return Effects()
        return reader.pattern_resolved(tuple(sorted(set(names))), now)

    def patterns_failed(self, group: str) -> None:
        """The next heartbeat or registration asks again."""
        reader = self.groups.get(group)
        if reader is not None:
            reader.resolving = reader.resolved = False

    def apply(self, record: RegisteredRecord) -> None:
        """Take a record of the log into the durable state (law 1)."""
        if isinstance(record, GroupDeleted):
            self.groups.pop(record.group, None)
            self._memory.forget(record.group)
            self.topic_readers.forget(record.group)
            return
        group = self.groups.get(record.group)
        if group is None:
            if isinstance(record, GroupGenerationDeleted | StaticClaimDeleted | RewindMarkDeleted):
                return
            definition = GroupDefinition(record.group, NOT_DEFINED, (), None, DEFAULT_ASSIGNOR, ephemeral=False)
            group = self._found(definition, Now(0, 0))
        self._memory.follow(record)
        self.topic_readers.follow(record)
        _take_in(group, record)

    def starts_rebalance(self, record: object) -> bool:
        """Whether the record, which is not applied yet, begins a generation with members."""
        if not isinstance(record, GroupGeneration) or not record.members:
            return False
        group = self.groups.get(record.group)
        stored = None if group is None else group.stored
        return stored is None or stored.generation != record.generation

    def loaded(self, now: Now) -> Iterator[Effects]:
        """The log has been replayed: members have their whole session timeout to show that they live."""
        self._loaded = True
        for group in self.groups.values():
            if group.stored is not None:
                group.restore(group.stored)
            yield group.loaded(now)

    # parts of the above

    def _found(self, definition: GroupDefinition, now: Now) -> RegisteredGroup:
        group = RegisteredGroup(definition, self.settings, self._topics, self._offsets, now.wall_ms, self.topic_readers)
        self.groups[definition.group] = group
        return group

    def _with_offsets(self, group: RegisteredGroup, effects: Effects) -> Effects:
        if group.state is RegisteredState.DEAD:
            effects.records[:0] = self._offsets.delete_all(group.name)
        return effects

    def _definition_refusal(self, definition: GroupDefinition) -> int:
        if not definition.group:
            return KafkaErrorCode.INVALID_GROUP_ID
        if not self.settings.session_min_ms <= definition.session_timeout_ms <= self.settings.session_max_ms:
            return KafkaErrorCode.INVALID_SESSION_TIMEOUT
        if bool(definition.topics) is (definition.pattern is not None):
            return KafkaErrorCode.INVALID_REQUEST
        known = definition.assignor in ASSIGNORS
        return KafkaErrorCode.NONE if known else KafkaErrorCode.UNSUPPORTED_ASSIGNOR


def _take_in(group: RegisteredGroup, record: object) -> None:
    match record:
        case GroupDefinition():
            group.definition = record
        case GroupGeneration():
            group.stored = record
        case GroupGenerationDeleted():
            group.stored = None
        case StaticClaim(_, consumer_id, topic_partitions):
            group.claims[consumer_id] = topic_partitions
        case StaticClaimDeleted(_, consumer_id):
            group.claims.pop(consumer_id, None)
        case RewindMark(_, topic, partition, generation):
            group.marks[topic, partition] = generation
        case RewindMarkDeleted(_, topic, partition):
            group.marks.pop((topic, partition), None)
