"""Offsets in the broker, as consumers outside of its groups commit them: generation -1, empty member id.

The coordinator is found, and requests that it rejects are repeated, by `Admin`; the time between two attempts is
`offsets.channel.backoff.ms`. A group that has members in the broker rejects these commits (UNKNOWN_MEMBER_ID).
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kafkalite.model import TopicPartition
from kafkalite_sdk.values import OffsetAndMetadata
from kafkalite_sdk.zk.offsets.storage import CommittedOffset, Failures, Offsets

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kafkalite_sdk.admin.admin import Admin
    from kafkalite_sdk.admin.group_types import Committed


class BrokerOffsets:
    """The offsets of a group in the broker.

    Arguments:
        group: its name.
        admin: returns a client that is started. Raises KafkaError: no broker can be reached.
        timeout_s: longest time of a commit or a read, in seconds (`offsets.channel.socket.timeout.ms`).
    """

    def __init__(self, group: str, admin: "Callable[[], Awaitable[Admin]]", timeout_s: float) -> None:
        self._group = group
        self._admin = admin
        self._timeout_s = timeout_s

    async def commit(self, offsets: Offsets) -> Failures:
        """Commit offsets with their metadata. Raises KafkaError: no broker can be reached."""
        from kafkalite_sdk.admin.group_types import Committed

        if not offsets:
            return {}
        wanted = {each: Committed(to.offset, to.metadata, to.leader_epoch) for each, to in offsets.items()}
        offsets_of = (await self._admin()).group_offsets
        outcomes = await offsets_of.alter(self._group, wanted, timeout=self._timeout_s)
        return {**outcomes.errors}

    async def read(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the offset of each partition. Raises KafkaError: the group cannot be read."""
        if not partitions:
            return {}
        outcomes = await (await self._admin()).group_offsets.list(self._group, timeout=self._timeout_s)
        found = outcomes.check()[self._group]
        return {each: _of_committed(found.get(each)) for each in partitions}


def _of_committed(found: "Committed | None") -> OffsetAndMetadata | None:
    return None if found is None else OffsetAndMetadata(found.offset, found.metadata, found.leader_epoch)
