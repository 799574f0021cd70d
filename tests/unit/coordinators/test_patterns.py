"""Patterns of clients: what RE2 takes, what nobody has to wait for, and what matches."""

import pytest

from kafkalite.coordinators.patterns import COST_MAX, TOO_COSTLY, complaint, cost, matches

USUAL = [
    "",
    "orders",
    "orders-.*",
    r"orders-\d{1,5}|payments\..+",
    "^(a|b)(c|d)?$",
    r"\p{Lu}\pL*",
    "[a-z0-9._-]{1,249}",
    "|".join(f"department-{number:04}-orders-by-customer" for number in range(200)),
]
COSTLY = [r"\pL" * 1_000, "[a-z]{0,50}" * 350, "a?" * 2_000, "a{0,900}" * 300, "a{1000}" * 300, "x" * 32_000]


@pytest.mark.parametrize("pattern", USUAL)
def test_usual_patterns_are_taken(pattern: str) -> None:
    assert complaint(pattern) is None


@pytest.mark.parametrize("pattern", COSTLY)
def test_what_keeps_the_loop_waiting_is_refused_before_it_is_compiled(pattern: str) -> None:
    assert cost(pattern) > COST_MAX and complaint(pattern) == TOO_COSTLY


@pytest.mark.parametrize("pattern", ["(", "a**", "(?<x", "a{1000}{1000}", r"\8", "[a-z]{0,50}" * 200])
def test_what_re2_refuses_is_said(pattern: str) -> None:
    assert cost(pattern) <= COST_MAX and complaint(pattern) not in (None, TOO_COSTLY)


def test_a_name_matches_as_a_whole_and_bad_patterns_match_none() -> None:
    names = ["a", "ab", "b"]
    assert matches(["a", "a.*", "(", "b|a"], names) == {"a": ["a"], "a.*": ["a", "ab"], "(": [], "b|a": ["a", "b"]}


def test_groups_of_a_pattern_cost_nothing_where_it_is_matched() -> None:
    """With captures each of these took a second."""
    deep = "(" * 900 + "a" + ")" * 900
    assert matches([deep], ["a"] * 1_000) == {deep: ["a"] * 1_000}
