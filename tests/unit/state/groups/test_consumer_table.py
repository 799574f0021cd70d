"""The table of reconciliation: docs/groups.md shows it as it is, and every member gets out of every state."""

from pathlib import Path

from kafkalite.state.groups.consumer.reconciliation import TRANSITIONS, Finding, MemberState, drawn

PAGE = Path(__file__).parents[4] / "docs" / "groups.md"
BEGIN = "<!-- consumer transitions: drawn from the code -->\n"
END = "\n<!-- end of consumer transitions -->"


def test_the_page_shows_the_table() -> None:
    text = PAGE.read_text()
    shown = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert shown == drawn(), "put what consumer_reconciliation.drawn() gives between the two comments of docs/groups.md"


def test_member_with_its_whole_target_is_stable() -> None:
    for state in MemberState:
        assert TRANSITIONS[state, Finding.COMPLETE][0] is MemberState.STABLE
