"""The keys of replication in Kafka 3.9: each is honoured, or without effect for a reason that its description gives.

None is refused: a value that is not honoured makes nothing less safe than its default does.

Sources: ReplicationConfigs.java, QuotaConfigs.java, ServerConfigs.java, GroupCoordinatorConfig.java,
TransactionStateManagerConfigs.java and TopicConfig.java of Apache Kafka 3.9; the texts are their defaults.
"""

from __future__ import annotations

import re

import pytest

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.definitions import BROKER_KEYS, TOPIC_KEYS
from kafkalite.config.keys import ConfigError, Key, Support, Update
from kafkalite.config.topic import THROTTLED, parse_topic_value

HONOURED = {
    "auto.leader.rebalance.enable": "true",
    "controlled.shutdown.enable": "true",
    "controlled.shutdown.max.retries": "3",
    "controlled.shutdown.retry.backoff.ms": "5000",
    "default.replication.factor": "1",
    "follower.replication.throttled.rate": str(2**63 - 1),
    "leader.imbalance.check.interval.seconds": "300",
    "leader.imbalance.per.broker.percentage": "10",
    "leader.replication.throttled.rate": str(2**63 - 1),
    "min.insync.replicas": "1",
    "num.replica.fetchers": "1",
    "offsets.topic.replication.factor": "3",
    "replica.fetch.backoff.ms": "1000",
    "replica.fetch.max.bytes": "1048576",
    "replica.fetch.min.bytes": "1",
    "replica.fetch.response.max.bytes": "10485760",
    "replica.fetch.wait.max.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "5000",
    "replica.lag.time.max.ms": "30000",
    "replica.selector.class": None,
    "replica.socket.timeout.ms": "30000",
    "replication.quota.window.num": "11",
    "replication.quota.window.size.seconds": "1",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.replication.factor": "3",
    "unclean.leader.election.enable": "false",
}
NOT_ENFORCED, AT_ONCE = "not enforced yet", "leave it at once"
WITHOUT_EFFECT = {
    "alter.log.dirs.replication.quota.window.num": ("11", NOT_ENFORCED),
    "alter.log.dirs.replication.quota.window.size.seconds": ("1", NOT_ENFORCED),
    "delete.records.purgatory.purge.interval.requests": ("1", AT_ONCE),
    "fetch.purgatory.purge.interval.requests": ("1000", AT_ONCE),
    "follower.fetch.last.tiered.offset.enable": ("false", "remote storage, which is refused"),
    "inter.broker.protocol.version": ("3.9-IV0", "always that of Kafka 3.9"),
    "log.dir.failure.timeout.ms": ("30000", "KRaft"),
    "offsets.commit.required.acks": ("-1", "always those of the ISR"),
    "producer.purgatory.purge.interval.requests": ("1000", AT_ONCE),
    "replica.alter.log.dirs.io.max.bytes.per.second": (str(2**63 - 1), NOT_ENFORCED),
    "replica.socket.receive.buffer.bytes": ("65536", "operating system"),
    "share.coordinator.state.topic.min.isr": ("2", "share groups are not served"),
    "share.coordinator.state.topic.replication.factor": ("3", "share groups are not served"),
    "unclean.leader.election.interval.ms": ("300000", "KRaft controller"),
}
OF_TOPICS = {
    "follower.replication.throttled.replicas": ("", None),
    "leader.replication.throttled.replicas": ("", None),
    "min.insync.replicas": ("1", None),
    "unclean.leader.election.enable": ("false", None),
}
DYNAMIC = {
    "follower.fetch.last.tiered.offset.enable",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "min.insync.replicas",
    "num.replica.fetchers",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "unclean.leader.election.enable",
}
SUBJECTS = re.compile(
    r"replica|isr|throttled|unclean|imbalance|rebalance\.enable|controlled\.|purgatory|required\.acks|tiered|inter\.broker\.p"
)
OTHERS = {"group.streams.max.standby.replicas", "group.streams.num.standby.replicas"}


def check_without_effect(key: Key, default: str | None, reason: str) -> None:
    assert (key.support, key.text(key.default)) == (Support.WITHOUT_EFFECT, default)
    assert reason in key.doc


@pytest.mark.parametrize(("name", "default"), HONOURED.items())
def test_honoured_keys_have_the_defaults_of_kafka(name: str, default: str | None) -> None:
    """`test_definitions` proves that code reads them."""
    key = BROKER_KEYS[name]
    assert (key.support, key.text(key.default)) == (Support.HONOURED, default)


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_keys_without_effect_give_the_reason(name: str) -> None:
    check_without_effect(BROKER_KEYS[name], *WITHOUT_EFFECT[name])


@pytest.mark.parametrize("name", OF_TOPICS)
def test_keys_of_topics(name: str) -> None:
    key, (default, reason) = TOPIC_KEYS[name], OF_TOPICS[name]
    if reason is None:
        assert (key.support, key.text(key.default)) == (Support.HONOURED, default)
        of_broker = [name] if name in BROKER_KEYS else []
        assert [synonym.name for synonym in key.synonyms] == of_broker, "the default is that of the broker"
    else:
        check_without_effect(key, default, reason)


@pytest.mark.parametrize("name", sorted(THROTTLED))
@pytest.mark.parametrize("text", ["", "*", "0:1", "0:1, 12:3"])
def test_throttled_replicas(name: str, text: str) -> None:
    assert parse_topic_value(name, text) == tuple(each.strip() for each in text.split(",") if each)


@pytest.mark.parametrize("name", sorted(THROTTLED))
@pytest.mark.parametrize("text", ["0", "0:", ":1", "0:1:2", "*,0:1", "a:1", "-1:1", "0:1,", "none", "0:\u0661"])
def test_wrong_throttled_replicas_are_rejected(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match="PARTITION:BROKER") as refused:
        parse_topic_value(name, text)
    assert refused.value.key == name


def test_keys_that_change_at_run_time_do_so_for_all_brokers() -> None:
    """`kafka-configs` also sets them for one (DynamicBrokerConfig.scala: `cluster-wide`)."""
    modes = {name: BROKER_KEYS[name].update for name in (*HONOURED, *WITHOUT_EFFECT)}
    assert {name for name, mode in modes.items() if mode is Update.CLUSTER_WIDE} == DYNAMIC
    assert Update.PER_BROKER not in modes.values()


def test_no_other_key_of_replication_is_known() -> None:
    """A new row is added to one of the lists above."""
    listed = {*HONOURED, *WITHOUT_EFFECT, *OTHERS}
    found = {name for name in BROKER_KEYS if SUBJECTS.search(name)}
    assert found - listed - {"security.inter.broker.protocol", "sasl.mechanism.inter.broker.protocol"} == set()
    assert {name for name in TOPIC_KEYS if SUBJECTS.search(name)} == set(OF_TOPICS)


@pytest.mark.parametrize("name", ["replica.socket.timeout.ms", "replica.lag.time.max.ms"])
def test_wait_of_followers_must_fit_into_their_limits(name: str) -> None:
    """KafkaConfig.validateValues."""
    with pytest.raises(ConfigError, match=rf"{name} \(400\) must not be below replica.fetch.wait.max.ms \(500\)"):
        BrokerConfig({name: "400"})


@pytest.mark.parametrize("text", ["org.example.Selector", "LeaderSelector"])
def test_another_replica_selector_is_refused(text: str) -> None:
    """A class of Java cannot be loaded, and clients would read from other replicas than the operator wants."""
    with pytest.raises(ConfigError, match=r"allowed is org\.apache\.kafka\.common\.replica\.LeaderSelector, org"):
        BrokerConfig({"replica.selector.class": text})
