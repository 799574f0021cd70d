"""The transition table of registered groups."""

from kafkalite.state.groups.registered.states import RegisteredEvent, RegisteredState
from kafkalite.state.groups.registered.table import TRANSITIONS
from tests.unit.state.groups.documented_tables import table_in_docs, transition_table


def test_docs_show_the_registered_transition_table() -> None:
    assert table_in_docs("registered transitions") == transition_table(TRANSITIONS)


def test_every_registered_state_and_event_is_in_the_table() -> None:
    assert {row.state for row in TRANSITIONS.values()} == set(RegisteredState)
    assert {state for state, _ in TRANSITIONS} == set(RegisteredState) - {RegisteredState.DEAD}
    assert {event for _, event in TRANSITIONS} == set(RegisteredEvent)
