"""The transition table of classic groups: for a state and an event, the next state and the action.

docs/groups.md shows it. Requests are validated before they become events: a missing pair is a bug and raises KeyError.
Source: GroupMetadataManager.java and ClassicGroupState.java of Apache Kafka.
"""

from kafkalite.state.groups.classic.group import ClassicTransition
from kafkalite.state.groups.classic.rebalance import (
    acknowledge_heartbeat,
    begin_generation,
    complete_if_all_joined,
    complete_joins,
    complete_unless_initial_delay,
    convert_to_consumer_group,
    delay_sync,
    distribute_assignment,
    do_nothing,
    extend_initial_delay,
    reject_sync,
    replace_static_member,
    request_rejoin,
    restart_rebalance,
    return_assignment,
    return_generation,
    start_initial_rebalance,
    start_rebalance,
    store_empty_group,
    store_tombstone,
    wait_for_static_members,
)
from kafkalite.state.groups.classic.states import ClassicEvent as Event
from kafkalite.state.groups.classic.states import ClassicState as State

__all__ = ["TRANSITIONS"]

Row = ClassicTransition
EMPTY, PREPARING, COMPLETING, STABLE, DEAD = State

TRANSITIONS: dict[tuple[State, Event], ClassicTransition] = {
    (EMPTY, Event.MEMBER_ADDED): Row(PREPARING, start_initial_rebalance),
    (EMPTY, Event.MEMBERS_LEFT): Row(EMPTY, do_nothing),
    (EMPTY, Event.RESERVED_ID_EXPIRED): Row(EMPTY, do_nothing),
    (EMPTY, Event.DELETED): Row(DEAD, store_tombstone),
    (PREPARING, Event.MEMBER_ADDED): Row(PREPARING, complete_unless_initial_delay),
    (PREPARING, Event.MEMBER_REJOINED): Row(PREPARING, complete_unless_initial_delay),
    (PREPARING, Event.STATIC_REPLACED): Row(PREPARING, complete_unless_initial_delay),
    (PREPARING, Event.MEMBERS_LEFT): Row(PREPARING, complete_unless_initial_delay),
    (PREPARING, Event.SESSION_EXPIRED): Row(PREPARING, complete_if_all_joined),
    (PREPARING, Event.RESERVED_ID_EXPIRED): Row(PREPARING, complete_if_all_joined),
    (PREPARING, Event.MEMBERS_JOINED_IN_DELAY): Row(PREPARING, extend_initial_delay),
    (PREPARING, Event.REBALANCE_TIMEOUT): Row(PREPARING, complete_joins),
    (PREPARING, Event.ALL_JOINED): Row(COMPLETING, begin_generation),
    (PREPARING, Event.NONE_JOINED): Row(PREPARING, wait_for_static_members),
    (PREPARING, Event.NO_MEMBERS): Row(EMPTY, store_empty_group),
    (PREPARING, Event.LEADER_SYNCED): Row(PREPARING, reject_sync),
    (PREPARING, Event.MEMBER_SYNCED): Row(PREPARING, reject_sync),
    (PREPARING, Event.HEARTBEAT): Row(PREPARING, request_rejoin),
    (PREPARING, Event.UPGRADED): Row(DEAD, convert_to_consumer_group),
    (COMPLETING, Event.MEMBER_ADDED): Row(PREPARING, restart_rebalance),
    (COMPLETING, Event.MEMBER_REJOINED): Row(PREPARING, restart_rebalance),
    (COMPLETING, Event.MEMBER_UNCHANGED): Row(COMPLETING, return_generation),
    (COMPLETING, Event.STATIC_REPLACED): Row(PREPARING, restart_rebalance),
    (COMPLETING, Event.MEMBERS_LEFT): Row(PREPARING, restart_rebalance),
    (COMPLETING, Event.SESSION_EXPIRED): Row(PREPARING, restart_rebalance),
    (COMPLETING, Event.RESERVED_ID_EXPIRED): Row(COMPLETING, do_nothing),
    (COMPLETING, Event.LEADER_SYNCED): Row(STABLE, distribute_assignment),
    (COMPLETING, Event.MEMBER_SYNCED): Row(COMPLETING, delay_sync),
    (COMPLETING, Event.SYNC_TIMEOUT): Row(PREPARING, restart_rebalance),
    (COMPLETING, Event.HEARTBEAT): Row(COMPLETING, acknowledge_heartbeat),
    (COMPLETING, Event.UPGRADED): Row(DEAD, convert_to_consumer_group),
    (STABLE, Event.MEMBER_ADDED): Row(PREPARING, start_rebalance),
    (STABLE, Event.MEMBER_REJOINED): Row(PREPARING, start_rebalance),
    (STABLE, Event.MEMBER_UNCHANGED): Row(STABLE, return_generation),
    (STABLE, Event.STATIC_REPLACED): Row(STABLE, replace_static_member),
    (STABLE, Event.PROTOCOL_CHANGED): Row(PREPARING, start_rebalance),
    (STABLE, Event.MEMBERS_LEFT): Row(PREPARING, start_rebalance),
    (STABLE, Event.SESSION_EXPIRED): Row(PREPARING, start_rebalance),
    (STABLE, Event.RESERVED_ID_EXPIRED): Row(STABLE, do_nothing),
    (STABLE, Event.TOO_MANY_MEMBERS): Row(PREPARING, start_rebalance),
    (STABLE, Event.LEADER_SYNCED): Row(STABLE, return_assignment),
    (STABLE, Event.MEMBER_SYNCED): Row(STABLE, return_assignment),
    (STABLE, Event.SYNC_TIMEOUT): Row(PREPARING, start_rebalance),
    (STABLE, Event.HEARTBEAT): Row(STABLE, acknowledge_heartbeat),
    (STABLE, Event.UPGRADED): Row(DEAD, convert_to_consumer_group),
    (STABLE, Event.DOWNGRADED): Row(PREPARING, start_rebalance),
}
