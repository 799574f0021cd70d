"""Partitions as Kafka 0.8.2.2 chooses them."""

from random import Random

import pytest
from kafkalite_sdk.zk.producer.partitioner import KeylessPartitions, default_partition, key_hash

from tests.kit.zookeeper_era import cases, golden


@pytest.mark.parametrize(
    ("key", "code"),
    [("hello", 99162322), ("keyä\0".encode(), -247325599), (1 << 40, 256), (-5_000_000_000, 705032702), (-7, -7)],
)
def test_hash_of_a_key_is_that_of_a_jvm(key: object, code: int) -> None:
    assert key_hash(key) == code


def test_partition_is_the_absolute_value_of_the_hash() -> None:
    assert default_partition(-7, 4) == 3
    assert default_partition("polygenelubricants", 7) == 0, "the hash is the least int, whose absolute value is 0"
    assert default_partition("hello", 12) == 99162322 % 12


def test_partitions_of_10_000_keys_are_those_of_kafka_0_8_2_2() -> None:
    keys = cases.drawn_keys()
    assert len(keys) == 10_000
    assert [default_partition(key, 10) for key in keys] == golden.partitions()


@pytest.mark.parametrize("key", [1.5, True, ("a",), None])
def test_other_keys_need_a_partitioner(key: object) -> None:
    with pytest.raises(TypeError, match=r"has no hash of Java; use a str, an int or bytes, or pass partitioner="):
        default_partition(key, 3)


def test_int_beyond_a_long_is_rejected() -> None:
    with pytest.raises(ValueError, match="no integer of 64 bits"):
        default_partition(2**63, 3)


def test_partition_without_a_key_is_kept_for_some_time() -> None:
    keyless = KeylessPartitions(600.0, Random(1).randrange)
    available = list(range(100))
    first = keyless.choose("t", available, 1_000.0)
    assert {keyless.choose("t", available, 1_000.0 + each) for each in range(601)} == {first}
    others = {keyless.choose("t", available, 1_000.0 + 601.0 * each) for each in range(1, 20)}
    assert len(others) > 5
    assert keyless.choose("u", [4], 0.0) == 4


def test_each_record_has_its_own_partition_without_an_interval() -> None:
    keyless = KeylessPartitions(0.0, Random(1).randrange)
    assert len({keyless.choose("t", range(100), 5.0) for _ in range(50)}) > 20


def test_partition_is_chosen_again_after_a_failure_only() -> None:
    keyless = KeylessPartitions(-0.001, Random(1).randrange)
    first = keyless.choose("t", range(1_000_000), 1.0)
    assert keyless.choose("t", range(1_000_000), 10.0**9) == first
    keyless.forget(10.0**9)
    assert keyless.choose("t", range(1_000_000), 10.0**9) != first
