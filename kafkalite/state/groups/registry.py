"""Which kind a group is of, and what its offsets must know of it: classic, consumer and registered groups side by side.

A name belongs to one kind at a time. A group without members gives its name to whoever comes with another protocol,
unless it is a registered group that somebody has created. One with members is converted, where its settings allow that
(`migration`): a classic group when a member of the consumer protocol joins, a consumer group when the last one of that
protocol has gone; in between members of both are in it. Else it keeps its name.
Whatever a conversion writes is one batch: the tombstones of one kind and the records of the other. Between classic and
consumer groups generations go on, also where nobody is in the group: members keep their ids for long, and a late commit
of an old generation must not be taken for one of a new generation of the same number.
Source: GroupMetadataManager.java (maybeDeleteEmptyClassicGroup, maybeDeleteEmptyConsumerGroup, convertToConsumerGroup,
convertToClassicGroup) of Apache Kafka 4.3.
"""

from collections.abc import Collection, Container

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, Token, answered
from kafkalite.state.groups.classic.groups import ClassicGroups
from kafkalite.state.groups.classic.requests import ErrorOnly, Heartbeat, Join, Joined, Leave, Sync, fresh_member_id
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.consumer.queries import deletion, fence_owners, tombstones, validate_offset_commit
from kafkalite.state.groups.consumer.requests import (
    JOIN_EPOCH,
    CommandRejected,
    ConsumerGroupHeartbeat,
    HeartbeatResult,
)
from kafkalite.state.groups.offsets.manager import CommitValidation, PartitionCommit
from kafkalite.state.groups.records import CLASSIC, CONSUMER, REGISTERED, ConsumerGroupMetadata
from kafkalite.state.groups.registered.groups import RegisteredGroups
from kafkalite.state.groups.registered.requests import ConsumerRegistered, CreateGroup, RegisterConsumer

__all__ = ["GroupRegistry"]


