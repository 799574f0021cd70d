"""The hash by which Java clients select the partition of a key (Utils.murmur2), in plain Python."""

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
