"""All classic groups of a shard: their requests, timers and records.

Pure. Invariants:
1. Before `start_timers`, `apply` builds the groups from the records. Later a command changes the group before its
   record is appended, and `apply` notes what is stored; if the append fails, the shard is dropped.
2. A join that is accepted creates the group; a rejected first join leaves nothing behind.
3. A token is any object but None.
"""

from collections.abc import Collection, Iterator

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, TimerName, Token, answer_only
from kafkalite.state.groups.classic import commands
from kafkalite.state.groups.classic.group import ClassicGroup
from kafkalite.state.groups.classic.join import join
from kafkalite.state.groups.classic.members import ClassicMember, ClassicMembers
from kafkalite.state.groups.classic.requests import (
    ErrorOnly,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Sync,
    Synced,
    leave_unknown_group,
    unknown_group_error,
)
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.classic.sync import sync, sync_timeout_expired
from kafkalite.state.groups.classic.table import TRANSITIONS
from kafkalite.state.groups.group import GroupType
from kafkalite.state.groups.member_memory import MachineMemory
from kafkalite.state.groups.records import CLASSIC, ClassicGroupMetadata, GroupDeleted

UNKNOWN_MEMBER_ID = KafkaErrorCode.UNKNOWN_MEMBER_ID


class ClassicGroups(GroupType):
    """The classic groups of one shard.

    Arguments:
        settings: the broker's settings.
        memory: counts the memory of all members, within the limit of the broker.

    Attributes:
        groups: by name.
    """

    name = CLASSIC
    record_types = (ClassicGroupMetadata,)

    def __init__(self, settings: ClassicSettings, memory: MachineMemory | None = None) -> None:
        self.settings = settings
        self.memory = memory or MachineMemory()
        self.groups: dict[str, ClassicGroup] = {}
        self._loaded = False

    # requests of members

    def join(self, request: Join, token: Token, now: Now, since: int = 0) -> Effects:
        """Join a group, which is created if necessary. The result is a `Joined`, which may be delayed.

        Arguments:
            request: of the member.
            token: of the response.
            now: the time.
            since: the last generation of the previous group of the same name, if the join creates the group.

        Errors: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID, MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID,
        INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED, REBALANCE_IN_PROGRESS.
        """
        unknown = request.member_id and request.group not in self.groups
        if error := self.validate_join(request) or (UNKNOWN_MEMBER_ID if unknown else 0):
            return answer_only(token, Joined(error, request.member_id))
        group = self.groups.get(request.group)
        if group is not None:
            return join(group, request, token, now)
        group = self._create(request.group, now.wall_ms)
        group.generation = since
        effects = join(group, request, token, now)
        if group.members or group.members.reserved_ids:
            self.groups[request.group] = group
            effects.records.append(group.creation_record())
        return effects

    def sync(self, request: Sync, token: Token, now: Now) -> Effects:
        """Send or fetch the assignment. The result is a `Synced`, delayed until the leader has sent the assignment.

        Errors: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
        REBALANCE_IN_PROGRESS.
        """
        group = self.groups.get(request.group)
        if group is None:
            return answer_only(token, Synced(unknown_group_error(request.group)))
        return sync(group, request, token, now)

    def heartbeat(self, request: Heartbeat, token: Token, now: Now) -> Effects:
        """Extend the session of a member. The result is an `ErrorOnly`.

        Errors: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
        """
        group = self.groups.get(request.group)
        if group is None:
            return answer_only(token, ErrorOnly(unknown_group_error(request.group)))
        return commands.heartbeat(group, request, token, now)

    def fast_heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> bool:
        """Extend the session of a member if `heartbeat` would do nothing else (`commands.fast_heartbeat`).

        Arguments:
            name: the group id.
            member_id: of the sender.
            instance_id: of a static member; None = none.
            generation: of the sender.
            now_ms: monotonic time in ms.
        """
        group = self.groups.get(name)
        return group is not None and commands.fast_heartbeat(group, member_id, instance_id, generation, now_ms)

    def leave(self, request: Leave, token: Token, now: Now) -> Effects:
        """Members leave, or static members are removed. The result is a `Left` with an error per member."""
        group = self.groups.get(request.group)
        if group is not None:
            return commands.leave(group, request, token, now)
        return answer_only(token, leave_unknown_group(request))

    # conversion

    def upgrade(self, name: str, now: Now) -> Effects:
        """End a group whose members are now in a consumer group of the same name."""
        return commands.upgrade(self.groups[name], now)

    def downgrade(self, name: str, generation: int, members: Collection[ClassicMember], now: Now) -> Effects:
        """Convert a consumer group: its members are in `generation` and must rejoin."""
        group = self.groups[name] = self._create(name, now.wall_ms)
        return commands.downgrade(group, generation, members, now)

    # time and the log

    def fire_timer(self, name: TimerName, now: Now) -> Effects:
        """A timer has fired. The timer of a deleted group has no effects."""
        group = self.groups.get(name[1])
        if group is None:
            return Effects()
        if name[2] == "session":
            return commands.session_expired(group, name[3], now)
        if name[2] == "join":
            return commands.rebalance_timeout_expired(group, now)
        return sync_timeout_expired(group, now)

    def apply(self, record: ClassicGroupMetadata | GroupDeleted) -> None:
        """Apply a record (invariant 1)."""
        if isinstance(record, GroupDeleted):
            self._drop(record.group)
            return
        group = self.groups.get(record.group)
        if group is None or not self._loaded:
            self._drop(record.group)
            group = self.groups[record.group] = self._create(record.group, record.state_timestamp_ms)
            group.restore(record)
        group.stored = record

    def starts_rebalance(self, record: object) -> bool:
        """Whether the record, which is not applied yet, begins a generation with members."""
        if not isinstance(record, ClassicGroupMetadata) or not record.members:
            return False
        group = self.groups.get(record.group)
        stored = None if group is None else group.stored
        return stored is None or stored.generation != record.generation

    def start_timers(self, now: Now) -> Iterator[Effects]:
        """The log was replayed: members have their whole session timeout for the next heartbeat."""
        self._loaded = True
        for group in self.groups.values():
            yield from commands.start_sessions(group, now)
        self.memory.attach()

    def ended(self) -> None:
        """Release what the machine holds: it is dropped."""
        self.memory.detach()

    def _create(self, name: str, wall_ms: int) -> ClassicGroup:
        return ClassicGroup(name, TRANSITIONS, self.settings, wall_ms, ClassicMembers(self.memory))

    def _drop(self, name: str) -> None:
        group = self.groups.pop(name, None)
        if group is not None:
            group.members.release()

    def validate_join(self, request: Join) -> int:
        """INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, or 0: the join is valid for some group."""
        if not request.group:
            return KafkaErrorCode.INVALID_GROUP_ID
        settings = self.settings
        valid = settings.session_min_ms <= request.session_timeout_ms <= settings.session_max_ms
        return KafkaErrorCode.NONE if valid else KafkaErrorCode.INVALID_SESSION_TIMEOUT
