"""The transition table of registered groups: for a state and an event, the next state and the action.

docs/groups.md shows it. Requests are validated before they become events: a missing pair is a bug and raises KeyError.
"""

from kafkalite.state.groups.registered import rebalance
from kafkalite.state.groups.registered.group import RegisteredTransition
from kafkalite.state.groups.registered.states import RegisteredEvent as Event
from kafkalite.state.groups.registered.states import RegisteredState as State

Row = RegisteredTransition
EMPTY, PREPARING, STABLE, DEAD = State

TRANSITIONS: dict[tuple[State, Event], RegisteredTransition] = {
    (EMPTY, Event.DEFINED): Row(EMPTY, rebalance.store_definition),
    (EMPTY, Event.REGISTERED): Row(PREPARING, rebalance.wait_for_registrations),
    (EMPTY, Event.CLAIMED): Row(STABLE, rebalance.grant_claims),
    (EMPTY, Event.TOPICS_CHANGED): Row(EMPTY, rebalance.do_nothing),
    (EMPTY, Event.REWOUND): Row(EMPTY, rebalance.store_rewind_marks),
    (EMPTY, Event.DELETED): Row(DEAD, rebalance.store_tombstones),
    (PREPARING, Event.REGISTERED): Row(PREPARING, rebalance.begin_if_all_registered),
    (PREPARING, Event.REPEATED): Row(PREPARING, rebalance.return_assignment),
    (PREPARING, Event.CLAIMED): Row(PREPARING, rebalance.grant_claims),
    (PREPARING, Event.MEMBER_LEFT): Row(PREPARING, rebalance.begin_if_all_registered),
    (PREPARING, Event.CLAIMING_MEMBER_LEFT): Row(PREPARING, rebalance.release_claims),
    (PREPARING, Event.NO_MEMBERS): Row(EMPTY, rebalance.store_empty_group),
    (PREPARING, Event.NO_MEMBERS_EPHEMERAL): Row(DEAD, rebalance.store_tombstones),
    (PREPARING, Event.TOPICS_CHANGED): Row(PREPARING, rebalance.begin_if_all_registered),
    (PREPARING, Event.ALL_REGISTERED): Row(STABLE, rebalance.begin_generation),
    (PREPARING, Event.REBALANCE_TIMEOUT): Row(PREPARING, rebalance.remove_unregistered_members),
    (PREPARING, Event.HEARTBEAT): Row(PREPARING, rebalance.acknowledge_heartbeat),
    (PREPARING, Event.STALE_HEARTBEAT): Row(PREPARING, rebalance.request_registration),
    (PREPARING, Event.REWOUND): Row(PREPARING, rebalance.store_rewind_marks),
    (STABLE, Event.REGISTERED): Row(PREPARING, rebalance.wait_for_registrations),
    (STABLE, Event.REPEATED): Row(STABLE, rebalance.return_assignment),
    (STABLE, Event.CLAIMED): Row(STABLE, rebalance.grant_claims),
    (STABLE, Event.MEMBER_LEFT): Row(PREPARING, rebalance.wait_for_registrations),
    (STABLE, Event.CLAIMING_MEMBER_LEFT): Row(STABLE, rebalance.release_claims),
    (STABLE, Event.NO_MEMBERS): Row(EMPTY, rebalance.store_empty_group),
    (STABLE, Event.NO_MEMBERS_EPHEMERAL): Row(DEAD, rebalance.store_tombstones),
    (STABLE, Event.TOPICS_CHANGED): Row(PREPARING, rebalance.wait_for_registrations),
    (STABLE, Event.HEARTBEAT): Row(STABLE, rebalance.acknowledge_heartbeat),
    (STABLE, Event.STALE_HEARTBEAT): Row(STABLE, rebalance.request_registration),
    (STABLE, Event.REWOUND): Row(STABLE, rebalance.store_rewind_marks),
}
