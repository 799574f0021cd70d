"""The transition table of classic groups: for a state and an event, the next state and the action.

docs/groups.md shows it. Requests are validated before they become events: a missing pair is a bug and raises KeyError.
Source: GroupMetadataManager.java and ClassicGroupState.java of Apache Kafka.
"""

from kafkalite.state.groups.classic import generation, rebalance
from kafkalite.state.groups.classic.group import ClassicTransition
from kafkalite.state.groups.classic.states import ClassicEvent as Event
from kafkalite.state.groups.classic.states import ClassicState as State

Row = ClassicTransition
EMPTY, PREPARING, COMPLETING, STABLE, DEAD = State

TRANSITIONS: dict[tuple[State, Event], ClassicTransition] = {
    (EMPTY, Event.MEMBER_ADDED): Row(PREPARING, rebalance.start_initial_rebalance),
    (EMPTY, Event.MEMBERS_LEFT): Row(EMPTY, rebalance.do_nothing),
    (EMPTY, Event.RESERVED_ID_EXPIRED): Row(EMPTY, rebalance.do_nothing),
    (EMPTY, Event.DELETED): Row(DEAD, rebalance.store_tombstone),
    (PREPARING, Event.MEMBER_ADDED): Row(PREPARING, rebalance.complete_unless_initial_delay),
    (PREPARING, Event.MEMBER_REJOINED): Row(PREPARING, rebalance.complete_unless_initial_delay),
    (PREPARING, Event.STATIC_REPLACED): Row(PREPARING, rebalance.complete_unless_initial_delay),
    (PREPARING, Event.MEMBERS_LEFT): Row(PREPARING, rebalance.complete_unless_initial_delay),
    (PREPARING, Event.SESSION_EXPIRED): Row(PREPARING, rebalance.complete_if_all_joined),
    (PREPARING, Event.RESERVED_ID_EXPIRED): Row(PREPARING, rebalance.complete_if_all_joined),
    (PREPARING, Event.MEMBERS_JOINED_IN_DELAY): Row(PREPARING, rebalance.extend_initial_delay),
    (PREPARING, Event.REBALANCE_TIMEOUT): Row(PREPARING, rebalance.complete_joins),
    (PREPARING, Event.ALL_JOINED): Row(COMPLETING, generation.begin_generation),
    (PREPARING, Event.NONE_JOINED): Row(PREPARING, rebalance.wait_for_static_members),
    (PREPARING, Event.NO_MEMBERS): Row(EMPTY, generation.store_empty_group),
    (PREPARING, Event.LEADER_SYNCED): Row(PREPARING, rebalance.reject_sync),
    (PREPARING, Event.MEMBER_SYNCED): Row(PREPARING, rebalance.reject_sync),
    (PREPARING, Event.HEARTBEAT): Row(PREPARING, rebalance.request_rejoin),
    (PREPARING, Event.UPGRADED): Row(DEAD, rebalance.convert_to_consumer_group),
    (COMPLETING, Event.MEMBER_ADDED): Row(PREPARING, rebalance.restart_rebalance),
    (COMPLETING, Event.MEMBER_REJOINED): Row(PREPARING, rebalance.restart_rebalance),
    (COMPLETING, Event.MEMBER_UNCHANGED): Row(COMPLETING, generation.return_generation),
    (COMPLETING, Event.STATIC_REPLACED): Row(PREPARING, rebalance.restart_rebalance),
    (COMPLETING, Event.MEMBERS_LEFT): Row(PREPARING, rebalance.restart_rebalance),
    (COMPLETING, Event.SESSION_EXPIRED): Row(PREPARING, rebalance.restart_rebalance),
    (COMPLETING, Event.RESERVED_ID_EXPIRED): Row(COMPLETING, rebalance.do_nothing),
    (COMPLETING, Event.LEADER_SYNCED): Row(STABLE, rebalance.distribute_assignment),
    (COMPLETING, Event.MEMBER_SYNCED): Row(COMPLETING, rebalance.delay_sync),
    (COMPLETING, Event.SYNC_TIMEOUT): Row(PREPARING, rebalance.restart_rebalance),
    (COMPLETING, Event.HEARTBEAT): Row(COMPLETING, rebalance.acknowledge_heartbeat),
    (COMPLETING, Event.UPGRADED): Row(DEAD, rebalance.convert_to_consumer_group),
    (STABLE, Event.MEMBER_ADDED): Row(PREPARING, rebalance.start_rebalance),
    (STABLE, Event.MEMBER_REJOINED): Row(PREPARING, rebalance.start_rebalance),
    (STABLE, Event.MEMBER_UNCHANGED): Row(STABLE, generation.return_generation),
    (STABLE, Event.STATIC_REPLACED): Row(STABLE, generation.return_generation_to_static_member),
    (STABLE, Event.PROTOCOL_CHANGED): Row(PREPARING, rebalance.start_rebalance),
    (STABLE, Event.MEMBERS_LEFT): Row(PREPARING, rebalance.start_rebalance),
    (STABLE, Event.SESSION_EXPIRED): Row(PREPARING, rebalance.start_rebalance),
    (STABLE, Event.RESERVED_ID_EXPIRED): Row(STABLE, rebalance.do_nothing),
    (STABLE, Event.TOO_MANY_MEMBERS): Row(PREPARING, rebalance.start_rebalance),
    (STABLE, Event.LEADER_SYNCED): Row(STABLE, rebalance.return_assignment),
    (STABLE, Event.MEMBER_SYNCED): Row(STABLE, rebalance.return_assignment),
    (STABLE, Event.SYNC_TIMEOUT): Row(PREPARING, rebalance.start_rebalance),
    (STABLE, Event.HEARTBEAT): Row(STABLE, rebalance.acknowledge_heartbeat),
    (STABLE, Event.UPGRADED): Row(DEAD, rebalance.convert_to_consumer_group),
    (STABLE, Event.DOWNGRADED): Row(PREPARING, rebalance.start_rebalance),
}
