"""Hashes that map a key to a partition, so that all clients of a topic agree."""

__all__ = ["crc32_partition", "murmur2", "murmur2_partition"]

def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of `data` as an unsigned int (Utils.murmur2 of Apache Kafka)."""

def murmur2_partition(key: bytes, partitions: int) -> int:
    """Return the partition of a key among `partitions`, as Kafka's Java clients choose it. Raises ValueError for 0."""

def crc32_partition(key: bytes, partitions: int) -> int:
    """Return the partition of a key among `partitions`, as librdkafka's `consistent` partitioner chooses it.

    Raises ValueError for 0 partitions.
    """
