"""Maps each topic to the groups that refer to it, so that a change of one topic touches no other group.

`GroupsByTopic` counts references by name: committed offsets, subscriptions by name, rewind marks. `RegexMatches` has
the topics that the patterns of consumer groups match: groups whose patterns match the same topics share one
`RegexMatch`, so that 5,000 groups with one pattern over 10,000 topics cost one set of names.
"""

from collections.abc import Collection, Iterable, Set
from sys import intern

NO_GROUPS: dict[str, int] = {}
NO_TOPICS: frozenset[str] = frozenset()


class AllTopics:
    """A container of all topics: of a group whose subscriptions cannot be read."""

    def __contains__(self, topic: object) -> bool:
        return True


EVERYTHING = AllTopics()


class GroupsByTopic:
    """The groups that refer to each topic, with the number of references."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, int]] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._groups

    def of(self, topic: str) -> Set[str]:
        """The groups that refer to a topic."""
        return self._groups.get(topic, NO_GROUPS).keys()

    def refers(self, group: str, topic: str) -> bool:
        """Whether a group refers to a topic."""
        return group in self._groups.get(topic, NO_GROUPS)

    def add(self, topic: str, group: str) -> None:
        """Add a reference of a group to a topic."""
        groups = self._groups.get(topic)
        if groups is None:
            groups = self._groups[intern(topic)] = {}
        groups[group] = groups.get(group, 0) + 1

    def remove(self, topic: str, group: str) -> None:
        """Remove a reference, which must have been added."""
        groups = self._groups[topic]
        groups[group] -= 1
        if not groups[group]:
            del groups[group]
        if not groups:
            del self._groups[topic]

    def replace(self, group: str, before: Collection[str], after: Collection[str]) -> None:
        """Replace the topics to which a group refers, each of them once."""
        if before == after:
            return
        for topic in after:
            self.add(topic, group)
        for topic in before:
            self.remove(topic, group)


class RegexMatch:
    """Topics that patterns matched, and the groups that have such a pattern, with their number of patterns."""

    __slots__ = ("groups", "names", "topics")

    def __init__(self, topics: tuple[str, ...]) -> None:
        self.topics = topics
        self.names = frozenset(topics)
        self.groups: dict[str, int] = {}


class RegexMatches:
    """The topics that the resolved patterns of the consumer groups of a shard match."""

    def __init__(self) -> None:
        self._by_topics: dict[tuple[str, ...], RegexMatch] = {}
        self._of_group: dict[str, dict[str, RegexMatch]] = {}  # group -> pattern -> match

    def of(self, group: str) -> Collection[RegexMatch]:
        """The matches of all patterns of a group."""
        return self._of_group.get(group, {}).values()

    def reading(self, topics: Set[str]) -> Iterable[str]:
        """Yield the groups with a pattern that matched one of these topics; a group may be yielded several times."""
        for match in self._by_topics.values():
            if not match.names.isdisjoint(topics):
                yield from match.groups

    def put(self, group: str, pattern: str, topics: tuple[str, ...]) -> tuple[str, ...]:
        """Store the result of a pattern; returns the tuple of topics that all groups with this match share."""
        match = self._by_topics.get(topics)
        if match is None:
            match = self._by_topics[topics] = RegexMatch(topics)
        match.groups[group] = match.groups.get(group, 0) + 1
        self.remove(group, pattern)
        self._of_group.setdefault(group, {})[pattern] = match
        return match.topics

    def remove(self, group: str, pattern: str) -> None:
        """Remove a pattern of a group, if it exists."""
        patterns = self._of_group.get(group, {})
        match = patterns.pop(pattern, None)
        if match is None:
            return
        match.groups[group] -= 1
        if not match.groups[group]:
            del match.groups[group]
        if not match.groups:
            del self._by_topics[match.topics]
        if not patterns:
            del self._of_group[group]

    def remove_group(self, group: str) -> None:
        """A group is deleted."""
        for pattern in list(self._of_group.get(group, ())):
            self.remove(group, pattern)
