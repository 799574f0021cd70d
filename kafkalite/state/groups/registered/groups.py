"""All registered groups of a shard: their requests, timers, topics and records.

Pure. Invariants:
1. Before `start_timers`, `apply` builds the groups from the records. Later a command changes the group before its
   records are appended, and `apply` notes what is stored; if the append fails, the shard is dropped.
2. A group is created by CreateGroup or by a registration that is accepted; a rejected one leaves nothing behind.
3. When an ephemeral group is deleted, its offsets are deleted.
"""

from collections.abc import Collection, Iterator, Mapping

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.state.effects import Effects, Now, TimerName, Token, answer_only
from kafkalite.state.groups.assignors import ASSIGNORS
from kafkalite.state.groups.classic.requests import ErrorOnly, Leave, leave_unknown_group, unknown_group_error
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
from kafkalite.state.groups.registered import commands
from kafkalite.state.groups.registered.group import RegisteredGroup
from kafkalite.state.groups.registered.requests import (
    ConsumerRegistered,
    CreateGroup,
    HeartbeatAnswered,
    HeartbeatPlus,
    RegisterConsumer,
)
from kafkalite.state.groups.registered.settings import NOT_DEFINED, CommittedOffsets, RegisteredSettings
from kafkalite.state.groups.registered.states import RegisteredState
from kafkalite.state.groups.registered.subscribed_groups import RegisteredReaders
from kafkalite.state.groups.registered.table import TRANSITIONS
from kafkalite.state.groups.registered.topic_references import RegisteredTopicReferences

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
        topics: finds the topics that exist; `topics_changed` is called when they change.
        offsets: the committed offsets of the shard.

    Attributes:
        groups: by name.
        topic_readers: the groups that read each topic.
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
        self._topic_references = RegisteredTopicReferences()
        self.topic_readers = RegisteredReaders()

    # requests

    def create(self, request: CreateGroup, token: Token, now: Now) -> Effects:
        """Create a group or replace its definition. The result is an `ErrorOnly`; an equal definition has no effect.

        Errors: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, INVALID_REQUEST (topics and a pattern, or neither),
        UNSUPPORTED_ASSIGNOR, NON_EMPTY_GROUP (it has members and another definition).
        """
        group = self.groups.get(request.group)
        topics = tuple(sorted(set(request.topics)))
        definition = GroupDefinition(
            request.group, request.session_timeout_ms, topics, request.pattern, request.assignor, request.ephemeral
        )
        error = self._validate_definition(definition)
        if not error and group is not None and group.members:
            same = group.definition._replace(first_topics=None) == definition
            error = KafkaErrorCode.NONE if same else KafkaErrorCode.NON_EMPTY_GROUP
        elif not error:
            effects = commands.define(group or self._create(definition, now), definition, now)
            effects.answer(token, ErrorOnly())
            return effects
        return answer_only(token, ErrorOnly(error))

    def register(self, request: RegisterConsumer, token: Token, now: Now) -> Effects:
        """Register for the next generation. The result is a `ConsumerRegistered`, which may be delayed.

        Errors: INVALID_GROUP_ID, INVALID_REQUEST (no consumer id), INVALID_SESSION_TIMEOUT, GROUP_MAX_SIZE_REACHED,
        UNKNOWN_TOPIC_OR_PARTITION (of a claim), UNRELEASED_INSTANCE_ID (another member claims it),
        REBALANCE_IN_PROGRESS (a later registration replaced it), UNKNOWN_MEMBER_ID (the member was removed),
        FENCED_INSTANCE_ID (a newer process has the consumer id), UNSUPPORTED_ASSIGNOR (of a new group).
        """
        if not request.group:
            return answer_only(token, ConsumerRegistered(KafkaErrorCode.INVALID_GROUP_ID))
        if not request.consumer_id:
            return answer_only(token, ConsumerRegistered(KafkaErrorCode.INVALID_REQUEST))
        request = request._replace(topics=tuple(sorted(set(request.topics))))
        group = self.groups.get(request.group)
        if group is not None:
            return self._with_offsets(group, commands.register(group, request, token, now))
        assignor = request.assignor or DEFAULT_ASSIGNOR
        if assignor not in ASSIGNORS:
            return answer_only(token, ConsumerRegistered(KafkaErrorCode.UNSUPPORTED_ASSIGNOR))
        definition = GroupDefinition(request.group, NOT_DEFINED, (), None, assignor, ephemeral=False)
        group = self._create(definition, now)
        effects = commands.register(group, request, token, now)
        if not group.members:
            del self.groups[request.group]
        elif not any(isinstance(record, GroupDefinition) for record in effects.records):
            effects.records.insert(0, definition)
        return effects

    def heartbeat(self, request: HeartbeatPlus, token: Token, now: Now) -> Effects:
        """Extend the session of a member. The result is a `HeartbeatAnswered`.

        Errors: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, INVALID_SESSION_TIMEOUT, ILLEGAL_GENERATION (later than the current
        one), REBALANCE_IN_PROGRESS (the member must register), FENCED_INSTANCE_ID (a newer process has the consumer
        id).
        """
        group = self.groups.get(request.group)
        if group is not None:
            return commands.heartbeat(group, request, token, now)
        return answer_only(token, HeartbeatAnswered(unknown_group_error(request.group)))

    def leave(self, request: Leave, token: Token, now: Now) -> Effects:
        """Members leave. The result is a `Left` with an error per member."""
        group = self.groups.get(request.group)
        if group is not None:
            return self._with_offsets(group, commands.leave(group, request, token, now))
        return answer_only(token, leave_unknown_group(request))

    # time, topics and the log

    def fire_timer(self, name: TimerName, now: Now) -> Effects:
        """A timer has fired. The timer of a deleted group has no effects."""
        group = self.groups.get(name[1])
        if group is None:
            return Effects()
        if name[2] == "pattern":
            return commands.pattern_due(group, now)
        if name[2] == "session":
            return self._with_offsets(group, commands.session_expired(group, name[3], now))
        return self._with_offsets(group, commands.rebalance_timeout_expired(group, now))

    def topics_changed(self, names: Collection[str]) -> list[str]:
        """Topics were created or deleted, or have more partitions; returns the groups that may read one of them."""
        return self.topic_readers.readers_of(names)

    def check_topics(self, names: Collection[str], groups: Collection[str], now: Now) -> Effects:
        """The groups that read changed topics check their assignment.

        Arguments:
            names: of the topics.
            groups: those that `topics_changed` has returned, or some of them.
            now: the time.
        """
        effects = Effects()
        changed = frozenset(names)
        for name in groups:
            group = self.groups.get(name)
            if group is not None and (group.definition.pattern is not None or group.reads_any(changed)):
                effects.extend(commands.topics_changed(group, now))
        return effects

    def groups_of_topic(self, topic: str) -> list[str]:
        """The groups that have rewind marks of a topic, or whose first generation read it."""
        return self._topic_references.of(topic)

    def topics_deleted(self, group: str, topics: Collection[str]) -> list[object]:
        """The records by which a group forgets deleted topics: a new topic of the same name is another one."""
        found = self.groups.get(group)
        if found is None:
            return []
        deleted = frozenset(topics)
        records: list[object] = [
            RewindMarkDeleted(group, *topic_partition)
            for topic_partition in sorted(found.marks)
            if topic_partition[0] in deleted
        ]
        first = found.definition.first_topics
        if first is not None and not deleted.isdisjoint(dict(first)):
            kept = tuple(each for each in first if each[0] not in deleted)
            records.append(found.definition._replace(first_topics=kept))
        return records

    def patterns_resolved(self, group: str, found: Mapping[str, Collection[str]], now: Now) -> Effects:
        """The topics that the pattern of a group matches. The result for an earlier definition is ignored."""
        reader = self.groups.get(group)
        names = None if reader is None else found.get(reader.definition.pattern or "")
        if reader is None or names is None:
            return Effects()
        return commands.pattern_resolved(reader, tuple(sorted(set(names))), now)

    def patterns_failed(self, group: str) -> None:
        """The next heartbeat or registration asks again."""
        reader = self.groups.get(group)
        if reader is not None:
            reader.resolving = reader.resolved = False

    def apply(self, record: RegisteredRecord) -> None:
        """Apply a record (invariant 1)."""
        if isinstance(record, GroupDeleted):
            self.groups.pop(record.group, None)
            self._topic_references.forget(record.group)
            self.topic_readers.forget(record.group)
            return
        group = self.groups.get(record.group)
        if group is None:
            if isinstance(record, GroupGenerationDeleted | StaticClaimDeleted | RewindMarkDeleted):
                return
            definition = GroupDefinition(record.group, NOT_DEFINED, (), None, DEFAULT_ASSIGNOR, ephemeral=False)
            group = self._create(definition, Now(0, 0))
        self._topic_references.follow(record)
        self.topic_readers.follow(record)
        _apply(group, record)

    def starts_rebalance(self, record: object) -> bool:
        """Whether the record, which is not applied yet, begins a generation with members."""
        if not isinstance(record, GroupGeneration) or not record.members:
            return False
        group = self.groups.get(record.group)
        stored = None if group is None else group.stored
        return stored is None or stored.generation != record.generation

    def start_timers(self, now: Now) -> Iterator[Effects]:
        """The log was replayed: members have their whole session timeout for the next heartbeat."""
        for group in self.groups.values():
            if group.stored is not None:
                group.restore(group.stored)
            yield commands.start_sessions(group, now)

    # parts of the above

    def _create(self, definition: GroupDefinition, now: Now) -> RegisteredGroup:
        group = RegisteredGroup(
            definition, TRANSITIONS, self.settings, self._topics, self._offsets, now.wall_ms, self.topic_readers
        )
        self.groups[definition.group] = group
        return group

    def _with_offsets(self, group: RegisteredGroup, effects: Effects) -> Effects:
        if group.state is RegisteredState.DEAD:
            effects.records[:0] = self._offsets.delete_all(group.name)
        return effects

    def _validate_definition(self, definition: GroupDefinition) -> int:
        if not definition.group:
            return KafkaErrorCode.INVALID_GROUP_ID
        if not self.settings.session_min_ms <= definition.session_timeout_ms <= self.settings.session_max_ms:
            return KafkaErrorCode.INVALID_SESSION_TIMEOUT
        if bool(definition.topics) is (definition.pattern is not None):
            return KafkaErrorCode.INVALID_REQUEST
        known = definition.assignor in ASSIGNORS
        return KafkaErrorCode.NONE if known else KafkaErrorCode.UNSUPPORTED_ASSIGNOR


def _apply(group: RegisteredGroup, record: object) -> None:
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
            group.marks[TopicPartition(topic, partition)] = generation
        case RewindMarkDeleted(_, topic, partition):
            group.marks.pop(TopicPartition(topic, partition), None)
