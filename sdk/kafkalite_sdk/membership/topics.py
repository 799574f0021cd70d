"""The topics of a group member: partition counts and topic ids, also of topics that the client does not read itself.

Pure. The metadata of the client has the topics that it reads. A leader also needs those of other members, a pattern all
topics, and KIP-848 names of topic ids: these come from responses to the machine's own Metadata requests.
"""

from collections.abc import Collection, Iterable

from kafkalite.model import ZERO_UUID
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite_sdk.client.cluster_view import ClusterView

Topic = MetadataRequest.MetadataRequestTopic


class GroupTopics:
    """The known topics.

    Arguments:
        view: the metadata of the client; it has priority.

    Attributes:
        all_names: topics of the last response for all topics; None = there was none.
        internal: whether `all_names` has internal topics.
    """

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self.all_names: frozenset[str] | None = None
        self.internal = False
        self._partitions: dict[str, int] = {}
        self._ids: dict[bytes, str] = {}

    def partitions(self, topic: str) -> int | None:
        """The number of partitions, 0 = the topic does not exist, None = unknown."""
        seen = self.view.topics.get(topic)
        if seen is not None and seen.partitions:
            return len(seen.partitions)
        return self._partitions.get(topic)

    def counts(self, topics: Collection[str]) -> dict[str, int]:
        """The partitions of those topics that exist, in order of their names."""
        return {topic: count for topic in sorted(topics) if (count := self.partitions(topic))}

    def missing(self, topics: Iterable[str]) -> list[str]:
        """The topics of which nothing is known."""
        return sorted(topic for topic in topics if self.partitions(topic) is None)

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic, None = unknown. The id of a deleted topic keeps its name."""
        name = self.view.name_of(topic_id)
        if name is None:
            return self._ids.get(topic_id)
        self._ids[topic_id] = name
        return name

    def apply(self, response: MetadataResponse, asked: Iterable[str] = (), *, of_all: bool = False) -> None:
        """Apply a response to a request of the machine.

        Arguments:
            response: the response.
            asked: names of the request; topics without partitions in the response do not exist.
            of_all: the request was for all topics.
        """
        if of_all:
            self._partitions.clear()
        self._partitions.update(dict.fromkeys(asked, 0))
        names = set()
        for topic in response.topics:
            if topic.name is None or topic.error_code:
                continue
            self._partitions[topic.name] = len(topic.partitions)
            if topic.topic_id != ZERO_UUID:
                self._ids[topic.topic_id] = topic.name
            if self.internal or not topic.is_internal:
                names.add(topic.name)
        if of_all:
            self.all_names = frozenset(names)


def metadata_of_topics(topics: Iterable[str]) -> MetadataRequest:
    """The request for topics by name, which creates none."""
    return MetadataRequest(topics=[Topic(name=name) for name in topics], allow_auto_topic_creation=False)


def metadata_of_ids(topic_ids: Iterable[bytes]) -> MetadataRequest:
    """The request for topics by id."""
    wanted = [Topic(topic_id=topic_id, name=None) for topic_id in topic_ids]
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=False)


def metadata_of_all() -> MetadataRequest:
    """The request for all topics."""
    return MetadataRequest(topics=None, allow_auto_topic_creation=False)
