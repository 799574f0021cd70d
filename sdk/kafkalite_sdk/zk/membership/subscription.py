"""Subscriptions: topics with their numbers of streams, a white list or a black list of topics.

The text of a list follows Java: spaces are dropped, `,` means `|`, quotes at both ends are dropped. The expression must
match the whole name of a topic. RE2 evaluates it, and is imported with the first one: expressions that need
backtracking, such as `(?!...)`, are rejected.

Source: TopicFilter.scala and TopicCount.scala of Apache Kafka 1.1.1.
"""

from collections.abc import Collection, Mapping

from kafkalite.coordination.znodes.consumers import BLACK_LIST, STATIC, STREAMS_MAX, WHITE_LIST, Registration
from kafkalite.model import TOPIC_NAME
from kafkalite_sdk.membership.patterns import check_pattern, matching

INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state"))
JAVA_BLANKS = "".join(map(chr, range(33)))  # what String.trim removes
QUOTES = "\"'"


def static_subscription(streams: Mapping[str, int]) -> Registration:
    """Topics with the number of streams of each; raises ValueError for a wrong name or number."""
    if not streams:
        raise ValueError("the subscription has no topic")
    for topic, count in streams.items():
        if not is_topic_name(topic):
            raise ValueError(f"topic {topic!r}: not the name of a topic")
        _check_streams(topic, count)
    return Registration(dict(streams), STATIC)


def filtered_subscription(text: str, streams: int, *, whitelist: bool) -> Registration:
    """The topics that a regular expression matches, or all others.

    Arguments:
        text: as given by the user.
        streams: how many streams read all these topics together.
        whitelist: False = the topics that it does not match.
    Raises: ValueError for an expression that RE2 rejects, or a wrong number.
    """
    expression = pattern_text(text)
    check_pattern(expression)
    _check_streams(expression, streams)
    return Registration({expression: streams}, WHITE_LIST if whitelist else BLACK_LIST)


def pattern_text(text: str) -> str:
    """The regular expression that a text of the user means, as it is registered."""
    return text.strip(JAVA_BLANKS).replace(",", "|").replace(" ", "").strip(QUOTES)


def streams_by_topic(registration: Registration, topics: Collection[str], excludes_internal: bool) -> Mapping[str, int]:
    """How many streams of a consumer read each topic.

    Arguments:
        registration: of the consumer.
        topics: all that exist; a static subscription may have others.
        excludes_internal: patterns do not match internal topics (`exclude.internal.topics`).
    Raises: ValueError for an expression that RE2 rejects.
    """
    if registration.pattern == STATIC:
        return registration.subscription
    [(expression, streams)] = registration.subscription.items()
    candidates = frozenset(topics) - INTERNAL_TOPICS if excludes_internal else frozenset(topics)
    found = matching(expression, None, candidates)
    return dict.fromkeys(found if registration.pattern == WHITE_LIST else candidates - found, streams)


def is_topic_name(topic: str) -> bool:
    """Whether Kafka accepts the name of a topic (Topic.java)."""
    return TOPIC_NAME.fullmatch(topic) is not None


def _check_streams(name: str, streams: int) -> None:
    if not 1 <= streams <= STREAMS_MAX:
        raise ValueError(f"{name!r}: {streams} streams, expected 1 to {STREAMS_MAX}")
