"""The transition tables of the controller as the tables of its README."""

from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import kafkalite.state.controller.partitions.table as partitions
import kafkalite.state.controller.topics.table as topics
from kafkalite.state import controller
from kafkalite.state.controller.states import PartitionEvent, PartitionState, TopicEvent, TopicState

README = Path(controller.__file__).with_name("README.md")


def described(kind: type[Enum]) -> Iterator[str]:
    """The states or events with their descriptions."""
    for each in kind:
        yield f"| {each.name} | {each.value} |"


def rows(table: Mapping[Any, Any]) -> Iterator[str]:
    """The transitions in the order of the table."""
    for (state, event), row in table.items():
        yield f"| {state.name} | {event.name} | {row.state.name} | `{row.action.__name__}` |"


def expected() -> str:
    """All tables, under their headings."""
    lines: list[str] = []
    for title, state, event, table in (
        ("Partitions", PartitionState, PartitionEvent, partitions.TRANSITIONS),
        ("Topics", TopicState, TopicEvent, topics.TRANSITIONS),
    ):
        lines += [f"## {title}", "", "| state | |", "|---|---|", *described(state), ""]
        lines += ["| event | |", "|---|---|", *described(event), ""]
        lines += ["| state | event | next state | action |", "|---|---|---|---|", *rows(table), ""]
    return "\n".join(lines)
