"""`topic.partition.count.map`: numbers of partitions of topics that are created automatically."""

import pytest

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.keys import ConfigError

KEY = "topic.partition.count.map"


def test_numbers_of_partitions_by_topic() -> None:
    config = BrokerConfig({KEY: "orders:12, a.b-c_D:1,,big:10000 "})
    assert config.topic_partition_count_map == {"orders": 12, "a.b-c_D": 1, "big": 10_000}
    assert BrokerConfig().topic_partition_count_map == {} == BrokerConfig({KEY: " "}).topic_partition_count_map


@pytest.mark.parametrize(
    "member",
    [
        *("orders", "orders:", ":3", "orders:0", "orders:-1", "orders:x", "orders:10001", "orders:" + "9" * 5000),
        *("..:3", "a b:3", "a/b:3", "x" * 250 + ":3", "a:b:3", "orders:３"),
    ],
)
def test_invalid_members_are_rejected(member: str) -> None:
    with pytest.raises(ConfigError, match=r"expected TOPIC:COUNT .* from 1 to 10000$") as caught:
        BrokerConfig({KEY: f"fine:3,{member}"})
    assert caught.value.key == KEY and repr(member) in str(caught.value)


def test_topic_with_two_numbers_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"'orders:4' .* the topic orders has a number already"):
        BrokerConfig({KEY: "orders:3,orders:4"})
