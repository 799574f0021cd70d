"""Index of the registered groups that read a topic, so that a changed topic is checked in these groups only.

A member reads the topics that it names or claims, otherwise those of the definition of its group. A group whose
definition has a pattern is found for every topic, because a new topic may match.

Invariants:
1. `replace` is called whenever the topics of a member change: when it registers, is restored or is removed.
2. `follow` is called with each applied record, in replay and in normal operation.
"""

from collections.abc import Collection, Iterable

from kafkalite.state.groups.groups_by_topic import GroupsByTopic
from kafkalite.state.groups.records import GroupDefinition


class RegisteredReaders:
    """The index of a shard."""

    def __init__(self) -> None:
        self._named = GroupsByTopic()  # one reference for each member and topic
        self._with_pattern: dict[str, None] = {}

    def readers_of(self, topics: Iterable[str]) -> list[str]:
        """The groups with a member that reads one of these topics by name, and those with a pattern; each once."""
        found = dict(self._with_pattern)
        for topic in topics:
            found.update(dict.fromkeys(self._named.of(topic)))
        return list(found)

    def replace(self, group: str, before: Collection[str], after: Collection[str]) -> None:
        """Replace the topics of a member: none before it is added, and none after it is removed."""
        self._named.replace(group, before, after)

    def follow(self, record: object) -> None:
        """Update the index from a record."""
        if isinstance(record, GroupDefinition):
            self._with_pattern.pop(record.group, None)
            if record.pattern is not None:
                self._with_pattern[record.group] = None

    def forget(self, group: str) -> None:
        """Remove a deleted group; it has no members."""
        self._with_pattern.pop(group, None)
