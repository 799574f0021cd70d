"""The decisions about the principal of one connection that are kept until an ACL changes."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.model import Principal
from kafkalite.server.requests.authorization import decision_cache
from kafkalite.server.requests.authorization.decision_cache import ENTRY_BYTES, ConnectionDecisions
from kafkalite.state.authorizer.acls import NAME_CHARACTERS_MAX, AclOperation, AclResourceType

READ_TOPIC = AclOperation.READ, AclResourceType.TOPIC


@pytest.fixture
def authorizer() -> Any:
    return SimpleNamespace(authorizer=SimpleNamespace(version=1), kept_bytes=0)


def test_a_set_that_a_waiting_request_has_taken_is_emptied_by_a_change(authorizer: Any) -> None:
    """A fetch that waits must not cache a partition whose Read right was revoked meanwhile."""
    decisions = ConnectionDecisions(authorizer, Principal("User", "alice"), "127.0.0.1")
    decisions.keep(*READ_TOPIC, "orders")
    taken = decisions.kept(*READ_TOPIC)
    assert taken == {"orders"}
    authorizer.authorizer.version += 1
    assert decisions.kept(*READ_TOPIC) is taken and not taken


def test_long_names_are_not_kept(authorizer: Any) -> None:
    decisions = ConnectionDecisions(authorizer, Principal("User", "alice"), "127.0.0.1")
    for length in (NAME_CHARACTERS_MAX, NAME_CHARACTERS_MAX + 1):
        decisions.keep(*READ_TOPIC, "x" * length)
    assert decisions.kept(*READ_TOPIC) == {"x" * NAME_CHARACTERS_MAX}


def test_connections_together_keep_a_bounded_number_of_bytes(authorizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection could keep 20,000 names of 249 characters: 7 MB."""
    monkeypatch.setattr(decision_cache, "KEPT_BYTES_MAX", 10 * (ENTRY_BYTES + sys.getsizeof("name-0")))
    first, second = (ConnectionDecisions(authorizer, Principal("User", name), "127.0.0.1") for name in ("a", "b"))
    for number in range(8):
        first.keep(*READ_TOPIC, f"name-{number}")
        second.keep(*READ_TOPIC, f"name-{number}")
    assert len(first.kept(*READ_TOPIC)) == len(second.kept(*READ_TOPIC)) == 5
    first.end()
    assert not first.kept(*READ_TOPIC)
    first.keep(*READ_TOPIC, "orders")
    assert not first.kept(*READ_TOPIC), "a request that ends later than its connection keeps nothing"
    for number in range(8, 20):
        second.keep(*READ_TOPIC, f"name{number}")
    assert len(second.kept(*READ_TOPIC)) == 10
    authorizer.authorizer.version += 1
    assert not second.kept(*READ_TOPIC) and authorizer.kept_bytes == 0


@pytest.mark.parametrize("character", ["a", "\u00e9", "\u0416", "\U0001f600"])
def test_bytes_of_names_are_counted_in_any_script(authorizer: Any, character: str) -> None:
    """CPython stores 1 to 4 bytes per character."""
    decisions = ConnectionDecisions(authorizer, Principal("User", "alice"), "127.0.0.1")
    names = [f"{character * 200}{number}" for number in range(100)]
    for name in names:
        decisions.keep(*READ_TOPIC, name)
    assert authorizer.kept_bytes >= sum(map(sys.getsizeof, names)) + sys.getsizeof(decisions.kept(*READ_TOPIC))
