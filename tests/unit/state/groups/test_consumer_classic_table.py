"""What classic members of a consumer group hear: docs/groups.md shows the table as it is, and it is whole."""

from itertools import product
from pathlib import Path

from kafkalite.state.groups.consumer.classic_members import ClassicProtocolMembers
from kafkalite.state.groups.consumer.classic_table import TRANSITIONS, ClassicMemberRequest, ClassicMemberState, drawn

PAGE = Path(__file__).parents[4] / "docs" / "groups.md"
BEGIN = "<!-- classic members: drawn from the code -->\n"
END = "\n<!-- end of classic members -->"


def test_the_page_shows_the_table() -> None:
    text = PAGE.read_text()
    shown = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert shown == drawn(), "put what consumer_classic_table.drawn() gives between the two comments of docs/groups.md"


def test_whoever_asks_is_answered_however_it_stands() -> None:
    assert set(TRANSITIONS) == set(product(ClassicMemberState, ClassicMemberRequest))
    assert all(callable(getattr(ClassicProtocolMembers, row.action)) for row in TRANSITIONS.values())
