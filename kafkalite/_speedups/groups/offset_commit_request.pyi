from typing import final

from typing_extensions import Buffer

from kafkalite._speedups.groups.partition_offsets import PartitionOffsets

@final
class PackedCommit:
    """A decoded OffsetCommit request.

    Attributes:
        generation: generation of the member, or its epoch; -1 = the sender is not a member.
        topics: the names of its topics, from version 10 on their ids.
        offsets: its offsets; the handler locates their topics.
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
    def offsets(self) -> PartitionOffsets: ...

def read_packed(version: int, body: Buffer, elements_max: int) -> PackedCommit | None:
    """Decode an OffsetCommit request.

    Arguments:
        version: of the request.
        body: the request without its header; it is copied. Bytes behind the message are ignored.
        elements_max: limit of topics and partitions together.

    Returns: None for a request that the codec must decode: broken bytes, tagged fields, a retention time, metadata that
        is not ASCII, a version outside 2 to 10.
    """
