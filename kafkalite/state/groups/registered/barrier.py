"""The actions of `groups/registered/table`: what a registered group does once an event has moved it."""

from collections.abc import Mapping

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.groups.records import (
    REGISTERED,
    GroupDeleted,
    GroupGenerationDeleted,
    RewindMark,
    RewindMarkDeleted,
    TopicPartition,
)
from kafkalite.state.groups.registered.assignment import assign
from kafkalite.state.groups.registered.core import (
    NOTHING,
    RegisteredCommand,
    RegisteredGroupCore,
    RegisteredGroupMember,
)
from kafkalite.state.groups.registered.requests import ConsumerRegistered, HeartbeatAnswered
from kafkalite.state.groups.registered.table import RegisteredEvent, RegisteredState

__all__ = ["RegisteredRebalance"]

UNKNOWN_MEMBER_ID = KafkaErrorCode.UNKNOWN_MEMBER_ID


class RegisteredRebalance(RegisteredGroupCore):
    """The way from one generation to the next."""

    __slots__ = ()

    def stay(self, step: RegisteredCommand) -> None:
        """Nothing is to be done."""

    # the barrier

    def wait_for_registrations(self, step: RegisteredCommand) -> None:
        """All members that are assigned partitions are to register, within the longest of their rebalance timeouts."""
        assigned = self.assigned_members()
        self.late = {member.name: None for member in assigned if member.parked is None}
        longest_ms = max((member.asked.rebalance_timeout_ms for member in assigned), default=0)
        step.effects.set_timer(self._barrier_timer(), step.now.ms + max(longest_ms, 0))
        self.begin_if_all_registered(step)

    def begin_if_all_registered(self, step: RegisteredCommand) -> None:
        """Go on when nobody has to be waited for, and it is known what is to be read."""
        if not self.late and not self.waits_for_pattern():
            self.transition(RegisteredEvent.ALL_REGISTERED, step)

    def go_on_without_the_late(self, step: RegisteredCommand) -> None:
        """Who has not registered in time is out, and starts the next generation when it does."""
        for name in list(self.late):
            self.remove(name, step, UNKNOWN_MEMBER_ID)
        if self.members:
            self.transition(RegisteredEvent.ALL_REGISTERED, step)
        else:
            self.transition(self.last_gone(), step)

    def last_gone(self) -> RegisteredEvent:
        """What it means that no member is left."""
        return RegisteredEvent.LAST_GONE_EPHEMERAL if self.definition.ephemeral else RegisteredEvent.LAST_GONE

    def begin_generation(self, step: RegisteredCommand) -> None:
        """Assign, store, and answer all that wait."""
        step.effects.cancel_timer(self._barrier_timer())
        self._count_up(step)
        for member in self.members.values():
            self._claim(member.name, member.asked.claims, step)
        for member, topic_partitions in self._dealt().items():
            step.token, member.parked = member.parked, None
            self._give(member, topic_partitions, step)
            self.keep_alive(member, step)  # its session did not count while it was parked

    def store_empty(self, step: RegisteredCommand) -> None:
        step.effects.cancel_timer(self._barrier_timer())
        step.changed = True

    # without a barrier

    def grant_claims(self, step: RegisteredCommand) -> None:
        """Give a member what it claims at once; who was assigned any of it registers again to learn that.

        Somebody may have claimed any of it until he registered for the generation that is being prepared: if the broker
        stops before that begins, there are not to be two claims of one partition.
        """
        member = step.member
        assert member is not None
        self._count_up(step)
        for other in self.members.values():
            if other is not member:
                self._claim(other.name, self.claims.get(other.name, NOTHING) - member.asked.claims, step)
                if not member.asked.claims.isdisjoint(other.owned):
                    other.change(other.owned - member.asked.claims, self.generation)
        self._claim(member.name, member.asked.claims, step)
        self._give(member, member.asked.claims, step)
        self._look_again(step)

    def release_claims(self, step: RegisteredCommand) -> None:
        """What was claimed is free; nothing else has changed for anybody who is not assigned it."""
        self._count_up(step)
        self._look_again(step)

    def answer_registered(self, step: RegisteredCommand) -> None:
        """A member goes on with what it owns, from the offsets as they are now. One that has heard this already has
        lost the answer, or is a new process: a generation of its own voids what an older one may still commit.
        """
        assert step.member is not None
        if step.member.answered:
            self._count_up(step)
        self._give(step.member, step.member.owned, step)

    def store_marks(self, step: RegisteredCommand) -> None:
        """The generation of a rewind: its owners must know it, and from then on commits of older ones are refused."""
        self.generation += 1
        step.changed = True
        for topic, number in step.topic_partitions:
            self.marks[topic, number] = self.generation
            step.effects.records.append(RewindMark(self.name, topic, number, self.generation))
        for member in self.members.values():
            if not member.owned.isdisjoint(step.topic_partitions):
                member.change(member.owned, self.generation)

    # heartbeats

    def answer_alive(self, step: RegisteredCommand) -> None:
        """Who is parked learns nothing new before its registration is answered."""
        assert step.member is not None
        known = step.generation if step.member.parked is not None else self.generation
        step.effects.answer(step.token, HeartbeatAnswered(0, known))

    def ask_to_register(self, step: RegisteredCommand) -> None:
        step.effects.answer(step.token, HeartbeatAnswered(KafkaErrorCode.REBALANCE_IN_PROGRESS))

    # the group itself

    def store_definition(self, step: RegisteredCommand) -> None:
        assert step.definition is not None
        self.definition = step.definition
        self.matched, self.resolving, self.resolved = None, False, False
        step.effects.records.append(self.definition)
        self.ask_topics(step)

    def store_deletion(self, step: RegisteredCommand) -> None:
        for timer in (self._barrier_timer(), self._pattern_timer()):
            step.effects.cancel_timer(timer)
        step.effects.records += [
            RewindMarkDeleted(self.name, *topic_partition) for topic_partition in sorted(self.marks)
        ]
        if self.stored is not None:
            step.effects.records.append(GroupGenerationDeleted(self.name))
        step.effects.records.append(GroupDeleted(self.name, REGISTERED))

    # parts of the above

    def _count_up(self, step: RegisteredCommand) -> None:
        self.generation += 1
        step.changed = True
        if self.definition.first_topics is None and self.members and not self.waits_for_pattern():
            first = tuple(sorted(self.sizes(self.read_topics()).items()))
            self.definition = self.definition._replace(first_topics=first)
            step.effects.records.append(self.definition)

    def _dealt(self) -> Mapping[RegisteredGroupMember, frozenset[TopicPartition]]:
        """What every member of the assignment is to own: its share, and what it claims."""
        assigned = {member.name: member for member in self.assigned_members()}
        wanted = {name: self.topics_of(member) for name, member in assigned.items()}
        taken = frozenset[TopicPartition]().union(*self.claims.values())
        dealt = assign(
            self.definition.assignor,
            wanted,
            {name: member.owned for name, member in assigned.items()},
            self.sizes({topic for topics in wanted.values() for topic in topics}),
            taken,
        )
        return {member: member.asked.claims.union(dealt[name]) for name, member in assigned.items()}

    def _give(
        self, member: RegisteredGroupMember, topic_partitions: frozenset[TopicPartition], step: RegisteredCommand
    ) -> None:
        """Let a member own this from the current generation on, and answer its registration."""
        member.give(topic_partitions, self.generation)
        step.changed = True
        step.effects.answer(step.token, ConsumerRegistered(0, self.generation, self.start_offsets(member)))

    def _look_again(self, step: RegisteredCommand) -> None:
        """What was claimed or is free again may be another share for others, or all that was waited for."""
        if self.state is RegisteredState.PREPARING:
            self.begin_if_all_registered(step)
        elif self.is_outdated():
            self.transition(RegisteredEvent.TOPICS_CHANGED, step)
