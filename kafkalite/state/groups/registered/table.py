"""The transition table of registered groups: for a state and an event, the next state and the action.

docs/groups.md shows it. Requests are validated before they become events: a missing pair is a bug and raises KeyError.
"""

from kafkalite.state.groups.registered.group import RegisteredTransition
from kafkalite.state.groups.registered.rebalance import (
    acknowledge_heartbeat,
    begin_generation,
    begin_if_all_registered,
    do_nothing,
    grant_claims,
    release_claims,
    remove_unregistered_members,
    request_registration,
    return_assignment,
    store_definition,
    store_empty_group,
    store_rewind_marks,
    store_tombstones,
    wait_for_registrations,
)
from kafkalite.state.groups.registered.states import RegisteredEvent as Event
from kafkalite.state.groups.registered.states import RegisteredState as State

__all__ = ["TRANSITIONS"]

Row = RegisteredTransition
EMPTY, PREPARING, STABLE, DEAD = State

TRANSITIONS: dict[tuple[State, Event], RegisteredTransition] = {
    (EMPTY, Event.DEFINED): Row(EMPTY, store_definition),
    (EMPTY, Event.REGISTERED): Row(PREPARING, wait_for_registrations),
    (EMPTY, Event.CLAIMED): Row(STABLE, grant_claims),
    (EMPTY, Event.TOPICS_CHANGED): Row(EMPTY, do_nothing),
    (EMPTY, Event.REWOUND): Row(EMPTY, store_rewind_marks),
    (EMPTY, Event.DELETED): Row(DEAD, store_tombstones),
    (PREPARING, Event.REGISTERED): Row(PREPARING, begin_if_all_registered),
    (PREPARING, Event.REPEATED): Row(PREPARING, return_assignment),
    (PREPARING, Event.CLAIMED): Row(PREPARING, grant_claims),
    (PREPARING, Event.MEMBER_LEFT): Row(PREPARING, begin_if_all_registered),
    (PREPARING, Event.CLAIMING_MEMBER_LEFT): Row(PREPARING, release_claims),
    (PREPARING, Event.NO_MEMBERS): Row(EMPTY, store_empty_group),
    (PREPARING, Event.NO_MEMBERS_EPHEMERAL): Row(DEAD, store_tombstones),
    (PREPARING, Event.TOPICS_CHANGED): Row(PREPARING, begin_if_all_registered),
    (PREPARING, Event.ALL_REGISTERED): Row(STABLE, begin_generation),
    (PREPARING, Event.REBALANCE_TIMEOUT): Row(PREPARING, remove_unregistered_members),
    (PREPARING, Event.HEARTBEAT): Row(PREPARING, acknowledge_heartbeat),
    (PREPARING, Event.STALE_HEARTBEAT): Row(PREPARING, request_registration),
    (PREPARING, Event.REWOUND): Row(PREPARING, store_rewind_marks),
    (STABLE, Event.REGISTERED): Row(PREPARING, wait_for_registrations),
    (STABLE, Event.REPEATED): Row(STABLE, return_assignment),
    (STABLE, Event.CLAIMED): Row(STABLE, grant_claims),
    (STABLE, Event.MEMBER_LEFT): Row(PREPARING, wait_for_registrations),
    (STABLE, Event.CLAIMING_MEMBER_LEFT): Row(STABLE, release_claims),
    (STABLE, Event.NO_MEMBERS): Row(EMPTY, store_empty_group),
    (STABLE, Event.NO_MEMBERS_EPHEMERAL): Row(DEAD, store_tombstones),
    (STABLE, Event.TOPICS_CHANGED): Row(PREPARING, wait_for_registrations),
    (STABLE, Event.HEARTBEAT): Row(STABLE, acknowledge_heartbeat),
    (STABLE, Event.STALE_HEARTBEAT): Row(STABLE, request_registration),
    (STABLE, Event.REWOUND): Row(STABLE, store_rewind_marks),
}
