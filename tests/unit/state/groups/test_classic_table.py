"""The transition table of classic groups."""

from kafkalite.state.groups.classic.states import ClassicEvent, ClassicState
from kafkalite.state.groups.classic.table import TRANSITIONS
from tests.unit.state.groups.documented_tables import table_in_docs, transition_table


def test_docs_show_the_classic_transition_table() -> None:
    assert table_in_docs("classic transitions") == transition_table(TRANSITIONS)


def test_every_classic_state_and_event_is_in_the_table() -> None:
    assert {row.state for row in TRANSITIONS.values()} == set(ClassicState)
    assert {state for state, _ in TRANSITIONS} == set(ClassicState) - {ClassicState.DEAD}
    assert {event for _, event in TRANSITIONS} == set(ClassicEvent)
