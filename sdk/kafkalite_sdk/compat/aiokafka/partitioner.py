"""aiokafka's default partitioner."""

import random
from collections.abc import Sequence

from kafkalite_sdk._speedups.partitioners import murmur2

__all__ = ["DefaultPartitioner", "murmur2"]


class DefaultPartitioner:
    """Murmur2 of the key, as Java's client; a random partition for records without a key.

    The producer itself keeps records without a key in one partition for a batch.
    """

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        """Return the partition of a key.

        Arguments:
            key: of the record.
            all_partitions: sorted by number.
            available: those that have a leader.
        """
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[(murmur2(key) & 0x7FFFFFFF) % len(all_partitions)]
