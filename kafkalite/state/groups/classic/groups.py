"""All classic groups of a shard: which there are, who may do what with their offsets, and their part of the log.

Pure. Laws:
1. What is durable changes in `apply` alone. Before `loaded` it builds the groups from the records; later a living group
   has already become what its record says, and `apply` notes that this is stored.
2. A group that nobody could join is not kept: a refused first join leaves nothing behind.
3. A token is any object but None.
"""

from collections.abc import Collection, Container, Iterator
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, TimerName, Token, answered
from kafkalite.state.groups.classic import commands
from kafkalite.state.groups.classic.group import ClassicGroup
from kafkalite.state.groups.classic.join import join
from kafkalite.state.groups.classic.members import ClassicMember
from kafkalite.state.groups.classic.requests import (
    Described,
    ErrorOnly,
    Heartbeat,
    Join,
    Joined,
    Leave,
    ListedGroup,
    Sync,
    Synced,
    left_nobody,
    unknown_in,
)
from kafkalite.state.groups.classic.settings import CONSUMER_PROTOCOL, ClassicSettings
from kafkalite.state.groups.classic.states import ClassicState
from kafkalite.state.groups.classic.table import TRANSITIONS
from kafkalite.state.groups.groups_by_topic import EVERYTHING, NO_TOPICS
from kafkalite.state.groups.member_memory import ShardMemory
from kafkalite.state.groups.records import CLASSIC, ClassicGroupMetadata, GroupDeleted

__all__ = ["ClassicCommitValidation", "ClassicGroups"]

UNKNOWN_MEMBER_ID = KafkaErrorCode.UNKNOWN_MEMBER_ID


class ClassicCommitValidation(NamedTuple):
    """A judgement on a commit; in a classic group it is the same for all partitions but those that were rewound in
    the generation that runs.
    """

    code: int
    rewound: frozenset[tuple[str, int]] = frozenset()

    @property
    def uniform(self) -> bool:
        """Whether all partitions are judged alike: none was rewound."""
        return not self.rewound

    def of_partition(self, topic_id: bytes, partition: int, topic: str = "") -> int:
        """The judgement on one partition of a commit."""
        if self.rewound and not self.code and (topic, partition) in self.rewound:
            return KafkaErrorCode.ILLEGAL_GENERATION
        return self.code


TAKEN = ClassicCommitValidation(KafkaErrorCode.NONE)


