"""The interface of the storages of committed offsets."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol, TypeAlias

from kafkalite.model import TopicPartition
from kafkalite_sdk.values import OffsetAndMetadata

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]

Failures: TypeAlias = dict[TopicPartition, Exception]
"""Why partitions were not committed; partitions without an entry are committed."""

CommittedOffset: TypeAlias = OffsetAndMetadata | Exception | None
"""None = no offset is committed; an exception = it cannot be read, for example a znode that is not valid."""


class OffsetStorage(Protocol):
    """Commits and reads the offsets of one group.

    `commit` and `read` end within a time that the storage has been given. They raise an error that concerns all
    partitions, such as a lost connection: CoordinationError or KafkaError.
    """

    async def commit(self, offsets: Offsets) -> Failures:
        """Write offsets; return the partitions that were not written."""
        ...

    async def read(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the offset of each partition."""
        ...


class SessionOffsets(OffsetStorage, Protocol):
    """A storage whose writes belong to a session, which may end and be followed by another one."""

    def in_this_session(self) -> Callable[[Offsets], Awaitable[Failures]]:
        """Return `commit` of the present session. Raises CoordinationError: there is none."""
        ...
