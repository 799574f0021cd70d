"""Which registered groups of a shard a changed topic concerns, so that the change touches no other group.

A member reads the topics that it names or claims, else those of the definition of its group. Any new topic may match a
pattern: a group whose definition has one is concerned by every change.

Laws:
1. `replace` is called whenever the topics of a member change: when it registers, is restored or is removed.
2. `follow` is called with each applied record, in replay and in normal operation.
"""

from collections.abc import Collection, Iterable

from kafkalite.state.groups.groups_by_topic import GroupsByTopic
from kafkalite.state.groups.records import GroupDefinition

__all__ = ["RegisteredReaders"]


class RegisteredReaders:
    """The index of a shard."""

    def __init__(self) -> None:
        self._named = GroupsByTopic()  # one reference for each member and topic
        self._with_pattern: dict[str, None] = {}

    def concerned(self, topics: Iterable[str]) -> list[str]:
        """The groups that a change of any of these topics concerns, each once: those with a member that reads one by
        its name, and those with a pattern.
        """
        found = dict(self._with_pattern)
        for topic in topics:
            found.update(dict.fromkeys(self._named.of(topic)))
        return list(found)

    def replace(self, group: str, before: Collection[str], after: Collection[str]) -> None:
        """A member of a group reads other topics than before; none before it is one, and after it was removed."""
        self._named.replace(group, before, after)

    def follow(self, record: object) -> None:
        """Take over what a record changes."""
        if isinstance(record, GroupDefinition):
            self._with_pattern.pop(record.group, None)
            if record.pattern is not None:
                self._with_pattern[record.group] = None

    def forget(self, group: str) -> None:
        """A group is deleted; it has no members."""
        self._with_pattern.pop(group, None)
