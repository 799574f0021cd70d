"""The groups of a shard by name, of all types, and the requests that create, replace or convert a group.

A name belongs to one group. A group without members is replaced when a member joins with another protocol, unless it is
a registered group that CreateGroup has created. A group with members is converted where the settings allow it
(`conversion`): a classic group when a member of the consumer protocol joins, a consumer group when its last member of
that protocol leaves; in between it has members of both protocols. All other joins are rejected.

Invariants:
1. The records of a conversion are one batch: the tombstones of the old group and the records of the new one.
2. The generation continues when the type changes between classic and consumer, also without members: members keep their
   ids, and a late commit of an old generation must not match a new generation with the same number.
Source: GroupMetadataManager.java (maybeDeleteEmptyClassicGroup, maybeDeleteEmptyConsumerGroup, convertToConsumerGroup,
convertToClassicGroup) of Apache Kafka 4.3.
"""

from itertools import chain

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, Token, answer_only
from kafkalite.state.groups.classic.groups import ClassicGroups
from kafkalite.state.groups.classic.requests import ErrorOnly, Heartbeat, Join, Joined, Leave, Sync, fresh_member_id
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.consumer.requests import (
    JOIN_EPOCH,
    CommandRejected,
    ConsumerGroupHeartbeat,
    HeartbeatResult,
)
from kafkalite.state.groups.conversion import downgrade, upgrade
from kafkalite.state.groups.group import Group, GroupType
from kafkalite.state.groups.records import CLASSIC, CONSUMER, REGISTERED, ConsumerGroupMetadata
from kafkalite.state.groups.registered.groups import RegisteredGroups
from kafkalite.state.groups.registered.requests import ConsumerRegistered, CreateGroup, RegisterConsumer

GROUP_TYPES = (CLASSIC, CONSUMER, REGISTERED)

NON_EMPTY_GROUP = KafkaErrorCode.NON_EMPTY_GROUP
CONVERTIBLE = (CLASSIC, CONSUMER)


