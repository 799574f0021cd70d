"""Legal and colliding topic names."""

import pytest

from kafkalite.state.topic_names import complaint, fold, is_internal


@pytest.mark.parametrize("name", ["a", "orders.v1", "__consumer_offsets", "x" * 249, "A-Z_0.9", "..."])
def test_legal_names_have_no_complaint(name: str) -> None:
    assert complaint(name) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "empty"),
        (".", "not allowed"),
        ("..", "not allowed"),
        ("x" * 250, "250 characters"),
        ("../etc/passwd", "other characters"),
        ("a b", "other characters"),
        ("ä", "other characters"),
        ("a\n", "other characters"),
        ("a\0", "other characters"),
    ],
)
def test_illegal_names_are_explained(name: str, says: str) -> None:
    assert says in (complaint(name) or "")


def test_names_that_differ_in_dot_and_underscore_fold_to_the_same() -> None:
    assert fold("a.b_c") == fold("a_b.c")
    assert fold("ab") != fold("a.b")


def test_internal_topics_are_known_by_name() -> None:
    assert is_internal("__consumer_offsets")
    assert not is_internal("orders")
