"""The oracle of the tests gives Java's answers, which are kept as data."""

from __future__ import annotations

import itertools

import pytest

from tests.kit.zookeeper_era import cases, golden, oracle


def test_hash_codes() -> None:
    kept = golden.hash_codes()
    assert [oracle.hash_code(key) for key in cases.drawn_keys()[: len(kept)]] == kept
    assert kept[0] == -(1 << 31)


def test_partitions_of_the_default_partitioner() -> None:
    expected = [0 if code == -(1 << 31) else abs(code) % 10 for code in map(oracle.hash_code, cases.drawn_keys())]
    assert golden.partitions() == expected


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_range_assignments(version: str) -> None:
    for group, owners in zip(cases.groups(), golden.assignments(version, "range"), strict=True):
        assert oracle.range_owners(group.consumers, group.topics) == owners


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_round_robin_assignments(version: str) -> None:
    text = "{}-{}" if version == "1.1.1" else "[{},{}]"
    answers = golden.assignments(version, "roundrobin")
    for group, owners in zip(cases.groups(), answers, strict=True):
        if owners is not None:
            assert oracle.round_robin_owners(group.consumers, group.topics, text) == owners
    assert (None in answers) is (version == "0.8.2.2")


def test_no_group_has_partitions_of_equal_hash_code() -> None:
    """Their order is undefined in Java."""
    for group, text in itertools.product(cases.groups(), ("{}-{}", "[{},{}]")):
        codes = [oracle.hash_code(text.format(topic, n)) for topic, count in group.topics.items() for n in range(count)]
        assert len(codes) == len(set(codes))
