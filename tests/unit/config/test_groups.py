"""What the keys of groups and of the offsets topic may be: Kafka's limits, and what contradicts each other."""

import pytest

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.definitions import BROKER_KEYS, TOPIC_KEYS
from kafkalite.config.keys import INT_MAX, ConfigError
from kafkalite.coordinators.transaction.settings import machine_settings
from kafkalite.model import PARTITIONS_PER_REQUEST_MAX
from kafkalite.state.transactions.machine import TransactionSettings

# Least and greatest value of each, as in Apache Kafka 4.3 unless a comment says otherwise.
LIMITS = {
    "group.max.size": (1, INT_MAX),
    "group.coordinator.threads": (1, INT_MAX),
    "group.coordinator.background.threads": (1, INT_MAX),
    "group.coordinator.append.linger.ms": (-1, INT_MAX),
    "group.coordinator.cached.buffer.max.bytes": (524_288, INT_MAX),
    "group.consumer.max.size": (1, INT_MAX),
    "group.consumer.regex.refresh.interval.ms": (10_000, INT_MAX),
    "group.share.max.size": (1, 1000),
    "group.share.delivery.count.limit": (2, 10),
    "group.share.record.lock.duration.ms": (15_000, 60_000),
    "group.share.partition.max.record.locks": (100, 4000),
    "group.streams.num.standby.replicas": (0, 2),
    "offsets.topic.num.partitions": (1, 10_000),  # Kafka starts with more, too, and cannot make the topic
    "offsets.topic.replication.factor": (1, 2**15 - 1),
    "offsets.topic.segment.bytes": (1_048_576, INT_MAX),  # Kafka starts with less, too, and cannot make the topic
    "offsets.topic.compression.codec": (0, 4),
    "offsets.retention.minutes": (1, INT_MAX),
    "offsets.retention.check.interval.ms": (1, 2**63 - 1),
    "offsets.commit.timeout.ms": (1, INT_MAX),
    "offsets.load.buffer.size": (1, INT_MAX),
    "transactional.id.expiration.ms": (1, INT_MAX),
    "transaction.max.timeout.ms": (1, INT_MAX),
    "transaction.state.log.num.partitions": (1, 10_000),
    "transaction.state.log.segment.bytes": (1_048_576, INT_MAX),
    "add.partitions.to.txn.retry.backoff.ms": (1, INT_MAX),
    "add.partitions.to.txn.retry.backoff.max.ms": (0, INT_MAX),
    # Each lies between two others, and the heartbeats below the sessions.
    "group.consumer.session.timeout.ms": (45_000, 60_000),
    "group.consumer.heartbeat.interval.ms": (5000, 15_000),
    "group.consumer.assignment.interval.ms": (0, 15_000),
    "group.share.session.timeout.ms": (45_000, 60_000),
    "group.share.heartbeat.interval.ms": (5000, 15_000),
    "group.share.assignment.interval.ms": (0, 15_000),
    "group.streams.session.timeout.ms": (45_000, 60_000),
    "group.streams.heartbeat.interval.ms": (5000, 15_000),
    "group.streams.assignment.interval.ms": (0, 15_000),
}


@pytest.mark.parametrize("name", LIMITS)
def test_group_values_are_limited_by_broker_configs(name: str) -> None:
    low, high = LIMITS[name]
    for value in (low, high):
        assert BrokerConfig({name: str(value)}).values[name] == value
    for value in (low - 1, high + 1):
        with pytest.raises(ConfigError) as caught:
            BrokerConfig({name: str(value)})
        assert name in str(caught.value) and str(value) in str(caught.value)


def test_accepted_offsets_topic_configs_can_be_created() -> None:
    """The limits are those of the topic's own creation, or the start would promise what no client gets."""
    for key in ("offsets.topic.segment.bytes", "transaction.state.log.segment.bytes"):
        assert BROKER_KEYS[key].low == TOPIC_KEYS["segment.bytes"].low
    assert BROKER_KEYS["offsets.topic.num.partitions"].high == PARTITIONS_PER_REQUEST_MAX


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_session_timeout_must_exceed_heartbeat_interval(kind: str) -> None:
    heartbeat, longest = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.max.heartbeat.interval.ms"
    assert BrokerConfig({heartbeat: "44999", longest: "50000"})
    with pytest.raises(ConfigError, match=rf"{heartbeat} \(45000\) must be below group.{kind}.session"):
        BrokerConfig({heartbeat: "45000", longest: "50000"})


def test_minimum_session_timeout_must_not_exceed_maximum() -> None:
    with pytest.raises(ConfigError, match=r"group\.max\.session\.timeout\.ms \(4000\) must not be below"):
        BrokerConfig({"group.max.session.timeout.ms": "4000"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("group.consumer.assignors", ""),
        ("group.consumer.assignors", "uniform,best"),
        ("group.consumer.migration.policy", "sideways"),
        ("group.coordinator.rebalance.protocols", "consumer"),
        ("group.coordinator.rebalance.protocols", ""),
        ("group.coordinator.rebalance.protocols", "classic,Consumer"),
    ],
)
def test_invalid_assignor_and_protocol_names_are_rejected(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        BrokerConfig({name: text})


def test_migration_policy_is_case_insensitive() -> None:
    assert BrokerConfig({"group.consumer.migration.policy": "Upgrade"}).group_consumer_migration_policy == "upgrade"


def test_two_phase_commit_is_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"transaction\.two\.phase\.commit\.enable is not supported \(every transaction"
    ):
        BrokerConfig({"transaction.two.phase.commit.enable": "true"})
    assert BrokerConfig({"transaction.two.phase.commit.enable": "false"})


def test_settings_of_transactions_have_the_configured_values() -> None:
    config = BrokerConfig(
        {
            "transactional.id.expiration.ms": "1",
            "transaction.max.timeout.ms": "2",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "3",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "4",
        }
    )
    assert machine_settings(config) == TransactionSettings(2, 1, 3, 4)
    assert machine_settings(BrokerConfig({})) == TransactionSettings()