class GroupRegistry:
    """The groups of a shard.

    Attributes:
        types: all group types by name; a new one is added here.
    """

    def __init__(self, classic: ClassicGroups, consumers: ConsumerGroups, registered: RegisteredGroups) -> None:
        self.types: dict[str, GroupType] = {each.name: each for each in (classic, consumers, registered)}
        self._maps = tuple(each.groups for each in self.types.values())
        self._classic = classic
        self._consumers = consumers
        self._registered = registered
        consumers.steps.to_classic = self._to_classic

    # look up

    def get(self, name: str) -> Group | None:
        """The group of this name, None = there is none."""
        for groups in self._maps:
            if name in groups:
                return groups[name]
        return None

    def type_of(self, name: str) -> GroupType | None:
        """The type of a group, None = there is no such group."""
        return next((each for each in self.types.values() if name in each.groups), None)

    def __contains__(self, name: str) -> bool:
        return any(name in groups for groups in self._maps)

    def names(self) -> list[str]:
        """The names of all groups."""
        return list(chain.from_iterable(self._maps))

    def count(self) -> int:
        """The number of groups."""
        return sum(map(len, self._maps))

    # the classic protocol, of classic and consumer groups

    def join(self, request: Join, token: Token, now: Now) -> Effects:
        """JoinGroup; INCONSISTENT_GROUP_PROTOCOL if the name belongs to a registered group that is not replaced."""
        group = self._consumers.groups.get(request.group)
        if group is not None and group.members:
            return self._join_consumers(request, token, now)
        if self._is_reserved(request.group):
            return answer_only(token, Joined(KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        joined = self._classic.join(request, token, now, group.epoch if group is not None else 0)
        return self._replacing(request.group, joined, now, CLASSIC)

    def sync(self, request: Sync, token: Token, now: Now) -> Effects:
        """SyncGroup."""
        if request.group in self._consumers.groups:
            return self._consumers.classic.sync(request, token, now)
        return self._classic.sync(request, token, now)

    def heartbeat(self, request: Heartbeat, token: Token, now: Now) -> Effects:
        """Heartbeat."""
        if request.group in self._consumers.groups:
            return self._consumers.classic.heartbeat(request, token, now)
        return self._classic.heartbeat(request, token, now)

    def fast_heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> bool:
        """Extend the session of a member if `heartbeat` would do only that and return no error; False = it would not,
        and nothing has changed.

        Arguments:
            name: of the group.
            member_id, instance_id, generation: as in the request.
            now_ms: on the monotonic clock.
        """
        if name in self._consumers.groups:
            return False
        return self._classic.fast_heartbeat(name, member_id, instance_id, generation, now_ms)

    def leave(self, request: Leave, token: Token, now: Now) -> Effects:
        """LeaveGroup, of any group: members leave, or an administrator removes static members."""
        return (self.type_of(request.group) or self._classic).leave(request, token, now)

    # the consumer protocol

    def consumer_heartbeat(self, request: ConsumerGroupHeartbeat, token: Token, now: Now) -> Effects:
        """ConsumerGroupHeartbeat; GROUP_ID_NOT_FOUND if a group of another type is neither replaced nor converted."""
        if request.group in self._consumers.groups:
            return self._consumers.heartbeats.heartbeat(request, token, now)
        classic = self._classic.groups.get(request.group)
        converts = classic is not None and classic.validate_delete() == NON_EMPTY_GROUP
        try:
            if self._is_reserved(request.group) or (converts and request.member_epoch != JOIN_EPOCH):
                raise CommandRejected(
                    KafkaErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group} is not a consumer group."
                )
            founding = self._founding(request.group)
        except CommandRejected as rejected:
            return answer_only(token, HeartbeatResult(rejected.code, rejected.message))
        heartbeat = self._consumers.heartbeats.heartbeat(request, token, now, founding)
        if not converts:
            return self._replacing(request.group, heartbeat, now, CONSUMER)
        effects = Effects()
        if heartbeat.records:
            effects.extend(self._classic.upgrade(request.group, now))
        effects.extend(heartbeat)
        return effects

    # registered groups

    def register(self, request: RegisterConsumer, token: Token, now: Now) -> Effects:
        """RegisterConsumer; INCONSISTENT_GROUP_PROTOCOL if the members use another protocol."""
        if self._has_other_members(request.group, REGISTERED):
            return answer_only(token, ConsumerRegistered(KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return self._replacing(request.group, self._registered.register(request, token, now), now, REGISTERED)

    def create(self, request: CreateGroup, token: Token, now: Now) -> Effects:
        """CreateGroup; INCONSISTENT_GROUP_PROTOCOL if the members use another protocol."""
        if self._has_other_members(request.group, REGISTERED):
            return answer_only(token, ErrorOnly(KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return self._replacing(request.group, self._registered.create(request, token, now), now, REGISTERED)

    # replacement and conversion

    def _replacing(self, name: str, effects: Effects, now: Now, group_type: str) -> Effects:
        """Put the tombstones of an empty group of another type before the records of a new group."""
        if not effects.records:
            return effects
        replacing = Effects()
        for other in self.types.values():
            group = other.groups.get(name)
            if group is not None and other.name != group_type:
                replacing.extend(group.delete(now))
        replacing.extend(effects)
        return replacing

    def _has_other_members(self, name: str, group_type: str) -> bool:
        """Whether a group of another type has this name and members."""
        others = (each.groups.get(name) for each in self.types.values() if each.name != group_type)
        return any(group is not None and group.validate_delete() == NON_EMPTY_GROUP for group in others)

    def _is_reserved(self, name: str) -> bool:
        """Whether the name belongs to a group that can be neither converted nor replaced."""
        group_type = self.type_of(name)
        if group_type is None or group_type.name in CONVERTIBLE:
            return False
        group = group_type.groups[name]
        return group.is_retained or group.validate_delete() == NON_EMPTY_GROUP

    def _join_consumers(self, request: Join, token: Token, now: Now) -> Effects:
        if error := self._classic.validate_join(request):
            return answer_only(token, Joined(error, request.member_id))
        effects = self._consumers.classic.join(request, token, now)
        if not effects.answers:  # the member replaced the last one of the consumer protocol: the group is classic now
            member_id = request.member_id or fresh_member_id(request)
            effects.extend(self._classic.join(request._replace(member_id=member_id), token, now))
        return effects

    def _founding(self, name: str) -> list[object]:
        """The records that convert a classic group to a consumer group; without members only its generation is kept."""
        group = self._classic.groups.get(name)
        if group is not None and group.members:
            steps = self._consumers.steps
            return upgrade(group, steps.settings_of(name), steps.topics, steps.embedded)
        return [ConsumerGroupMetadata(name, group.last_generation + 1)] if group is not None else []

    def _to_classic(self, before: ConsumerGroup, after: ConsumerGroup, now: Now) -> Effects | None:
        """Convert a consumer group that loses its last member of the consumer protocol and keeps others."""
        if before.all_classic or not after.members or not after.all_classic:
            return None
        steps = self._consumers.steps
        policy = steps.settings_of(before.group_id).migration
        fits = len(after.members) <= self._classic.settings.members_max
        converts = policy.downgrades and fits
        members = downgrade(after, steps.topics, steps.embedded) if converts else None
        if members is None:
            return None
        effects = Effects(records=before.tombstones())
        effects.extend(self._classic.downgrade(before.group_id, before.epoch, members, now))
        return effects
