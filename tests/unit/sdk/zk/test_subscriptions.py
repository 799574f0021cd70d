"""Subscriptions: the rules of TopicFilter.scala, and settings that are not valid."""

import pytest
from kafkalite_sdk.zk.membership.settings import MembershipSettings, new_consumer_id
from kafkalite_sdk.zk.membership.subscription import (
    filtered_subscription,
    pattern_text,
    static_subscription,
    streams_by_topic,
)

from kafkalite.coordination.znodes.consumers import Registration

TOPICS = ("a", "b", "ab", "__consumer_offsets", "__transaction_state")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b", "a|b"),
        ("  a , b ", "a|b"),
        ("\ta.*\n", "a.*"),
        ('"a,b"', "a|b"),
        ("'a'", "a"),
        ('a"b', 'a"b'),
        (r"a\.b", r"a\.b"),
    ],
)
def test_text_of_a_pattern(text: str, expected: str) -> None:
    assert pattern_text(text) == expected


def test_white_list_matches_whole_names_without_internal_topics() -> None:
    whole = filtered_subscription("a", 2, whitelist=True)
    assert streams_by_topic(whole, TOPICS, excludes_internal=True) == {"a": 2}
    every = filtered_subscription(".*", 1, whitelist=True)
    assert streams_by_topic(every, TOPICS, excludes_internal=True) == {"a": 1, "b": 1, "ab": 1}
    assert len(streams_by_topic(every, TOPICS, excludes_internal=False)) == 5


def test_black_list_matches_all_others() -> None:
    registration = filtered_subscription("a, b", 3, whitelist=False)
    assert registration == Registration({"a|b": 3}, "black_list")
    assert streams_by_topic(registration, TOPICS, excludes_internal=True) == {"ab": 3}


def test_static_subscription_names_topics_that_do_not_exist() -> None:
    assert streams_by_topic(static_subscription({"z": 2}), TOPICS, excludes_internal=True) == {"z": 2}


@pytest.mark.parametrize("pattern", ["(", "(?!a)b", r"(a)\1"])
def test_patterns_that_re2_rejects(pattern: str) -> None:
    with pytest.raises(ValueError, match="RE2 rejects it"):
        filtered_subscription(pattern, 1, whitelist=True)


@pytest.mark.parametrize("streams", [{}, {"a/b": 1}, {"..": 1}, {"a": 0}, {"a": 20_000}, {"": 1}])
def test_invalid_static_subscriptions(streams: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"topic|streams"):
        static_subscription(streams)


def test_consumer_id_is_built_as_in_java() -> None:
    consumer_id = new_consumer_id("g", "host.example", 1_700_000_000_000, 0x9ABCDEF0_12345678)
    assert consumer_id == "g_host.example-1700000000000-9abcdef0"


@pytest.mark.parametrize(
    "wrong",
    [
        {"group": "a/b"},
        {"consumer_id": ""},
        {"strategy": "sticky"},
        {"round_robin_release": "2.0"},
        {"rebalance_retries": 0},
        {"rebalance_backoff_s": 0.0},
    ],
)
def test_invalid_settings(wrong: dict[str, object]) -> None:
    settings = MembershipSettings("g", "g_c", static_subscription({"t": 1}))
    settings.check()
    with pytest.raises(ValueError, match=r"group|consumer|strategy|release|rebalance"):
        settings._replace(**wrong).check()  # type: ignore[arg-type]
