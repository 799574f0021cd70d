"""Offsets in the broker and in ZooKeeper, for the time of a migration (`dual.commit.enabled`).

1. A commit goes to the broker, then, in the same session, to ZooKeeper for each partition without an error. A metadata
   text that is too large counts as committed, as in Java: ZooKeeper gets the offset.
2. A read returns the larger offset. So an offset that was set back in one storage alone has no effect.
"""

from collections.abc import Collection

from kafkalite.errors import KafkaError, KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite_sdk.values import OffsetAndMetadata
from kafkalite_sdk.zk.offsets.storage import CommittedOffset, Failures, Offsets, OffsetStorage, SessionOffsets


class DualOffsets:
    """The offsets of a group in two storages.

    Arguments:
        broker, zookeeper: the storages, in the order of their commits.
    """

    def __init__(self, broker: OffsetStorage, zookeeper: SessionOffsets) -> None:
        self._broker = broker
        self._zookeeper = zookeeper

    async def commit(self, offsets: Offsets) -> Failures:
        """Commit offsets in both storages, that in ZooKeeper in the present session. Raises: as the storages."""
        commit_to_zookeeper = self._zookeeper.in_this_session()
        rejected = await self._broker.commit(offsets)
        failures = {each: error for each, error in rejected.items() if not _is_too_large(error)}
        rest = {each: to for each, to in offsets.items() if each not in failures}
        return failures | await commit_to_zookeeper(rest)

    async def read(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the larger offset of each partition. Raises: as the storages."""
        broker = await self._broker.read(partitions)
        zookeeper = await self._zookeeper.read(partitions)
        return {each: larger_offset(broker[each], zookeeper[each]) for each in partitions}


def larger_offset(broker: CommittedOffset, zookeeper: CommittedOffset) -> CommittedOffset:
    """Return the larger of two offsets; of equal ones that of the broker, which has metadata. An error comes first."""
    for each in (broker, zookeeper):
        if isinstance(each, Exception):
            return each
    found = [each for each in (broker, zookeeper) if isinstance(each, OffsetAndMetadata)]
    return max(found, key=lambda each: each.offset, default=None)


def _is_too_large(error: Exception) -> bool:
    return isinstance(error, KafkaError) and error.code == KafkaErrorCode.OFFSET_METADATA_TOO_LARGE