class ClassicGroups:
    """The classic groups of one shard.

    Arguments:
        settings: the broker's settings.
        memory: counts the memory of all members, within the limit of the broker.
    """

    def __init__(self, settings: ClassicSettings, memory: ShardMemory | None = None) -> None:
        self.settings = settings
        self.memory = memory or ShardMemory()
        self._groups: dict[str, ClassicGroup] = {}
        self._loaded = False

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(self._groups.values())

    def get(self, group: str) -> ClassicGroup | None:
        """The group's machine, None when there is no such classic group."""
        return self._groups.get(group)

    # requests of members

    def join(self, request: Join, token: Token, now: Now, since: int = 0) -> Effects:
        """Join a group, found it when need be; answers `Joined`, perhaps much later.

        `since` is the last generation of the group that had the name before.
        Errors: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID, MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID,
        INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED, REBALANCE_IN_PROGRESS.
        """
        unknown = request.member_id and request.group not in self._groups
        if error := self.validate_join(request) or (UNKNOWN_MEMBER_ID if unknown else 0):
            return answered(token, Joined(error, request.member_id))
        group = self._groups.get(request.group)
        if group is not None:
            return join(group, request, token, now)
        group = self._create(request.group, now.wall_ms)
        group.generation = since
        effects = join(group, request, token, now)
        if group.members or group.members.reserved_ids:
            self._groups[request.group] = group
            effects.records.append(group.creation_record())
        return effects

    def sync(self, request: Sync, token: Token, now: Now) -> Effects:
        """Bring or fetch an assignment; answers `Synced` once the leader has assigned.

        Errors: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
        REBALANCE_IN_PROGRESS.
        """
        group = self._groups.get(request.group)
        if group is None:
            return answered(token, Synced(unknown_in(request.group)))
        return commands.sync(group, request, token, now)

    def heartbeat(self, request: Heartbeat, token: Token, now: Now) -> Effects:
        """Say that a member is alive; answers `Done`: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
        REBALANCE_IN_PROGRESS or no error."""
        group = self._groups.get(request.group)
        if group is None:
            return answered(token, ErrorOnly(unknown_in(request.group)))
        return commands.heartbeat(group, request, token, now)

    def fast_heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> bool:
        """A heartbeat that leads nowhere; False = it is not one, and nothing has happened."""
        group = self._groups.get(name)
        return group is not None and commands.fast_heartbeat(group, member_id, instance_id, generation, now_ms)

    def leave(self, request: Leave, token: Token, now: Now) -> Effects:
        """Leave, or remove static members; answers `Left` with an error per member."""
        group = self._groups.get(request.group)
        if group is not None:
            return commands.leave(group, request, token, now)
        return answered(token, left_nobody(request))

    # administration

    def describe(self, name: str) -> Described | None:
        """What DescribeGroups shows; None when there is no such group (to clients: state Dead)."""
        group = self._groups.get(name)
        if group is None:
            return None
        record = group.metadata_record()
        if group.state is ClassicState.STABLE:
            return Described(group.state.value, record.protocol_type, record.protocol or "", record.members)
        bare = tuple(member._replace(subscription=b"", assignment=b"") for member in record.members)
        return Described(group.state.value, record.protocol_type, "", bare)

    def listed(self) -> Iterator[ListedGroup]:
        """All groups, for ListGroups; commands may run between two of them."""
        for group in list(self):
            yield ListedGroup(group.name, group.protocol_type or "", group.state.value)

    def validate_delete(self, name: str) -> int:
        """GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, or 0: the group may be deleted."""
        group = self._groups.get(name)
        if group is None:
            return KafkaErrorCode.GROUP_ID_NOT_FOUND
        return KafkaErrorCode.NONE if group.state is ClassicState.EMPTY else KafkaErrorCode.NON_EMPTY_GROUP

    def delete(self, name: str, now: Now) -> Effects:
        """The tombstone of a group that `validate_delete` lets go. Its offsets are deleted by `Offsets.delete_all`."""
        return self._groups[name].delete(now)

    def upgrade(self, name: str, now: Now) -> Effects:
        """Give the name of a group with members to the consumer group that takes them over."""
        return commands.upgrade(self._groups[name], now)

    def downgrade(self, name: str, generation: int, members: Collection[ClassicMember], now: Now) -> Effects:
        """Make a classic group of a consumer group's members, who know `generation`."""
        group = self._groups[name] = self._create(name, now.wall_ms)
        return commands.downgrade(group, generation, members, now)

    def fence_owners(self, name: str, partitions: Collection[tuple[str, int]], now: Now) -> Effects:
        """Offsets of these partitions are being set anew: their owners must read them, and commit none of old."""
        group = self._groups.get(name)
        return Effects() if group is None else group.fence_owners(partitions, now)

    # what the offsets must know

    def validate_offset_commit(
        self, name: str, member_id: str, group_instance_id: str | None, generation: int, *, transactional: bool = False
    ) -> ClassicCommitValidation:
        """Whether a commit is taken: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
        REBALANCE_IN_PROGRESS or 0. A commit without a generation is one of a consumer that is no member."""
        group = self._groups.get(name)
        if group is None:
            return TAKEN if generation < 0 else ClassicCommitValidation(KafkaErrorCode.GROUP_ID_NOT_FOUND)
        if generation < 0 and group.state is ClassicState.EMPTY:
            return TAKEN
        if generation >= 0 or member_id or group_instance_id is not None:
            if error := group.members.validate_member(member_id, group_instance_id):
                return ClassicCommitValidation(error)
            if generation != group.generation:
                return ClassicCommitValidation(KafkaErrorCode.ILLEGAL_GENERATION)
        elif not transactional:
            return ClassicCommitValidation(UNKNOWN_MEMBER_ID)
        rebalancing = group.state is ClassicState.COMPLETING and not transactional
        return ClassicCommitValidation(
            KafkaErrorCode.REBALANCE_IN_PROGRESS if rebalancing else KafkaErrorCode.NONE, group.rewound
        )

    def offsets_committed(self, name: str, member_id: str, now: Now) -> Effects:
        """A commit was taken: it keeps the member's session alive."""
        group = self._groups.get(name)
        return Effects() if group is None else group.offsets_committed(member_id, now)

    def validate_offset_delete(self, name: str) -> int:
        """Whether offsets may be deleted one by one: only where the broker can tell who reads what."""
        group = self._groups.get(name)
        if group is None:
            return KafkaErrorCode.GROUP_ID_NOT_FOUND
        knows = group.state is ClassicState.EMPTY or group.protocol_type == CONSUMER_PROTOCOL
        return KafkaErrorCode.NONE if knows else KafkaErrorCode.NON_EMPTY_GROUP

    def topics_read(self, name: str) -> Container[str]:
        """The topics that members may read; all when a consumer's subscription cannot be read."""
        group = self._groups.get(name)
        if group is None:
            return NO_TOPICS
        if group.topics is None:
            return EVERYTHING if group.protocol_type == CONSUMER_PROTOCOL else NO_TOPICS
        return group.topics

    def expire_since(self, name: str) -> int | None:
        """From when on the retention of a group's offsets counts.

        Returns: wall time in ms; -1 = from each offset's commit; None = they do not expire now.
        """
        group = self._groups.get(name)
        if group is None or group.protocol_type is None:
            return -1
        if group.state is ClassicState.EMPTY:
            return group.state_since_wall_ms
        stable_consumers = group.state is ClassicState.STABLE and group.topics is not None
        return -1 if stable_consumers else None

    # time and the log

    def expired(self, name: TimerName, now: Now) -> Effects:
        """A timer of this machine has run out; one of a group that has gone is nothing."""
        group = self._groups.get(name[1])
        if group is None:
            return Effects()
        if name[2] == "session":
            return commands.session_expired(group, name[3], now)
        if name[2] == "join":
            return commands.rebalance_timeout_expired(group, now)
        return commands.sync_timeout_expired(group, now)

    def apply(self, record: ClassicGroupMetadata | GroupDeleted) -> None:
        """Take a record of the log into the durable state (law 1)."""
        if isinstance(record, GroupDeleted):
            if record.kind == CLASSIC:
                self._drop(record.group)
            return
        group = self._groups.get(record.group)
        if group is None or not self._loaded:
            self._drop(record.group)
            group = self._groups[record.group] = self._create(record.group, record.state_timestamp_ms)
            group.restore(record)
        group.stored = record

    def loaded(self, now: Now) -> Iterator[Effects]:
        """The log has been replayed: members have their whole session timeout to show that they live."""
        self._loaded = True
        for group in self:
            yield from commands.loaded(group, now)
        self.memory.attach()

    def ended(self) -> None:
        """The machine of the shard is dropped."""
        self.memory.detach()

    def _create(self, name: str, wall_ms: int) -> ClassicGroup:
        return ClassicGroup(name, TRANSITIONS, self.settings, wall_ms, self.memory)

    def _drop(self, name: str) -> None:
        group = self._groups.pop(name, None)
        if group is not None:
            group.members.release()

    def validate_join(self, request: Join) -> int:
        """INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, or 0: no group could take the join."""
        if not request.group:
            return KafkaErrorCode.INVALID_GROUP_ID
        settings = self.settings
        valid = settings.session_min_ms <= request.session_timeout_ms <= settings.session_max_ms
        return KafkaErrorCode.NONE if valid else KafkaErrorCode.INVALID_SESSION_TIMEOUT
