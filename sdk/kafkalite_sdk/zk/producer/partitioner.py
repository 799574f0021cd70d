"""Chooses partitions as the producer of Kafka 0.8 does.

Pure. Sources: DefaultPartitioner.scala, ByteArrayPartitioner.scala, Utils.abs and DefaultEventHandler.getPartition of
Kafka 0.8.2.2.
"""

from collections.abc import Callable, Sequence

from kafkalite_sdk.zk.java_strings import hash_code

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MAX = 2**63 - 1

Partitioner = Callable[[object, int], int]
"""(key, number of partitions) -> partition."""


def default_partition(key: object, partitions: int) -> int:
    """Return the partition of a key: `Utils.abs(key.hashCode) % partitions`.

    Arguments:
        key: a str, an int or bytes. An int is an Integer of Java if it fits, else a Long. Java's hash of a byte[] does
            not depend on its content; here it is that of `ByteArrayPartitioner`.
        partitions: number of partitions of the topic.

    Raises TypeError: another type. ValueError: an int that is no Long.
    """
    code = key_hash(key)
    return 0 if code == INT_MIN else abs(code) % partitions


def key_hash(key: object) -> int:
    """Return Java's `hashCode` of a key; see `default_partition`."""
    if isinstance(key, str):
        return hash_code(key)
    if isinstance(key, bytes | bytearray):
        code = 1  # Arrays.hashCode
        for byte in key:
            code = (31 * code + (byte - 256 if byte > 127 else byte)) & 0xFFFFFFFF
        return _signed(code)
    if isinstance(key, int) and not isinstance(key, bool):
        if not -LONG_MAX - 1 <= key <= LONG_MAX:
            raise ValueError(f"the key {key} is no integer of 64 bits")
        return key if INT_MIN <= key <= INT_MAX else _signed((key ^ (key & (2**64 - 1)) >> 32) & 0xFFFFFFFF)
    raise TypeError(f"the key {key!r} has no hash of Java; use a str, an int or bytes, or pass partitioner=")


def _signed(code: int) -> int:
    return code - 2**32 if code > INT_MAX else code


class KeylessPartitions:
    """Partitions of records without a key: a random one with a leader, which a topic keeps for some time.

    Arguments:
        kept_s: how long, in seconds (topic.metadata.refresh.interval.ms); 0 = each record has its own; below 0 = until
            a record has failed.
        randrange: returns an integer from 0 to below its argument.
    """

    def __init__(self, kept_s: float, randrange: Callable[[int], int]) -> None:
        self._kept_s = kept_s
        self._randrange = randrange
        self._partitions: dict[str, int] = {}
        self._since = 0.0

    def choose(self, topic: str, available: Sequence[int], now: float) -> int:
        """Return the partition of a record.

        Arguments:
            topic: of the record.
            available: the partitions with a leader; not empty.
            now: in seconds.
        """
        if self._kept_s >= 0 and now - self._since > self._kept_s:
            self.forget(now)
        if topic not in self._partitions or self._kept_s == 0:
            self._partitions[topic] = available[self._randrange(len(available))]
        return self._partitions[topic]

    def forget(self, now: float) -> None:
        """Choose again for all topics: the metadata is refreshed, or a record has failed."""
        self._partitions.clear()
        self._since = now
