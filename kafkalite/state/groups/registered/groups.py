"""All registered groups of a shard: which there are, who may do what with their offsets, and their part of the log.

Pure. Laws:
1. What is durable changes in `apply` alone. Before `loaded` it builds the groups from the records; later a living group
   has already become what its records say, and `apply` notes that this is stored.
2. A group that nobody could register with is not kept: a refused first registration leaves nothing behind.
3. An ephemeral group takes its offsets along.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, TimerName, Token, answered
from kafkalite.state.groups.assignors import ASSIGNORS
from kafkalite.state.groups.classic.requests import ErrorOnly, Leave, left_nobody, unknown_in
from kafkalite.state.groups.consumer.requests import TopicLookup
from kafkalite.state.groups.records import (
    GroupDefinition,
    GroupDeleted,
    GroupGeneration,
    GroupGenerationDeleted,
    RegisteredMember,
    RewindMark,
    RewindMarkDeleted,
    StaticClaim,
    StaticClaimDeleted,
    TopicPartition,
)
from kafkalite.state.groups.registered.core import CommittedOffsets, RegisteredSettings
from kafkalite.state.groups.registered.group import RegisteredGroup
from kafkalite.state.groups.registered.requests import (
    ConsumerRegistered,
    CreateGroup,
    HeartbeatAnswered,
    HeartbeatPlus,
    RegisterConsumer,
    RegisteredGroupDescription,
    RegisteredMemberDescription,
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
UNKNOWN_MEMBER_ID = KafkaErrorCode.UNKNOWN_MEMBER_ID
NOT_DEFINED = -1
DEFAULT_ASSIGNOR = "uniform"
NO_MARKS: Mapping[TopicPartition, int] = {}


class RegisteredCommitValidation(NamedTuple):
    """A judgement on a commit of `generation`. `member` None = nobody is one, so everything may be committed."""

    code: int
    generation: int = -1
    member: RegisteredMember | None = None
    marks: Mapping[TopicPartition, int] = NO_MARKS

    @property
    def uniform(self) -> bool:
        """Whether all partitions are judged alike: who is no member owns none."""
        return self.member is None

    def of_partition(self, topic_id: bytes, partition: int, topic: str = "") -> int:
        """ILLEGAL_GENERATION unless the sender owns the partition, and has not registered since the generation that it
        names, and nobody has rewound the partition since."""
        if self.code or self.member is None:
            return self.code
        topic_partition = topic, partition
        oldest = max(self.member.since, self.marks.get(topic_partition, 0))
        taken = topic_partition in self.member.owned and oldest <= self.generation
        return KafkaErrorCode.NONE if taken else KafkaErrorCode.ILLEGAL_GENERATION


class RegisteredGroups:
    """The registered groups of one shard.

    Arguments:
        settings: the broker's settings.
        topics: the topics as they are at any time; `topics_changed` tells that they are others.
        offsets: what is committed.

    Attributes:
        topic_readers: which groups a change of a topic concerns.
    """

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

    # administration

    def describe(self, name: str) -> RegisteredGroupDescription | None:
        """The group for an administrator; None when there is no such group."""
        group = self.groups.get(name)
        if group is None:
            return None
        members = []
        for member in group.members.values():
            owned: dict[str, tuple[int, ...]] = {}
            for topic, number in sorted(member.owned):
                owned[topic] = (*owned.get(topic, ()), number)
            members.append(
                RegisteredMemberDescription(member.name, member.asked.client_id, member.asked.client_host, owned)
            )
        longest_ms = max((member.session_timeout_ms for member in group.members.values()), default=NOT_DEFINED)
        defined_ms = group.definition.session_timeout_ms
        return RegisteredGroupDescription(
            name,
            group.state.value,
            group.generation or -1,
            group.definition.assignor,
            tuple(sorted(group.read_topics() or group.defined_topics())),
            longest_ms if defined_ms == NOT_DEFINED else defined_ms,
            tuple(members),
        )

    def rewind(self, name: str, topic_partitions: Collection[TopicPartition], now: Now) -> Effects:
        """Offsets of these partitions are being set anew: their owners must read them, and commit none of old."""
        group = self.groups.get(name)
        return Effects() if group is None or not topic_partitions else group.rewind(tuple(topic_partitions), now)

    def is_defined(self, name: str) -> bool:
        """Whether somebody has created the group: it keeps its name until it is deleted."""
        group = self.groups.get(name)
        return group is not None and group.definition.session_timeout_ms != NOT_DEFINED

    def validate_delete(self, name: str) -> int:
        """GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, or 0: the group may be deleted."""
        group = self.groups.get(name)
        if group is None:
            return KafkaErrorCode.GROUP_ID_NOT_FOUND
        return KafkaErrorCode.NON_EMPTY_GROUP if group.members else KafkaErrorCode.NONE

    def delete(self, name: str, now: Now) -> Effects:
        """The tombstones of a group that `validate_delete` lets go. Its offsets are deleted by `Offsets.delete_all`."""
        return self.groups[name].delete(now)

    # what the offsets must know

    def validate_offset_commit(
        self, name: str, member_id: str, generation: int, *, transactional: bool = False
    ) -> RegisteredCommitValidation:
        """Whether a commit is taken: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, or 0 = ask for each partition. A commit
        without a generation is one of a consumer that is no member: it is taken while the group has none."""
        group = self.groups[name]
        member = group.members.get(member_id)
        if generation < 0 and not member_id and (transactional or not group.members):
            return RegisteredCommitValidation(KafkaErrorCode.NONE)
        if member is None:
            return RegisteredCommitValidation(UNKNOWN_MEMBER_ID)
        if member.stored is None or not 0 <= generation <= group.generation:
            return RegisteredCommitValidation(KafkaErrorCode.ILLEGAL_GENERATION)
        return RegisteredCommitValidation(KafkaErrorCode.NONE, generation, member.stored, group.marks)

    def validate_offset_fetch(self, name: str, member_id: str | None, generation: int) -> int:
        """Whether this sender may fetch offsets; who names neither member nor generation, as tools do, may fetch."""
        group = self.groups[name]
        if not member_id and generation < 0:
            return KafkaErrorCode.NONE
        member = group.members.get(member_id or "")
        if member is None:
            return UNKNOWN_MEMBER_ID
        known = member.epoch <= generation <= group.generation
        return KafkaErrorCode.NONE if known else KafkaErrorCode.ILLEGAL_GENERATION

    def offsets_committed(self, name: str, member_id: str, now: Now) -> Effects:
        """A commit was taken: it keeps the member's session alive."""
        return self.groups[name].offsets_committed(member_id, now)

    def topics_read(self, name: str) -> Container[str]:
        """The topics that members of the group read."""
        return self.groups[name].read_topics()

    def expire_since(self, name: str) -> int:
        """From when on the retention of a group's offsets counts: wall time in ms, -1 = from each offset's commit."""
        group = self.groups[name]
        return -1 if group.members or group.stored is None else group.since_wall_ms

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

    def readers(self, topic: str) -> list[str]:
        """The groups that keep rewind marks of a topic, or began with it."""
        return self._memory.of(topic)

    def topics_deleted(self, name: str, topics: Collection[str]) -> list[object]:
        """The records by which a group forgets topics: those that are created under the same names are others."""
        group = self.groups.get(name)
        if group is None:
            return []
        gone = frozenset(topics)
        records: list[object] = [
            RewindMarkDeleted(name, *topic_partition)
            for topic_partition in sorted(group.marks)
            if topic_partition[0] in gone
        ]
        first = group.definition.first_topics
        if first is not None and not gone.isdisjoint(dict(first)):
            kept = tuple(each for each in first if each[0] not in gone)
            records.append(group.definition._replace(first_topics=kept))
        return records

    def patterns_resolved(self, name: str, found: Mapping[str, Collection[str]], now: Now) -> Effects:
        """The answer to `ResolvePatterns`: names of topics by pattern; one of a definition of before is nothing."""
        group = self.groups.get(name)
        names = None if group is None else found.get(group.definition.pattern or "")
        if group is None or names is None:
            return Effects()
        return group.pattern_resolved(tuple(sorted(set(names))), now)

    def patterns_failed(self, name: str) -> None:
        """The question could not be answered; the next heartbeat or registration asks again."""
        group = self.groups.get(name)
        if group is not None:
            group.resolving = group.resolved = False

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
