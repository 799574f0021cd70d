"""How one member of a consumer group moves from what it owns to what it is to own (CurrentAssignmentBuilder.java).

Each heartbeat is a `Finding`; TRANSITIONS says for every state and finding the next state and what to do. A member
first gives up what is no longer its own, keeping its epoch; once it no longer reports those partitions it gets the
target epoch and whatever nobody else owns; for the rest it waits. So no partition has two owners at any time.
"""

from collections.abc import Callable, Mapping, Set
from enum import Enum, IntEnum
from typing import NamedTuple

from kafkalite.state.groups.assignors import Assignment
from kafkalite.state.groups.records import ConsumerGroupCurrentMemberAssignment, PartitionEpochs

__all__ = ["TRANSITIONS", "Finding", "MemberState", "Owners", "Situation", "drawn", "find", "reconcile"]

Owners = Mapping[tuple[bytes, int], str]
"""Who owns a partition now, or has still to give it up."""

NOTHING: frozenset[int] = frozenset()
NO_EPOCHS: Mapping[int, int] = {}


class MemberState(IntEnum):
    """Where a member stands, by the number that Kafka stores."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> "MemberState":
        """A number that a later version stored means that the member must start anew."""
        return cls.UNKNOWN


class Finding(Enum):
    """What a heartbeat of a member shows. The value is the sentence for the documentation."""

    RECONCILED = "it is at the target epoch, and subscribed to all that it owns"
    STILL_HELD = "it has not confirmed the revocation of partitions"
    TO_REVOKE = "it owns partitions that are not in its target"
    GIVEN_UP = "it has already dropped the topics it unsubscribed from"
    TO_AWAIT = "other members still own partitions of its target"
    COMPLETE = "all partitions of its target are free or its own"


class Situation(NamedTuple):
    """What a member is measured against.

    Arguments:
        target_epoch, target: the group's target assignment, and this member's part of it.
        subscribed: ids of the topics it is subscribed to.
        resubscribed: whether this heartbeat changed the subscription.
        owned: what it says it has, None = it says nothing.
        owners: of all partitions of the group.
    """

    target_epoch: int
    target: Assignment
    subscribed: Set[bytes]
    resubscribed: bool
    owned: Assignment | None
    owners: Owners


class ReconciliationStep(NamedTuple):
    """A finding, with what the member would own after it, and what it would have to give up."""

    finding: Finding
    assigned: PartitionEpochs
    pending: PartitionEpochs


Current = ConsumerGroupCurrentMemberAssignment


def find(current: Current, now: Situation) -> ReconciliationStep:
    """Answer how the member stands to its target."""
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
    """The target may come later; what the member unsubscribed from it gives up at once."""
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
    """Who does not say what it has may have everything."""
    if owned is None:
        return True
    return any(not held.isdisjoint(partitions.get(topic_id, {})) for topic_id, held in owned.items())


def _keep(current: Current, state: MemberState, step: ReconciliationStep, target_epoch: int) -> Current:
    return current


def _ask(current: Current, state: MemberState, step: ReconciliationStep, target_epoch: int) -> Current:
    return _moved(current, state, current.member_epoch, step.assigned, step.pending)


def _shrink(current: Current, state: MemberState, step: ReconciliationStep, target_epoch: int) -> Current:
    return _moved(current, state, current.member_epoch, step.assigned, current.pending_revocation)


def _advance(current: Current, state: MemberState, step: ReconciliationStep, target_epoch: int) -> Current:
    return _moved(current, state, target_epoch, step.assigned, {})


def _fence(current: Current, state: MemberState, step: ReconciliationStep, target_epoch: int) -> None:
    return None


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
    (_STABLE, Finding.RECONCILED): (_STABLE, _keep),
    (_STABLE, Finding.GIVEN_UP): (_STABLE, _shrink),
    (_STABLE, Finding.TO_REVOKE): (_UNREVOKED, _ask),
    (_STABLE, Finding.TO_AWAIT): (_UNRELEASED, _advance),
    (_STABLE, Finding.COMPLETE): (_STABLE, _advance),
    (_UNREVOKED, Finding.STILL_HELD): (_UNREVOKED, _keep),
    (_UNREVOKED, Finding.TO_REVOKE): (_UNREVOKED, _ask),
    (_UNREVOKED, Finding.TO_AWAIT): (_UNRELEASED, _advance),
    (_UNREVOKED, Finding.COMPLETE): (_STABLE, _advance),
    (_UNRELEASED, Finding.TO_REVOKE): (_UNREVOKED, _ask),
    (_UNRELEASED, Finding.TO_AWAIT): (_UNRELEASED, _advance),
    (_UNRELEASED, Finding.COMPLETE): (_STABLE, _advance),
    (_UNKNOWN, Finding.STILL_HELD): (_UNKNOWN, _fence),
    (_UNKNOWN, Finding.TO_AWAIT): (_UNRELEASED, _advance),
    (_UNKNOWN, Finding.COMPLETE): (_STABLE, _advance),
}
"""State and finding -> next state, and what is done. What is not here cannot happen."""


def drawn() -> str:
    """The table as Markdown, for docs/groups.md."""
    rows = ["| member is | when its heartbeat shows | then | what is done |", "|---|---|---|---|"]
    for (before, finding), (after, action) in TRANSITIONS.items():
        rows.append(f"| {before.name} | {finding.value} | {after.name} | {_DONE[action]} |")
    return "\n".join(rows)


_DONE: dict[Action, str] = {
    _keep: "nothing",
    _ask: "keep the epoch, revoke them",
    _shrink: "keep the epoch, note what it dropped",
    _advance: "assign the target epoch and all free partitions",
    _fence: "fence it: it must drop all partitions and rejoin",
}


def reconcile(current: Current, now: Situation) -> Current | None:
    """Answer what the member owns from now on; None = it must drop everything and join anew."""
    step = find(current, now)
    state, action = TRANSITIONS[MemberState(current.state), step.finding]
    return action(current, state, step, now.target_epoch)
