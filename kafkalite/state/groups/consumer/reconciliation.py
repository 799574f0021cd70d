"""Reconciles a member of a consumer group with its target assignment (CurrentAssignmentBuilder.java).

Each heartbeat leads to a `Finding`; TRANSITIONS has the next state and the action for every state and finding. A member
first revokes partitions outside its target and keeps its epoch. Once it no longer reports them, it gets the target
epoch and all partitions that no other member owns; it waits for the rest. A partition has one owner at any time.
"""

from collections.abc import Callable, Mapping, Set
from enum import Enum, IntEnum
from typing import NamedTuple

from kafkalite.state.groups.assignors import Assignment
from kafkalite.state.groups.records import ConsumerGroupCurrentMemberAssignment, PartitionEpochs

Owners = Mapping[tuple[bytes, int], str]
"""The member that owns a partition or has still to revoke it."""

NOTHING: frozenset[int] = frozenset()
NO_EPOCHS: Mapping[int, int] = {}


class MemberState(IntEnum):
    """The state of a member; the values are the numbers that Kafka stores."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> "MemberState":
        """The state for an unknown number of a later version: the member must rejoin."""
        return cls.UNKNOWN


class Finding(Enum):
    """The result of comparing a member with its target; the values are the descriptions in docs/groups.md."""

    RECONCILED = "the member is at the target epoch, and subscribed to all topics that it owns"
    STILL_HELD = "the member has not confirmed the revocation of partitions"
    TO_REVOKE = "the member owns partitions that are not in its target"
    GIVEN_UP = "the member has already dropped the topics that it unsubscribed from"
    TO_AWAIT = "other members still own partitions of its target"
    COMPLETE = "all partitions of its target are free or its own"


class Situation(NamedTuple):
    """The input of a reconciliation.

    Arguments:
        target_epoch, target: the group's target assignment, and this member's part of it.
        subscribed: ids of the topics it is subscribed to.
        resubscribed: whether this heartbeat changed the subscription.
        owned: the partitions that the heartbeat reports, None = not reported.
        owners: of all partitions of the group.
    """

    target_epoch: int
    target: Assignment
    subscribed: Set[bytes]
    resubscribed: bool
    owned: Assignment | None
    owners: Owners


class ReconciliationStep(NamedTuple):
    """A finding, with the partitions that the member would own then, and those that it would have to revoke."""

    finding: Finding
    assigned: PartitionEpochs
    pending: PartitionEpochs


Current = ConsumerGroupCurrentMemberAssignment


def find(current: Current, now: Situation) -> ReconciliationStep:
    """Compare a member with its target."""
    match MemberState(current.state):
        case MemberState.STABLE if current.member_epoch == now.target_epoch:
            return _unsubscribed(current, now) if now.resubscribed else _as_it_is(Finding.RECONCILED, current)
        case MemberState.UNREVOKED_PARTITIONS if _holds(now.owned, current.pending_revocation):
            return _unsubscribed(current, now) if now.resubscribed else _as_it_is(Finding.STILL_HELD, current)
        case MemberState.UNKNOWN if now.owned is None or now.owned:
            return _as_it_is(Finding.STILL_HELD, current)
    return _towards_target(current, now)


def _as_it_is(finding: Finding, current: Current) -> ReconciliationStep:
    return ReconciliationStep(finding, current.assigned, current.pending_revocation)


def _unsubscribed(current: Current, now: Situation) -> ReconciliationStep:
    """A member revokes unsubscribed topics at once, also before the next target assignment."""
    dropped = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in now.subscribed}
    held = _holds(now.owned, current.pending_revocation)
    if not dropped:
        unrevoked = current.state == MemberState.UNREVOKED_PARTITIONS and held
        return _as_it_is(Finding.STILL_HELD if unrevoked else Finding.RECONCILED, current)
    kept = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in dropped}
    pending = dict(current.pending_revocation)
    for topic_id, epochs in dropped.items():
        pending[topic_id] = {**pending.get(topic_id, {}), **epochs}
    return ReconciliationStep(Finding.TO_REVOKE if _holds(now.owned, pending) else Finding.GIVEN_UP, kept, pending)


def _towards_target(current: Current, now: Situation) -> ReconciliationStep:
    assigned: dict[bytes, Mapping[int, int]] = {}
    pending: dict[bytes, Mapping[int, int]] = {}
    fresh: dict[bytes, Mapping[int, int]] = {}
    awaits = False
    for topic_id in sorted(now.target.keys() | current.assigned.keys()):
        target = now.target.get(topic_id, NOTHING) if topic_id in now.subscribed else NOTHING
        epochs = current.assigned.get(topic_id, NO_EPOCHS)
        if epochs.keys() <= target:
            _put(assigned, topic_id, epochs)
        else:
            _put(assigned, topic_id, {partition: epoch for partition, epoch in epochs.items() if partition in target})
            _put(pending, topic_id, {at: epoch for at, epoch in epochs.items() if at not in target})
        missing = target.difference(epochs)
        if missing:
            free = [
                at for at in sorted(missing) if now.owners.get((topic_id, at), current.member_id) == current.member_id
            ]
            awaits = awaits or len(free) < len(missing)
            _put(fresh, topic_id, dict.fromkeys(free, now.target_epoch))
    if pending and _holds(now.owned, pending):
        return ReconciliationStep(Finding.TO_REVOKE, assigned, pending)
    for topic_id, epochs in fresh.items():
        assigned[topic_id] = {**assigned.get(topic_id, {}), **epochs}
    return ReconciliationStep(Finding.TO_AWAIT if awaits else Finding.COMPLETE, assigned, {})


def _put(into: dict[bytes, Mapping[int, int]], topic_id: bytes, epochs: Mapping[int, int]) -> None:
    if epochs:
        into[topic_id] = epochs


def _holds(owned: Assignment | None, partitions: PartitionEpochs) -> bool:
    """A member that does not report its partitions may still own all of them."""
    if owned is None:
        return True
    return any(not held.isdisjoint(partitions.get(topic_id, {})) for topic_id, held in owned.items())


def do_nothing(current: Current, state: MemberState, step: ReconciliationStep, target_epoch: int) -> Current:
    """Nothing changes."""
    return current


def request_revocation(current: Current, state: MemberState, step: ReconciliationStep, target_epoch: int) -> Current:
    """Keep the epoch; the member must revoke partitions."""
    return _moved(current, state, current.member_epoch, step.assigned, step.pending)


def store_dropped_topics(current: Current, state: MemberState, step: ReconciliationStep, target_epoch: int) -> Current:
    """Keep the epoch; the member has dropped topics."""
    return _moved(current, state, current.member_epoch, step.assigned, current.pending_revocation)


def advance_to_target(current: Current, state: MemberState, step: ReconciliationStep, target_epoch: int) -> Current:
    """Assign the target epoch and all free partitions."""
    return _moved(current, state, target_epoch, step.assigned, {})


def fence_member(current: Current, state: MemberState, step: ReconciliationStep, target_epoch: int) -> None:
    """The member must drop all partitions and rejoin."""
    return


def _moved(
    current: Current, state: MemberState, epoch: int, assigned: PartitionEpochs, pending: PartitionEpochs
) -> Current:
    return current._replace(
        member_epoch=epoch,
        previous_member_epoch=current.member_epoch,
        state=int(state),
        assigned=assigned,
        pending_revocation=pending,
    )


Action = Callable[[Current, MemberState, ReconciliationStep, int], Current | None]

_STABLE, _UNREVOKED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS
_UNRELEASED, _UNKNOWN = MemberState.UNRELEASED_PARTITIONS, MemberState.UNKNOWN

TRANSITIONS: dict[tuple[MemberState, Finding], tuple[MemberState, Action]] = {
    (_STABLE, Finding.RECONCILED): (_STABLE, do_nothing),
    (_STABLE, Finding.GIVEN_UP): (_STABLE, store_dropped_topics),
    (_STABLE, Finding.TO_REVOKE): (_UNREVOKED, request_revocation),
    (_STABLE, Finding.TO_AWAIT): (_UNRELEASED, advance_to_target),
    (_STABLE, Finding.COMPLETE): (_STABLE, advance_to_target),
    (_UNREVOKED, Finding.STILL_HELD): (_UNREVOKED, do_nothing),
    (_UNREVOKED, Finding.TO_REVOKE): (_UNREVOKED, request_revocation),
    (_UNREVOKED, Finding.TO_AWAIT): (_UNRELEASED, advance_to_target),
    (_UNREVOKED, Finding.COMPLETE): (_STABLE, advance_to_target),
    (_UNRELEASED, Finding.TO_REVOKE): (_UNREVOKED, request_revocation),
    (_UNRELEASED, Finding.TO_AWAIT): (_UNRELEASED, advance_to_target),
    (_UNRELEASED, Finding.COMPLETE): (_STABLE, advance_to_target),
    (_UNKNOWN, Finding.STILL_HELD): (_UNKNOWN, fence_member),
    (_UNKNOWN, Finding.TO_AWAIT): (_UNRELEASED, advance_to_target),
    (_UNKNOWN, Finding.COMPLETE): (_STABLE, advance_to_target),
}
"""State and finding -> next state and action. Other pairs cannot occur."""


def reconcile(current: Current, now: Situation) -> Current | None:
    """Return the new current assignment of the member; None = it must drop all partitions and rejoin."""
    step = find(current, now)
    state, action = TRANSITIONS[MemberState(current.state), step.finding]
    return action(current, state, step, now.target_epoch)
