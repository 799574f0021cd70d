"""Transition tables as Markdown, as docs/groups.md shows them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[4] / "docs" / "groups.md"


def transition_table(rows: Mapping[Any, Any]) -> str:
    """A table from (state, event) to rows with the next state and an action."""
    lines = ["| state | event | next state | action |", "|---|---|---|---|"]
    for (state, event), row in rows.items():
        lines.append(f"| {state.value} | {event.value} | {row.state.value} | {label(row.action)} |")
    return "\n".join(lines)


def label(action: Callable[..., object]) -> str:
    """The name of an action in words."""
    return action.__name__.replace("_", " ")


def table_in_docs(name: str) -> str:
    """The table between the two comments of docs/groups.md that name it."""
    begin, end = f"<!-- {name}: drawn from the code -->\n", f"\n<!-- end of {name} -->"
    text = PAGE.read_text()
    assert begin in text and end in text, f"docs/groups.md lacks the comments around the table: {name}"
    return text.partition(begin)[2].partition(end)[0]
