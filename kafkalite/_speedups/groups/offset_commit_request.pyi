from typing import TypeVar, final

from typing_extensions import Buffer

_Fields = TypeVar("_Fields", bound=tuple[object, ...])

@final
class PackedCommit:
    """An OffsetCommit request in one piece; `state.group_records.PackedOffsets` once its topics are located.

    Attributes:
        topics: the names of its topics, from version 10 on their ids.
        generation: of the member, or its epoch; -1 = the sender is none.
    """

    @property
    def group_id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...
    @property
    def topics(self) -> list[str] | list[bytes]: ...
    @property
    def metadata_longest(self) -> int:
        """Characters of the longest metadata."""

    def __len__(self) -> int:
        """How many partitions."""

    def locate(self, at: int, name: str, topic_id: bytes, partitions: int) -> bool:
        """Say which topic is meant by the one at `at`, each in its turn.

        Args:
            at: place in `topics`.
            name: of the topic.
            topic_id: its 16 bytes.
            partitions: how many it has.

        Returns: whether the topic has all partitions that the request names; if not, the request is of no more use.
        Raises: ValueError, when it is not the turn of this one.
        """

    def located_topics(self) -> list[tuple[str, bytes]]:
        """Name and id of each topic, in their order. Raises: ValueError before all are located."""

    def partitions(self, kind: type[_Fields]) -> list[_Fields]:
        """All partitions, each a `kind` of topic, partition, offset, leader epoch, metadata or None, topic id.

        Raises: ValueError before all are located.
        """

    def put_into(
        self, partitions: dict[int, _Fields], at: int, kind: type[_Fields], committed_ms: int, topic_id: bytes
    ) -> None:
        """Put the offsets of the topic at `at` into a dict by partition.

        Each is a `kind`, a class of tuples, of offset, leader epoch, metadata ("" for null), `committed_ms`, -1 for no
        expiry, `topic_id`. Raises: ValueError, TypeError for another kind.
        """

    def answer(self, correlation_id: int, errors: int | tuple[int, ...]) -> bytes:
        """The response, header and all.

        Args:
            errors: of all partitions, or of each. Raises: ValueError when they are not as many as the partitions.
        """

def read_packed(version: int, body: Buffer, elements_max: int) -> PackedCommit | None:
    """Read an OffsetCommit request.

    Args:
        body: without header; copied. Bytes behind the message are ignored.
        elements_max: how many topics and partitions it may have together.

    Returns: None for everything that is not just as usual: broken bytes, tags, a retention time, metadata that is not
        ASCII, another version than 2 to 10.
    """
