"""Stored configs: read key by key, nothing is raised, and what cannot be read fails towards keeping records."""

from __future__ import annotations

from random import Random

import pytest

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.definitions import BROKER_KEYS, TOPIC_KEYS
from kafkalite.config.describe_and_alter import (
    Alteration,
    Operation,
    alter_broker,
    alter_group,
    alter_topic,
    check_topic_configs,
)
from kafkalite.config.group import GROUP_CONFIG_KEYS, group_values
from kafkalite.config.keys import ConfigError
from kafkalite.config.stored import read_broker_config
from kafkalite.config.topic import DELETION_KEYS

CONFIG = BrokerConfig()
OF_KAFKA = {
    "message.downconversion.enable": "true",
    "message.format.version": "2.8-IV0",
    "message.timestamp.difference.max.ms": "1000",
    "leader.replication.throttled.replicas": "0:1,1:2",
    "follower.replication.throttled.replicas": "*",
    "remote.log.copy.disable": "true",
    "remote.log.delete.on.disable": "true",
    "local.retention.ms": "1000",
    "preallocate": "true",
}


def test_valid_topic_configs_of_kafka_have_no_effect_and_are_accepted() -> None:
    assert check_topic_configs(CONFIG, OF_KAFKA) == OF_KAFKA
    config, problems = CONFIG.stored_topic_config({**OF_KAFKA, "retention.ms": "-1"})
    assert problems == () and config.unreadable == () and config.retention_ms == -1


@pytest.mark.parametrize("name", DELETION_KEYS)
def test_nothing_is_deleted_while_a_key_about_deletion_has_a_wrong_value(name: str) -> None:
    config, problems = CONFIG.stored_topic_config({name: "wrong", "max.message.bytes": "7"})
    assert config.unreadable == (name,) and len(problems) == 1 and name in problems[0]
    assert config.max_message_bytes == 7, "the others count"


@pytest.mark.parametrize(
    "name", ["retention.future", "kafkalite.keep", "cleanup.mode", "retentoin.ms", "cleanup.polcy"]
)
def test_unknown_keys_whose_names_are_about_deletion_count_as_such(name: str) -> None:
    config, problems = CONFIG.stored_topic_config({name: "-1"})
    assert config.unreadable == (name,) and len(problems) == 1


@pytest.mark.parametrize("texts", [{"future": "1"}, {"max.message.bytes": "x"}, {"segment.bytes": "14"}])
def test_other_keys_that_cannot_be_read_prevent_no_deletion(texts: dict[str, str]) -> None:
    config, problems = CONFIG.stored_topic_config(texts)
    assert config == CONFIG.topic_defaults and len(problems) == 1


def test_a_node_that_cannot_be_read_prevents_every_deletion() -> None:
    config, _problems = CONFIG.stored_topic_config(None)
    assert config.unreadable == DELETION_KEYS and config.may_be_compacted


def test_random_texts_raise_nothing() -> None:
    random = Random(5)
    names = [*TOPIC_KEYS, *BROKER_KEYS, *GROUP_CONFIG_KEYS, "", "x", "listener.name.a.ssl.key.password"]
    values = ["", " ", "-1", "0", "1", "x", "\0", "9" * 400, "true", "compact,delete", "a,a", "PLAINTEXT://:9", "1e999"]
    for _ in range(2000):
        texts = {random.choice(names): random.choice(values) for _ in range(random.randint(0, 6))}
        stored = read_broker_config(CONFIG, texts, {random.choice(names): random.choice(values)})
        assert stored.config.stored_texts(all_brokers=True) == texts, "nothing is lost"
        stored.config.stored_topic_config(texts)
        group_values(stored.config.values, texts)


def test_a_default_that_cannot_be_read_counts_for_topics_without_their_own() -> None:
    for default, own in (
        ({"log.retention.ms": "x"}, {}),
        ({}, {"log.retention.ms": "x"}),
        ({"log.retentoin.ms": "1"}, {}),
    ):
        config = read_broker_config(CONFIG, default, own).config
        assert config.stored_topic_config({}).config.unreadable == ("retention.ms",)
        assert config.stored_topic_config({"retention.ms": "5"}).config.unreadable == ()
    config = read_broker_config(CONFIG, {"log.retention.ms": "x"}, {"log.retention.ms": "7"}).config
    assert config.topic_defaults.unreadable == () and config.topic_defaults.retention_ms == 7, (
        "the stronger one is valid"
    )


def test_a_node_of_a_broker_that_cannot_be_read_leaves_the_texts_in_force() -> None:
    before = read_broker_config(CONFIG, {"log.retention.ms": "7"}, {"max.connections": "5"}).config
    config = read_broker_config(before, None, None).config
    assert config.topic_defaults.retention_ms == 7 and config.max_connections == 5
    assert "retention.ms" in config.topic_defaults.unreadable
    assert read_broker_config(config, {}, {}).config.topic_defaults == CONFIG.topic_defaults


def test_stored_texts_that_contradict_the_others_are_left_out() -> None:
    texts = {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "5", "num.io.threads": "3"}
    config, problems = read_broker_config(CONFIG, texts, {})
    assert len(problems) == 1 and len(config.dynamic_default) == 2 and config.undefined
    assert config.stored_texts(all_brokers=True) == texts


def test_keys_that_are_not_altered_stay_as_they_are() -> None:
    """And each of them can be deleted."""
    topic = {"future": "x", "retention.ms": "wrong", "min.compaction.lag.ms": "9", "max.compaction.lag.ms": "5"}
    one = [Alteration("segment.ms", Operation.SET, "5")]
    assert alter_topic(CONFIG, topic, one) == {**topic, "segment.ms": "5"}
    assert check_topic_configs(CONFIG, {**topic, "segment.ms": "5"}, topic) == {**topic, "segment.ms": "5"}
    assert "future" not in alter_topic(CONFIG, topic, [Alteration("future", Operation.DELETE, None)])
    group = {"future": "x", "consumer.session.timeout.ms": "wrong"}
    one = [Alteration("consumer.assignment.interval.ms", Operation.SET, "5")]
    assert alter_group(CONFIG, group, one) == {**group, "consumer.assignment.interval.ms": "5"}
    broker = {"future": "x", "num.partitions": "7", "log.retention.ms": "wrong"}
    one = [Alteration("max.connections", Operation.SET, "5")]
    assert alter_broker(CONFIG, broker, one, all_brokers=True) == {**broker, "max.connections": "5"}
    assert "future" not in alter_broker(CONFIG, broker, [Alteration("future", 1, None)], all_brokers=True)


def test_an_altered_key_must_be_valid_beside_keys_that_are_not() -> None:
    current = {"future": "x", "min.compaction.lag.ms": "9"}
    for name, text in (("retention.ms", "x"), ("future", "y"), ("max.compaction.lag.ms", "5")):
        with pytest.raises(ConfigError):
            alter_topic(CONFIG, current, [Alteration(name, Operation.SET, text)])
