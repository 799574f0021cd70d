from typing import TypeVar, final

_Fields = TypeVar("_Fields", bound=tuple[object, ...])

@final
class PartitionOffsets:
    """The offsets of one commit in one block of memory: a `state.groups.records.PackedOffsets`.

    Attributes:
        metadata_longest: characters of the longest metadata.
        topics_count: number of topics.
    """

    @property
    def metadata_longest(self) -> int: ...
    @property
    def topics_count(self) -> int: ...
    def __len__(self) -> int:
        """Number of partitions."""

    def locate(self, at: int, name: str, topic_id: bytes, partitions: int) -> bool:
        """Set the name and the id of the next topic.

        Arguments:
            at: index of the topic; topics are located in order.
            name: name of the topic.
            topic_id: its 16 bytes, zeros = unknown.
            partitions: number of partitions of the topic.

        Returns: whether the topic has all partitions of the commit; if not, these offsets are of no further use.
        Raises: ValueError if `at` is not the next topic, or the id has another size.
        """

    def located_topics(self) -> list[tuple[str, bytes]]:
        """Name and id of each topic, in order. Raises: ValueError before all topics are located."""

    def partitions(self, record_type: type[_Fields]) -> list[_Fields]:
        """All partitions, each a `record_type` of topic, partition, offset, leader epoch, metadata or None, topic id.

        Raises: ValueError before all topics are located.
        """

    def put_into(
        self,
        partitions: dict[int, _Fields],
        at: int,
        record_type: type[_Fields],
        committed_ms: int,
        topic_id: bytes,
    ) -> None:
        """Put the offsets of a topic into a dict by partition.

        Each value is a `record_type` of offset, leader epoch, metadata ("" for null), `committed_ms`, -1 (no expiry),
        `topic_id`. Equal metadata of adjacent partitions is one object.

        Arguments:
            partitions: receives the offsets.
            at: index of the topic.
            record_type: a NamedTuple of these six fields, or `tuple`.
            committed_ms: time of the commit, wall time in ms.
            topic_id: the shared object of the topic's id.

        Raises: ValueError if there is no such topic, TypeError for a type without these six fields.
        """
