"""The responses of a consumer group to members of the classic protocol."""

from itertools import product

from kafkalite.state.groups.consumer.classic_responses import ClassicMemberRequest
from kafkalite.state.groups.consumer.classic_table import RESPONSES, ClassicMemberState
from tests.unit.state.groups.documented_tables import label, table_in_docs

ROWS = [f"| {request.value} | {state.value} | {label(action)} |" for (state, request), action in RESPONSES.items()]
TABLE = "\n".join(["| a classic member | state | action |", "|---|---|---|", *ROWS])


def test_docs_show_the_responses_to_classic_members() -> None:
    assert table_in_docs("classic members") == TABLE


def test_every_request_has_a_response_in_every_state() -> None:
    assert set(RESPONSES) == set(product(ClassicMemberState, ClassicMemberRequest))
