"""Which kind a group is of, and what its offsets must know of it: classic groups and consumer groups side by side.

A name belongs to one kind at a time. A group without members gives its name to whoever comes with the other protocol;
one with members keeps it.
Source: GroupMetadataManager.java (maybeDeleteEmptyClassicGroup, maybeDeleteEmptyConsumerGroup) of Apache Kafka.
"""

from collections.abc import Collection

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.classic_groups import ClassicGroups
from kafkalite.state.classic_requests import Join, Joined
from kafkalite.state.consumer_group import ConsumerGroups
from kafkalite.state.consumer_messages import ConsumerGroupHeartbeat, HeartbeatResult
from kafkalite.state.consumer_queries import check_commit, deletion, fence_owners
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.offsets import CommitCheck, CommitOf

__all__ = ["GroupKinds"]


class GroupKinds:
    """The groups of a shard whatever protocol they speak; `offsets.GroupsOfOffsets` for all of them."""

    def __init__(self, classic: ClassicGroups, consumers: ConsumerGroups) -> None:
        self._classic = classic
        self._consumers = consumers

    def join(self, request: Join, token: Token, now: Now) -> Effects:
        """A member of the classic protocol; INCONSISTENT_GROUP_PROTOCOL where members speak the other one."""
        group = self._consumers.groups.get(request.group)
        if group is None:
            return self._classic.join(request, token, now)
        gone = deletion(group)
        effects = Effects()
        if isinstance(gone, KafkaErrorCode):
            refused = Joined(KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
            effects.answer(token, refused)
            return effects
        joined = self._classic.join(request, token, now)
        if joined.records:
            effects.records += gone
        effects.extend(joined)
        return effects

    def consumer_heartbeat(self, request: ConsumerGroupHeartbeat, token: Token, now: Now) -> Effects:
        """A member of the consumer protocol; GROUP_ID_NOT_FOUND where members speak the classic one."""
        refusal = self._classic.delete_refusal(request.group)
        if refusal == KafkaErrorCode.NON_EMPTY_GROUP:
            effects = Effects()
            message = f"Group {request.group} is not a consumer group."
            effects.answer(token, HeartbeatResult(KafkaErrorCode.GROUP_ID_NOT_FOUND, message))
            return effects
        beat = self._consumers.heartbeat(token, request, now)
        if refusal or not beat.records:
            return beat
        effects = self._classic.delete(request.group, now)
        effects.extend(beat)
        return effects

    def fence_owners(self, name: str, places: Collection[CommitOf], now: Now) -> Effects:
        """Offsets of a group are being set anew: the owners of these partitions must join anew to read them."""
        group = self._consumers.groups.get(name)
        if group is None:
            return self._classic.fence_owners(name, {(each.topic, each.partition) for each in places}, now)
        return Effects(records=fence_owners(group, [(each.topic_id, each.partition) for each in places]))

    def check_commit(
        self, name: str, member_id: str, group_instance_id: str | None, generation: int, *, transactional: bool = False
    ) -> CommitCheck:
        """Whether this sender may commit; `generation` is the member epoch of a consumer group's member."""
        group = self._consumers.groups.get(name)
        if group is None:
            return self._classic.check_commit(
                name, member_id, group_instance_id, generation, transactional=transactional
            )
        return check_commit(group, member_id, generation)

    def committed(self, name: str, member_id: str, now: Now) -> Effects:
        """A commit keeps the session of a classic member alive; one of a consumer group must heartbeat."""
        return Effects() if name in self._consumers.groups else self._classic.committed(name, member_id, now)

    def offset_delete_refusal(self, name: str) -> int:
        """Of consumer groups the broker always knows what they read."""
        known = name in self._consumers.groups
        return KafkaErrorCode.NONE if known else self._classic.offset_delete_refusal(name)

    def reads_topic(self, name: str, topic: str) -> bool:
        """Whether a member of the group reads the topic."""
        group = self._consumers.groups.get(name)
        return self._classic.reads_topic(name, topic) if group is None else topic in group.subscribed_topics()

    def expire_since(self, name: str) -> int | None:
        """Offsets of a consumer group expire from their commits, for topics that it does not read."""
        return -1 if name in self._consumers.groups else self._classic.expire_since(name)

    def __contains__(self, name: str) -> bool:
        return name in self._classic or name in self._consumers.groups

    def names(self) -> list[str]:
        """All groups of either kind."""
        return [group.name for group in self._classic] + list(self._consumers.groups)

    def delete_refusal(self, name: str) -> int:
        """GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, or 0: the group may be deleted."""
        group = self._consumers.groups.get(name)
        if group is None:
            return self._classic.delete_refusal(name)
        gone = deletion(group)
        return gone if isinstance(gone, KafkaErrorCode) else KafkaErrorCode.NONE

    def delete(self, name: str, now: Now) -> Effects:
        """The tombstones of a group that `delete_refusal` lets go."""
        group = self._consumers.groups.get(name)
        if group is None:
            return self._classic.delete(name, now)
        gone = deletion(group)
        assert not isinstance(gone, KafkaErrorCode), name
        return Effects(records=gone)
