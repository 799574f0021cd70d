"""The table of reconciliation: docs/groups.md shows it as it is, and every member gets out of every state."""

from kafkalite.state.groups.consumer.reconciliation import TRANSITIONS, Finding, MemberState
from tests.unit.state.groups.documented_tables import label, table_in_docs

ROWS = [
    f"| {before.name} | {finding.value} | {after.name} | {label(action)} |"
    for (before, finding), (after, action) in TRANSITIONS.items()
]
TABLE = "\n".join(["| member state | at its heartbeat | next state | action |", "|---|---|---|---|", *ROWS])


def test_docs_show_the_consumer_transition_table() -> None:
    assert table_in_docs("consumer transitions") == TABLE


def test_member_with_its_whole_target_is_stable() -> None:
    for state in MemberState:
        assert TRANSITIONS[state, Finding.COMPLETE][0] is MemberState.STABLE
