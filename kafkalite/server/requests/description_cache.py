"""Caches the encoded descriptions of partitions: clients request the metadata of all partitions again and again.

A cached description belongs to one image of a topic and to the brokers that a listener's clients can reach, with no
partition offline, so it is never out of date.
"""

from typing import Any

from kafkalite.cluster.metadata.image import TopicImage


class DescriptionCache:
    """Encoded descriptions of partitions, by topic, message and version."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[tuple[type, int], tuple[TopicImage, frozenset[int], list[Any]]]] = {}

    def get(self, topic: TopicImage, reachable: frozenset[int], message: type, version: int) -> list[Any] | None:
        """Return the cached array of a topic, None where there is none for this image; arguments as in `put`."""
        entry = self._entries.get(topic.name, {}).get((message, version))
        if entry is None or entry[0] is not topic or entry[1] is not reachable:
            return None
        return entry[2]

    def put(
        self, topic: TopicImage, reachable: frozenset[int], message: type, version: int, described: list[Any]
    ) -> None:
        """Cache the encoded array of a topic until the topic changes.

        Arguments:
            topic: the image that was described.
            reachable: `LiveBrokers.reachable` of the client's listener, compared by identity.
            message: class of the description of a partition.
            version: of the response.
            described: the encoded array.
        """
        self._entries.setdefault(topic.name, {})[message, version] = topic, reachable, described

    def remove(self, name: str) -> None:
        """Remove a deleted topic."""
        self._entries.pop(name, None)
