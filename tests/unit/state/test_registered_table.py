"""The table of transitions: docs/groups.md shows it as it is, and every action exists."""

from pathlib import Path

from kafkalite.state.registered_group import Group
from kafkalite.state.registered_table import TRANSITIONS, State, drawn

PAGE = Path(__file__).parents[3] / "docs" / "groups.md"
BEGIN = "<!-- registered transitions: drawn from the code -->\n"
END = "\n<!-- end of registered transitions -->"


def test_the_page_shows_the_table() -> None:
    text = PAGE.read_text()
    shown = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert shown == drawn(), "put what registered_table.drawn() gives between the two comments of docs/groups.md"


def test_every_action_is_a_method() -> None:
    assert all(callable(getattr(Group, row.action)) for row in TRANSITIONS.values())


def test_every_state_is_reached_and_only_the_last_one_is_final() -> None:
    assert {row.state for row in TRANSITIONS.values()} == set(State)
    assert {state for state, _ in TRANSITIONS} == set(State) - {State.DEAD}
