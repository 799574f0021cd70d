"""The hashes of keys, against the pure-Python twin and known values of other clients."""

import random
import zlib

import pytest
from kafkalite_sdk._speedups.partitioners import crc32_partition, murmur2, murmur2_partition

from tests.oracles.partitioners import murmur2 as twin


@pytest.mark.parametrize(
    ("key", "expected"),  # UtilsTest.testMurmur2 of Apache Kafka, as unsigned numbers
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_equals_that_of_the_java_clients(key, expected):
    assert murmur2(key) == expected % (1 << 32)


def test_murmur2_equals_its_twin_for_random_keys():
    rng = random.Random(1)
    for size in [*range(70), 1 << 10, 1 << 20]:
        key = rng.randbytes(size)
        assert murmur2(key) == twin(key)
        for partitions in (1, 3, 1000):
            assert murmur2_partition(key, partitions) == (twin(key) & 0x7FFFFFFF) % partitions
            assert crc32_partition(key, partitions) == zlib.crc32(key) % partitions


def test_a_topic_without_partitions_is_rejected():
    for partition_of in (murmur2_partition, crc32_partition):
        with pytest.raises(ValueError):
            partition_of(b"key", 0)
