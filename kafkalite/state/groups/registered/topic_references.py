"""Index of the registered groups whose records name a topic: in rewind marks, or as a topic of the first generation.

When the topic is deleted, these groups forget it, even if none of their members reads it.

Invariant: `follow` is called with each applied record, in replay and in normal operation.
"""

from kafkalite.state.groups.groups_by_topic import GroupsByTopic
from kafkalite.state.groups.records import GroupDefinition, RewindMark, RewindMarkDeleted

Topics = frozenset[str]
NOTHING: Topics = frozenset()


class RegisteredTopicReferences:
    """The index of a shard."""

    def __init__(self) -> None:
        self._first = GroupsByTopic()
        self._first_of: dict[str, Topics] = {}
        self._marked: dict[str, dict[str, set[int]]] = {}  # topic -> group -> marked partitions
        self._marked_of: dict[str, dict[str, None]] = {}  # group -> topics

    def of(self, topic: str) -> list[str]:
        """The groups whose records name a topic."""
        return list(dict.fromkeys([*self._first.of(topic), *self._marked.get(topic, ())]))

    def follow(self, record: object) -> None:
        """Update the index from a record."""
        match record:
            case GroupDefinition(group=group, first_topics=first):
                self._replace_first(group, frozenset(topic for topic, _ in first or ()))
            case RewindMark(group, topic, partition, _):
                self._marked.setdefault(topic, {}).setdefault(group, set()).add(partition)
                self._marked_of.setdefault(group, {})[topic] = None
            case RewindMarkDeleted(group, topic, partition):
                self._unmark(group, topic, partition)

    def forget(self, group: str) -> None:
        """Remove a deleted group."""
        self._replace_first(group, NOTHING)
        for topic in self._marked_of.pop(group, ()):
            self._drop(group, topic)

    def _replace_first(self, group: str, topics: Topics) -> None:
        self._first.replace(group, self._first_of.pop(group, NOTHING), topics)
        if topics:
            self._first_of[group] = topics

    def _unmark(self, group: str, topic: str, partition: int) -> None:
        marked = self._marked.get(topic, {}).get(group, set())
        marked.discard(partition)
        if not marked and group in self._marked_of:
            self._marked_of[group].pop(topic, None)
            if not self._marked_of[group]:
                del self._marked_of[group]
            self._drop(group, topic)

    def _drop(self, group: str, topic: str) -> None:
        groups = self._marked.get(topic, {})
        groups.pop(group, None)
        if not groups:
            self._marked.pop(topic, None)
