"""The table of transitions: docs/groups.md shows it as it is, and every action exists."""

from pathlib import Path

from kafkalite.state.groups.registered.group import RegisteredGroup
from kafkalite.state.groups.registered.table import TRANSITIONS, RegisteredState, drawn

PAGE = Path(__file__).parents[4] / "docs" / "groups.md"
BEGIN = "<!-- registered transitions: drawn from the code -->\n"
END = "\n<!-- end of registered transitions -->"


def test_the_page_shows_the_table() -> None:
    text = PAGE.read_text()
    shown = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert shown == drawn(), "put what registered_table.drawn() gives between the two comments of docs/groups.md"


def test_every_action_is_a_method() -> None:
    assert all(callable(getattr(RegisteredGroup, row.action)) for row in TRANSITIONS.values())


def test_every_state_is_reached_and_only_the_last_one_is_final() -> None:
    assert {row.state for row in TRANSITIONS.values()} == set(RegisteredState)
    assert {state for state, _ in TRANSITIONS} == set(RegisteredState) - {RegisteredState.DEAD}
