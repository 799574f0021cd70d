"""The authorisation table has a row for each served API key, and its fields exist in the messages."""

from pathlib import Path

import pytest

from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.server.requests.api import CLUSTER_ROWS, ROWS
from kafkalite.server.requests.api import Row as ApiRow
from kafkalite.server.requests.authorization.guards.by_key import GUARDS
from kafkalite.server.requests.authorization.refusals import keep_entries, refuse_in_steps
from kafkalite.server.requests.authorization.table import TABLE, Check, Effect, Row
from kafkalite.server.requests.deferred_free import FREED_AT_ONCE
from kafkalite.slicing import finish
from tools.authorization_page import page

PAGE = Path(__file__).parents[3] / "docs/authorization.md"
LOG_DIRS_ERROR_SINCE = 3
SERVED = [*ROWS, *CLUSTER_ROWS]


@pytest.mark.parametrize("served", SERVED, ids=lambda row: row.name)
def test_each_served_key_has_a_row(served: ApiRow) -> None:
    row = TABLE[served.api_key]
    assert row.name == served.name
    assert row.own == (served.api_key in GUARDS)


@pytest.mark.parametrize("served", SERVED, ids=lambda row: row.name)
def test_fields_of_checks_exist(served: ApiRow) -> None:
    served.load()
    row = TABLE[served.api_key]
    for check in row.checks:
        names = {each.name: each for each in served.request.__fields__}
        array, _, name = check.of.partition(".")
        if array and name and not row.own:
            element = names[array].wire.element
            assert element is not None and element.struct is not None
            assert name in {each.name for each in element.struct.__fields__}
        elif array:
            assert array in names


@pytest.mark.parametrize("served", SERVED, ids=lambda row: row.name)
def test_refused_request_has_an_error_in_each_version(served: ApiRow) -> None:
    """A whole request that is refused says so at the top or in its entries; other keys have checks of their own."""
    served.load()
    row = TABLE[served.api_key]
    if row.own or not any(each.effect is Effect.REFUSE for each in row.checks):
        return
    for version in range(served.version_min, served.version_max + 1):
        response = finish(refuse_in_steps(served.response, version, served.request(), 29, row))
        if served.name == "DescribeLogDirs" and version < LOG_DIRS_ERROR_SINCE:
            continue  # an empty list, as in Kafka
        codes = {each.name for each in served.response.__fields__ if each.since <= version <= each.until}
        assert "error_code" in codes or row.entries is not None, (served.name, version)
        assert isinstance(response, served.response)


def test_page_of_the_documentation_is_generated() -> None:
    assert PAGE.read_text() == page(), "run: python -m tools.authorization_page"


def test_checks_without_a_request_field_are_of_the_cluster_or_have_a_note() -> None:
    def is_clear(row: Row, check: Check) -> bool:
        return bool(check.of or check.note or check.right.resource_type.name == "CLUSTER" or not row.own)

    assert all(is_clear(row, check) for row in TABLE.values() for check in row.checks)


def test_refused_entries_of_a_request_are_freed_in_steps() -> None:
    """At once, 200,000 of them take up to 50 ms."""
    topics = [MetadataRequest.MetadataRequestTopic(name=f"t-{at}") for at in range(3 * FREED_AT_ONCE)]
    request, kept, removed = MetadataRequest(topics=topics), topics[:2], topics[2:]
    steps = keep_entries(request, "topics", kept, removed)
    next(steps)
    assert request.topics is kept, "the request is complete with the first step"
    before = len(removed)
    assert before == 2 * FREED_AT_ONCE - 2
    next(steps)
    assert len(removed) == before - FREED_AT_ONCE
    finish(steps)
    assert len(removed) <= FREED_AT_ONCE and [each.name for each in kept] == ["t-0", "t-1"]
