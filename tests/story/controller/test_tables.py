"""The README of the controller has the tables of the code."""

from tests.story.controller.tables import README, expected


def test_readme_has_the_transition_tables() -> None:
    assert README.read_text().endswith(expected()), f"replace the end of {README} by:\n{expected()}"