class GroupRegistry:
    """The groups of a shard whatever protocol they speak; `offsets.GroupsOfOffsets` for all of them."""

    def __init__(self, classic: ClassicGroups, consumers: ConsumerGroups, registered: RegisteredGroups) -> None:
        self._classic = classic
        self._consumers = consumers
        self._registered = registered
        consumers.to_classic = self._to_classic

    def join(self, request: Join, token: Token, now: Now) -> Effects:
        """A member of the classic protocol joins, perhaps a consumer group; INCONSISTENT_GROUP_PROTOCOL where it may
        not.
        """
        group = self._consumers.groups.get(request.group)
        if group is not None and group.members:
            return self._join_consumers(request, token, now)
        if self._keeps_name(request.group):
            return answered(token, Joined(KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        joined = self._classic.join(request, token, now, group.epoch if group is not None else 0)
        return self._given_up(request.group, joined, now, to=CLASSIC)

    def consumer_heartbeat(self, request: ConsumerGroupHeartbeat, token: Token, now: Now) -> Effects:
        """A member of the consumer protocol; GROUP_ID_NOT_FOUND where a group of another one keeps its name."""
        if request.group in self._consumers.groups:
            return self._consumers.heartbeat(request, token, now)
        converts = self._classic.validate_delete(request.group) == KafkaErrorCode.NON_EMPTY_GROUP
        try:
            if self._keeps_name(request.group) or (converts and request.member_epoch != JOIN_EPOCH):
                raise CommandRejected(
                    KafkaErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group} is not a consumer group."
                )
            founding = self._founding(request.group)
        except CommandRejected as refused:
            return answered(token, HeartbeatResult(refused.code, refused.message))
        fast_heartbeat = self._consumers.heartbeat(request, token, now, founding)
        if not converts:
            return self._given_up(request.group, fast_heartbeat, now, to=CONSUMER)
        effects = Effects()
        if fast_heartbeat.records:
            effects.extend(self._classic.upgrade(request.group, now))
        effects.extend(fast_heartbeat)
        return effects

    def sync(self, request: Sync, token: Token, now: Now) -> Effects:
        """A member of the classic protocol asks for its assignment."""
        consumers = request.group in self._consumers.groups
        return (self._consumers if consumers else self._classic).sync(request, token, now)

    def heartbeat(self, request: Heartbeat, token: Token, now: Now) -> Effects:
        """A member of the classic protocol is alive."""
        if request.group in self._consumers.groups:
            return self._consumers.classic_heartbeat(request, token, now)
        return self._classic.heartbeat(request, token, now)

    def fast_heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> bool:
        """Whether `heartbeat` would answer without an error and do nothing but take note; then the note is taken."""
        if name in self._consumers.groups:
            return False
        return self._classic.fast_heartbeat(name, member_id, instance_id, generation, now_ms)

    def register(self, request: RegisterConsumer, token: Token, now: Now) -> Effects:
        """A consumer of kafkalite's own protocol; INCONSISTENT_GROUP_PROTOCOL where members speak another one."""
        if self._has_members_of_kafka(request.group):
            return answered(token, ConsumerRegistered(KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        registered = self._registered.register(request, token, now)
        return self._given_up(request.group, registered, now, to=REGISTERED)

    def create(self, request: CreateGroup, token: Token, now: Now) -> Effects:
        """Define a registered group; INCONSISTENT_GROUP_PROTOCOL where members speak another protocol."""
        if self._has_members_of_kafka(request.group):
            return answered(token, ErrorOnly(KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        created = self._registered.create(request, token, now)
        return self._given_up(request.group, created, now, to=REGISTERED)

    def leave(self, request: Leave, token: Token, now: Now) -> Effects:
        """Members leave; an administrator removes static ones, of a consumer group whatever protocol they speak."""
        if request.group in self._registered:
            return self._registered.leave(request, token, now)
        if request.group in self._consumers.groups:
            return self._consumers.leave(request, token, now)
        return self._classic.leave(request, token, now)

    def fence_owners(self, name: str, topic_partitions: Collection[PartitionCommit], now: Now) -> Effects:
        """Offsets of a group are being set anew: the owners of these partitions must join anew to read them."""
        if name in self._registered:
            return self._registered.rewind(name, {(each.topic, each.partition) for each in topic_partitions}, now)
        group = self._consumers.groups.get(name)
        if group is None:
            return self._classic.fence_owners(name, {(each.topic, each.partition) for each in topic_partitions}, now)
        return Effects(records=fence_owners(group, [(each.topic_id, each.partition) for each in topic_partitions]))

    def validate_offset_fetch(self, name: str, member_id: str | None, generation: int) -> int:
        """Whether this sender may fetch offsets; `generation` is the member epoch of a consumer group's member."""
        if name in self._registered:
            return self._registered.validate_offset_fetch(name, member_id, generation)
        return self._consumers.validate_offset_fetch(name, member_id, generation)

    def validate_offset_commit(
        self, name: str, member_id: str, group_instance_id: str | None, generation: int, *, transactional: bool = False
    ) -> CommitValidation:
        """Whether this sender may commit; `generation` is the member epoch of a consumer group's member."""
        if name in self._registered.groups:
            return self._registered.validate_offset_commit(name, member_id, generation, transactional=transactional)
        group = self._consumers.groups.get(name)
        if group is None:
            return self._classic.validate_offset_commit(
                name, member_id, group_instance_id, generation, transactional=transactional
            )
        return validate_offset_commit(group, member_id, generation)

    def offsets_committed(self, name: str, member_id: str, now: Now) -> Effects:
        """A commit keeps the session of a member alive; one of a consumer group must heartbeat."""
        if name in self._registered:
            return self._registered.offsets_committed(name, member_id, now)
        return Effects() if name in self._consumers.groups else self._classic.offsets_committed(name, member_id, now)

    def validate_offset_delete(self, name: str) -> int:
        """Of consumer groups and registered ones the broker always knows what they read."""
        known = name in self._consumers.groups or name in self._registered
        return KafkaErrorCode.NONE if known else self._classic.validate_offset_delete(name)

    def topics_read(self, name: str) -> Container[str]:
        """The topics that members of the group read."""
        if name in self._registered:
            return self._registered.topics_read(name)
        if name in self._consumers.groups:
            return self._consumers.topics_read(name)
        return self._classic.topics_read(name)

    def expire_since(self, name: str) -> int | None:
        """Offsets of a consumer group expire from their commits, for topics that it does not read."""
        if name in self._registered:
            return self._registered.expire_since(name)
        return -1 if name in self._consumers.groups else self._classic.expire_since(name)

    def __contains__(self, name: str) -> bool:
        return name in self._classic or name in self._consumers.groups or name in self._registered

    def names(self) -> list[str]:
        """All groups of every kind."""
        return [group.name for group in self._classic] + list(self._consumers.groups) + list(self._registered.groups)

    def count(self) -> int:
        """How many groups there are of every kind."""
        return len(self._classic) + len(self._consumers.groups) + len(self._registered.groups)

    def validate_delete(self, name: str) -> int:
        """GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, or 0: the group may be deleted."""
        if name in self._registered:
            return self._registered.validate_delete(name)
        group = self._consumers.groups.get(name)
        if group is None:
            return self._classic.validate_delete(name)
        gone = deletion(group)
        return gone if isinstance(gone, KafkaErrorCode) else KafkaErrorCode.NONE

    def delete(self, name: str, now: Now) -> Effects:
        """The tombstones of a group that `validate_delete` lets go."""
        if name in self._registered:
            return self._registered.delete(name, now)
        group = self._consumers.groups.get(name)
        if group is None:
            return self._classic.delete(name, now)
        gone = deletion(group)
        assert not isinstance(gone, KafkaErrorCode), name
        return Effects(records=gone)

    def _join_consumers(self, request: Join, token: Token, now: Now) -> Effects:
        if error := self._classic.validate_join(request):
            return answered(token, Joined(error, request.member_id))
        effects = self._consumers.join(request, token, now)
        if not effects.answers:  # it was the last one to speak the consumer protocol, or took that one's place
            member_id = request.member_id or fresh_member_id(request)
            effects.extend(self._classic.join(request._replace(member_id=member_id), token, now))
        return effects

    def _founding(self, name: str) -> list[object]:
        """What makes a consumer group of a classic one; of one without members only its generation lives on."""
        group = self._classic.get(name)
        if group is not None and group.members:
            return self._consumers.founding(group)
        return [ConsumerGroupMetadata(name, group.last_generation + 1)] if group is not None else []

    def _to_classic(self, before: ConsumerGroup, after: ConsumerGroup, now: Now) -> Effects | None:
        """Make a classic group of one that loses its last member of the consumer protocol and keeps others."""
        if before.all_classic or not after.members or not after.all_classic:
            return None
        policy = self._consumers.settings_of(before.group_id).migration
        fits = len(after.members) <= self._classic.settings.members_max
        members = self._consumers.as_classic(after) if policy.downgrades and fits else None
        if members is None:
            return None
        effects = Effects(records=tombstones(before))
        effects.extend(self._classic.downgrade(before.group_id, before.epoch, members, now))
        return effects

    def _has_members_of_kafka(self, name: str) -> bool:
        classic = self._classic.validate_delete(name) == KafkaErrorCode.NON_EMPTY_GROUP
        group = self._consumers.groups.get(name)
        return classic or (group is not None and bool(group.members))

    def _keeps_name(self, name: str) -> bool:
        """Whether a registered group stays what it is: it has members, or was created and not deleted."""
        has_members = self._registered.validate_delete(name) == KafkaErrorCode.NON_EMPTY_GROUP
        return has_members or self._registered.is_defined(name)

    def _given_up(self, name: str, effects: Effects, now: Now, to: str) -> Effects:
        """What founded a group of one kind, after the tombstones of an empty one of another kind that had the name."""
        if not effects.records:
            return effects
        given = Effects()
        if to != REGISTERED and name in self._registered:
            given.extend(self._registered.delete(name, now))
        if to != CLASSIC and name in self._classic:
            given.extend(self._classic.delete(name, now))
        group = self._consumers.groups.get(name)
        if to != CONSUMER and group is not None:
            gone = deletion(group)
            assert not isinstance(gone, KafkaErrorCode), name
            given.records += gone
        given.extend(effects)
        return given
