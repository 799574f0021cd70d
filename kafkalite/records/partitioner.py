"""Selects the partition of a key by murmur2, as the Java clients do (Utils.murmur2)."""

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash of `data` as an unsigned int."""
    size = len(data)
    value = SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        value = value * MULTIPLIER & MASK ^ word
    if size != whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    value = (value ^ value >> 13) * MULTIPLIER & MASK
    return value ^ value >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The partition index of a key among `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
