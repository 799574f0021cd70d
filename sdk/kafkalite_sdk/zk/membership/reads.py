"""Reads with watches, also of nodes that do not exist."""

from collections.abc import Sequence
from typing import Any

from kafkalite.coordination.errors import NoNodeError
from kafkalite_sdk.zk.membership.effects import Children, Exists, Get
from kafkalite_sdk.zk.membership.state import MemberState
from kafkalite_sdk.zk.membership.steps import Calls, Procedure

REPEATS_MAX = 10  # of a node that is created and deleted between two reads


def read_nodes(state: MemberState, reads: Sequence[Get | Children]) -> Procedure[list[Any]]:
    """The data or the names of the children of each node, None = it does not exist.

    A failed read sets no watch, so a missing node is watched with Exists. Watches that are set already remain: the
    service fires them before it shows a later change.

    Arguments:
        state: of the member.
        reads: with `watch`, the member is notified of the next change.
    Raises: CoordinationError.
    """
    values: list[Any] = [None] * len(reads)
    waiting = list(range(len(reads)))
    for _ in range(REPEATS_MAX):
        outcomes = yield Calls([state.watches.missing(reads[at]) for at in waiting])
        absent = []
        for at, outcome in zip(waiting, outcomes, strict=True):
            if isinstance(outcome.error, NoNodeError):
                absent.append(at)
            else:
                values[at] = outcome.result()[0]
        waiting = yield from _appeared(state, reads, [at for at in absent if reads[at].watch])
        if not waiting:
            return values
    raise NoNodeError(reads[waiting[0]].path, detail=f"created and deleted {REPEATS_MAX} times")


def _appeared(state: MemberState, reads: Sequence[Get | Children], absent: list[int]) -> Procedure[list[int]]:
    """Watch the nodes that do not exist; those that exist by now."""
    if not absent:
        return []
    outcomes = yield Calls([state.watches.missing(Exists(reads[at].path, watch=True)) for at in absent])
    return [at for at, outcome in zip(absent, outcomes, strict=True) if outcome.result() is not None]
