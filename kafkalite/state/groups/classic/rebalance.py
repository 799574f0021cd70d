"""The actions of `groups/classic/table`: what a classic group does once an event has moved it."""

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.groups.classic.core import ClassicCommand, ClassicGroupCore
from kafkalite.state.groups.classic.members import ClassicMember
from kafkalite.state.groups.classic.requests import ErrorOnly, Synced
from kafkalite.state.groups.classic.table import ClassicEvent
from kafkalite.state.groups.records import CLASSIC, GroupDeleted

__all__ = ["ClassicRebalance"]

WAIT_AGAIN_MIN_MS = 1_000


class ClassicRebalance(ClassicGroupCore):
    """The way from one generation to the next."""

    __slots__ = ()

    def stay(self, step: ClassicCommand) -> None:
        """Nothing is to be done."""

    def start_initial_rebalance(self, step: ClassicCommand) -> None:
        """Give others time to join too, before the first generation begins."""
        delay = self.settings.initial_delay_ms
        self.initial, self.grew = True, False
        self.delay = (delay, max(self.members.rebalance_timeout_ms() - delay, 0))
        self._forget_syncs(step)
        step.effects.set_timer(self._join_timer(), step.now.ms + delay)

    def start_rebalance(self, step: ClassicCommand) -> None:
        """Wait until all members have rejoined, for the longest of their rebalance timeouts."""
        self.initial = False
        self._forget_syncs(step)
        if self.members.all_joined():
            self.complete_joins(step)
        else:
            step.effects.set_timer(self._join_timer(), step.now.ms + self.members.rebalance_timeout_ms())

    def wait_again(self, step: ClassicCommand) -> None:
        """Until somebody joins, or the sessions are over; a rebalance timeout of 0 must not make the timer spin."""
        wait_ms = max(WAIT_AGAIN_MIN_MS, self.members.rebalance_timeout_ms())
        step.effects.set_timer(self._join_timer(), step.now.ms + wait_ms)

    def extend_delay(self, step: ClassicCommand) -> None:
        """Members came during the initial delay: wait once more, up to the rebalance timeout in all."""
        delay, remaining = self.delay
        self.grew = False
        self.delay = (min(self.settings.initial_delay_ms, remaining), max(remaining - delay, 0))
        step.effects.set_timer(self._join_timer(), step.now.ms + self.delay[0])

    def complete_unless_initial(self, step: ClassicCommand) -> None:
        """Go on when nobody has to be waited for; the initial delay is waited for in any case."""
        if not self.initial:
            self.complete_if_all_joined(step)

    def complete_if_all_joined(self, step: ClassicCommand) -> None:
        if self.members.all_joined():
            self.complete_joins(step)

    def complete_joins(self, step: ClassicCommand) -> None:
        """The time to join is over: dynamic members that did not are out, static ones may come back later."""
        step.effects.cancel_timer(self._join_timer())
        for member in list(self.members.all.values()):
            if member.join is None and member.group_instance_id is None:
                self._remove(member.member_id, step)
        if not self.members:
            self.transition(ClassicEvent.LAST_LEFT, step)
        elif self.members.elect_joined_leader():
            self.transition(ClassicEvent.ALL_JOINED, step)
        else:
            self.transition(ClassicEvent.NOBODY_JOINED, step)

    def begin_generation(self, step: ClassicCommand) -> None:
        """Answer all joins, and wait for the syncs."""
        self._count_up()
        self.protocol = self.members.chosen_protocol()
        self.topics = self.subscribed_topics()
        self.members.pending_sync = dict.fromkeys(self.members.all)
        for member in self.members.all.values():
            member.is_new, member.seen = False, member.protocols
            self.members.recount(member)
            parked = self.members.unpark_join(member)
            if parked is not None:
                step.effects.answer(parked, self._joined(member))
            self._keep_alive(member, step)
        step.effects.set_timer(self._sync_timer(), step.now.ms + self.members.rebalance_timeout_ms())

    def store_empty(self, step: ClassicCommand) -> None:
        self._count_up()
        self.protocol = None
        self.topics = self.subscribed_topics()
        step.effects.records.append(self.metadata_record())

    def _count_up(self) -> None:
        """A generation that no member knows, and that was not stored for members that know an older one."""
        self.generation = self.last_generation + 1
        self.rewound = frozenset()

    def spread_assignment(self, step: ClassicCommand) -> None:
        """Keep what the leader assigned, and answer all parked syncs; who was left out gets nothing."""
        assert step.member is not None
        self._park_sync(step.member, step)
        for member in self.members.all.values():
            member.assignment = step.assignments.get(member.member_id, b"")
        step.effects.records.append(self.metadata_record())
        self._answer_syncs(KafkaErrorCode.NONE, step)

    def park_sync(self, step: ClassicCommand) -> None:
        assert step.member is not None
        self._park_sync(step.member, step)

    def answer_synced(self, step: ClassicCommand) -> None:
        assert step.member is not None
        step.effects.answer(step.token, Synced(0, self.protocol_type, self.protocol, step.member.assignment))

    def refuse_sync(self, step: ClassicCommand) -> None:
        step.effects.answer(step.token, Synced(KafkaErrorCode.REBALANCE_IN_PROGRESS))

    def answer_joined(self, step: ClassicCommand) -> None:
        """A member that lost its answer, or has nothing new, goes on in the generation that runs."""
        assert step.member is not None
        step.effects.answer(step.token, self._joined(step.member))

    def store_replacement(self, step: ClassicCommand) -> None:
        """A restarted static member keeps its partitions: nobody rebalances (KIP-345, KIP-814)."""
        assert step.member is not None
        parked = self.members.unpark_join(step.member)
        step.effects.records.append(self.metadata_record())
        leads = step.member.member_id == self.members.leader
        answer = self._joined(step.member, include_members=step.can_skip_assignment)
        if step.can_skip_assignment:
            answer = answer._replace(skip_assignment=leads)
        elif leads:  # an old client must not take itself for a leader that has to assign
            answer = answer._replace(leader=step.replaced_id)
        step.effects.answer(parked, answer)

    def ask_to_rejoin(self, step: ClassicCommand) -> None:
        step.effects.answer(step.token, ErrorOnly(KafkaErrorCode.REBALANCE_IN_PROGRESS))

    def answer_alive(self, step: ClassicCommand) -> None:
        step.effects.answer(step.token, ErrorOnly())

    def store_deletion(self, step: ClassicCommand) -> None:
        step.effects.records.append(GroupDeleted(self.name, CLASSIC))

    def hand_over(self, step: ClassicCommand) -> None:
        """Everybody goes on in the consumer group of this name: who waits is to ask there."""
        for member in self.members.all.values():
            self._answer_parked(member, KafkaErrorCode.REBALANCE_IN_PROGRESS, member.member_id, step)
        for member_id in [*self.members.all, *self.members.pending]:
            step.effects.cancel_timer(self._session_timer(member_id))
        step.effects.cancel_timer(self._join_timer())
        step.effects.cancel_timer(self._sync_timer())
        self.store_deletion(step)

    def _park_sync(self, member: ClassicMember, step: ClassicCommand) -> None:
        replaced, member.sync = member.sync, step.token
        if replaced is not None:
            step.effects.answer(replaced, Synced(KafkaErrorCode.REBALANCE_IN_PROGRESS))

    def _forget_syncs(self, step: ClassicCommand) -> None:
        self.members.pending_sync.clear()
        step.effects.cancel_timer(self._sync_timer())
