"""Patterns of clients: which RE2 accepts, which are resolved without a wait, and which topics match."""

import pytest
import re2  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordinators.group.regex_resolver import (
    COST_MAX,
    SHARE_COST_MAX,
    TOO_COSTLY,
    complaint,
    cost,
    matches,
    shares,
)

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
def test_common_patterns_are_accepted(pattern: str) -> None:
    assert complaint(pattern) is None


@pytest.mark.parametrize("pattern", COSTLY)
def test_costly_pattern_is_rejected_before_compilation(pattern: str) -> None:
    assert cost(pattern) > COST_MAX and complaint(pattern) == TOO_COSTLY


@pytest.mark.parametrize("pattern", ["(", "a**", "(?<x", "a{1000}{1000}", r"\8", "[a-z]{0,50}" * 200])
def test_pattern_rejected_by_re2_returns_its_reason(pattern: str) -> None:
    assert cost(pattern) <= COST_MAX and complaint(pattern) not in (None, TOO_COSTLY)


def test_a_name_matches_as_a_whole_and_bad_patterns_match_none() -> None:
    names = ["a", "ab", "b"]
    assert matches(["a", "a.*", "(", "b|a"], names) == {"a": ["a"], "a.*": ["a", "ab"], "(": [], "b|a": ["a", "b"]}


def one_by_one(patterns: list[str], names: list[str]) -> dict[str, list[str]]:
    """What `matches` must find: each name asked for each pattern."""
    return {each: [] if complaint(each) else [name for name in names if re2.fullmatch(each, name)] for each in patterns}


PARTS = [
    "a",
    "b",
    ".",
    "a.",
    ".*",
    "[ab]",
    "(a|ab)",
    "(?i)B",
    "^",
    "$",
    r"\.",
    r"\b",
    r"\pL",
    "a{2,3}",
    "|",
    "b?",
    "",
    "a+?",
]
PATTERNS = st.lists(st.sampled_from(PARTS), max_size=6).map("".join)
NAMES = st.text("abB.-", min_size=1, max_size=8)


@given(st.lists(PATTERNS, max_size=150), st.lists(NAMES, max_size=20))
def test_many_patterns_at_once_match_what_each_matches(patterns: list[str], names: list[str]) -> None:
    assert matches(patterns, names) == one_by_one(patterns, names)


HEAVY = [r"\pL?" * 6 + ".*", "a{1000}?", "(a|b)*a(a|b){60}", "[a-z]{1,99}q", "(.{1,500}a)", "((a?){30}){30}"]


def test_heavy_patterns_match_together() -> None:
    """Were a set of them out of memory, it would match nothing without a word."""
    patterns = [heavy + suffix for heavy in HEAVY for suffix in ("", "b", "[.]", "c|d")]
    assert all(complaint(each) is None for each in patterns)
    names = ["a" * size + end for size in (1, 50, 61, 248) for end in ("", "b", "q", ".", "ab" * 40)]
    found = matches(patterns, names)
    assert found == one_by_one(patterns, names) and sum(map(bool, found.values())) > len(patterns) // 2


def test_pattern_sets_respect_the_cost_limit() -> None:
    patterns = [*(f"orders-{number}" for number in range(500)), *HEAVY, *(r"\pL?" * 6 + str(at) for at in range(5))]
    found = list(shares(patterns))
    assert [each for share in found for each in share] == patterns
    assert all(len(share) == 1 or sum(map(cost, share)) <= SHARE_COST_MAX for share in found)
    assert len(found) < 20


def test_capture_groups_do_not_slow_matching() -> None:
    """With captures each of these took a second."""
    deep = "(" * 900 + "a" + ")" * 900
    assert matches([deep], ["a"] * 1_000) == {deep: ["a"] * 1_000}
