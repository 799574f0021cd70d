"""Resolution of the patterns to which a consumer group subscribes: when it is due, and what its result changes.

Matching runs outside the machine (`coordinators/group/regex_resolver`), upon a `ResolvePatterns` question. All patterns
of a group are resolved again together, so that one new topic leads to one new assignment. New patterns are resolved at
once, because a member waits for each; in Kafka they wait until the last resolution of the group is 10 s old.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafkalite.state.effects import Now
from kafkalite.state.groups.consumer.draft import Draft
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings, TopicLookup
from kafkalite.state.groups.consumer.subscribed_topics import SubscribedTopics
from kafkalite.state.groups.consumer.target_assignment import refresh_epoch
from kafkalite.state.groups.records import ConsumerGroupRegularExpression

PATTERN_INTERVAL_MS = 10_000
"""The minimum interval between two resolutions of all patterns of a group (Kafka's
REGEX_BATCH_REFRESH_MIN_INTERVAL_MS)."""

NEVER = -1
NO_VERSION = 0  # the metadata of this broker has no versions, which Kafka stores


@dataclass(slots=True)
class RegexWatch:
    """The state of topics and patterns that a group has seen; not durable: after a replay both are checked again.

    Arguments:
        topics_seen: the group epoch takes account of all topics there are.
        patterns_version: the version of the topics when all patterns were last to be resolved; NEVER = they were not.
        has_patterns: a member is subscribed to one.
        resolving: the patterns are being resolved.
        resolved_at_ms: when all patterns were last to be resolved, on the monotonic clock; None = resolve them again.
        target_scheduled: a timer is set that computes the target assignment.
    """

    topics_seen: bool = False
    patterns_version: int = NEVER
    has_patterns: bool = True
    resolving: bool = False
    resolved_at_ms: int | None = None
    target_scheduled: bool = False


def want_resolved(
    group: ConsumerGroup, watch: RegexWatch, settings: ConsumerGroupSettings, topics_version: int, now: Now
) -> tuple[str, ...]:
    """The patterns to resolve now, in order: all of them if their results may be outdated, else those without a result.

    Arguments:
        group: the group that is subscribed to the patterns.
        watch: of the group; records what is returned.
        settings: of the group.
        topics_version: increases when a topic is created, deleted or extended.
        now: the time.
    """
    patterns = group.subscribed_patterns()
    watch.has_patterns = bool(patterns)
    if not patterns or watch.resolving:
        return ()
    age_ms = None if watch.resolved_at_ms is None else now.ms - watch.resolved_at_ms
    outdated = age_ms is None
    if age_ms is not None and age_ms > PATTERN_INTERVAL_MS:
        outdated = watch.patterns_version != topics_version or age_ms >= settings.regex_refresh_interval_ms
    if outdated:
        watch.patterns_version, watch.resolved_at_ms = topics_version, now.ms
    wanted = patterns if outdated else patterns - group.patterns.keys()
    watch.resolving = bool(wanted)
    return tuple(sorted(wanted))


def take_over(draft: Draft, found: Mapping[str, Collection[str]], topics: TopicLookup, now: Now) -> None:
    """Store the topics that the patterns match; if they have changed, a new group epoch starts.

    The first result always starts one: the member may have dropped other topics for the pattern.
    """
    changed = False
    for pattern in sorted(found.keys() & draft.group.subscribed_patterns()):
        names = tuple(sorted(set(found[pattern])))
        before = draft.group.patterns.get(pattern)
        changed = changed or before is None or names != before.topics
        group_id = draft.group.group_id
        draft.add(ConsumerGroupRegularExpression(group_id, pattern, names, NO_VERSION, now.wall_ms))
    if draft.records:
        refresh_epoch(draft, SubscribedTopics(draft.group, topics), bump=changed)
