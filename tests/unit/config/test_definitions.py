"""The tables: each key once, defaults within their own limits, Kafka's values, and classes that are true."""

import ast
from dataclasses import fields
from pathlib import Path

import pytest

import kafkalite
from kafkalite.config.broker import BrokerConfig, from_row, snapshot
from kafkalite.config.definitions import BROKER_KEYS, TOPIC_KEYS, by_name, nearest
from kafkalite.config.describe_and_alter import AT_START
from kafkalite.config.group import GROUP_CONFIG_KEYS
from kafkalite.config.group import LIMITS as GROUP_LIMITS
from kafkalite.config.keys import ConfigError, Key, Support, Type, Update
from kafkalite.config.table_dynamic import LISTENER_ONLY
from kafkalite.config.topic import OF_ROW, TopicConfig, with_defaults_of_rows

EVERY = [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]
ATTRIBUTES = {field.name for field in fields(TopicConfig)}
PACKAGE = Path(kafkalite.__file__).parent

# Attributes of the snapshots whose key has another name.
ALIASES = {
    "log_dir": "log_dirs",
    "node_id": "broker_id",
    "password_encoder_secret": "passwords",
    "password_encoder_old_secret": "passwords",
    "password_encoder_keyfactory_algorithm": "passwords",
    "password_encoder_cipher_algorithm": "passwords",
    "password_encoder_key_length": "passwords",
    "password_encoder_iterations": "passwords",
    "kafkalite_inter_broker_additional_listeners": "listeners_between_brokers",
    "listener_security_protocol_map": "listeners",
    "principal_builder_class": "principal_builders",
    "zookeeper_set_acl": "set_acl",
    "zookeeper_ssl_cipher_suites": "cipher_suites",
    "zookeeper_ssl_client_enable": "tls_enabled",
    "zookeeper_ssl_enabled_protocols": "tls_versions",
    "zookeeper_ssl_endpoint_identification_algorithm": "check_hostname",
    "zookeeper_ssl_keystore_location": "keystore",
    "zookeeper_ssl_keystore_password": "keystore_password",
    "zookeeper_ssl_keystore_type": "keystore",
    "zookeeper_ssl_protocol": "tls_versions",
    "zookeeper_ssl_truststore_location": "truststore",
    "zookeeper_ssl_truststore_type": "truststore",
    "kafkalite_zookeeper_digest_file": "digest_file",
}


@pytest.mark.parametrize("key", EVERY, ids=lambda key: key.name)
def test_every_default_is_valid_for_its_key(key: Key) -> None:
    text = key.text(key.default)
    assert text is None or key.parse(text) == key.default
    assert key.doc.endswith(".") and "\n" not in key.doc
    assert "allowed is " in key.allows()


def test_topic_keys_have_broker_keys_as_defaults() -> None:
    for key in TOPIC_KEYS.values():
        for synonym in key.synonyms:
            assert BROKER_KEYS[synonym.name].support == key.support, synonym.name
    assert {name.replace(".", "_") for name in TOPIC_KEYS} == ATTRIBUTES - {"unreadable"}


def test_topic_without_configs_has_kafkas_defaults() -> None:
    assert BrokerConfig().topic_defaults == TopicConfig()


def test_every_key_has_one_row() -> None:
    with pytest.raises(ValueError, match="x is defined twice"):
        by_name([Key("x", Type.INT, 1, "One."), Key("x", Type.INT, 2, "Two.")])


def test_broker_defaults_are_kafkas() -> None:
    """A sample of server.properties as Kafka 4.3 documents it."""
    defaults = {
        "listeners": "PLAINTEXT://:9092", "socket.request.max.bytes": "104857600", "log.segment.bytes": "1073741824",
        "log.retention.hours": "168", "log.retention.ms": None, "num.partitions": "1", "message.max.bytes": "1048588",
        "log.message.timestamp.after.max.ms": "3600000", "log.message.timestamp.before.max.ms": str(2**63 - 1),
        "fetch.max.bytes": "57671680", "log.cleanup.policy": "delete", "offsets.topic.num.partitions": "50",
        "group.initial.rebalance.delay.ms": "3000", "connections.max.idle.ms": "600000",
        "auto.create.topics.enable": "true",
        "log.index.size.max.bytes": "10485760", "log.segment.delete.delay.ms": "60000", "compression.type": "producer",
        "log.cleaner.min.cleanable.ratio": "0.5", "max.incremental.fetch.session.cache.slots": "1000",
    }  # fmt: skip
    assert {name: BROKER_KEYS[name].text(BROKER_KEYS[name].default) for name in defaults} == defaults


def test_attribute_without_a_row_is_found() -> None:
    class Misspelt:
        num_partitons: int = from_row()

    with pytest.raises(TypeError, match=r"Misspelt\.num_partitons: no table has a row num\.partitons"):
        snapshot(Misspelt)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("retention_ms", id="row without an attribute"),
        pytest.param("retention_hours", id="attribute without a row"),
    ],
)
def test_row_of_a_topic_key_and_its_attribute_are_found_if_one_is_missing(name: str) -> None:
    attributes = dict.fromkeys((ATTRIBUTES - {"unreadable"}) ^ {name}, OF_ROW)
    with pytest.raises(TypeError, match=f"Incomplete and the rows of topic keys differ in {name}$"):
        with_defaults_of_rows(type("Incomplete", (), attributes))


def test_every_attribute_has_the_value_of_its_row() -> None:
    config = BrokerConfig({"num.partitions": "7", "group.consumer.assignors": "range"})
    assert {name: getattr(config, name) for name in config.row_names} == {
        name: config.values[name.replace("_", ".")] for name in config.row_names
    }
    assert (config.num_partitions, config.group_consumer_assignors) == (7, ("range",))


OF_LISTENERS = (
    "kafkalite_sasl_oauthbearer_",
    "ssl_",
    "sasl_",
    "connections_max_reauth_ms",
    "security_inter_broker_protocol",
)


def attributes_read() -> set[str]:
    """Every attribute that anything outside the room of configuration reads, in Python or Cython."""
    names: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        if "config" not in path.relative_to(PACKAGE).parts:
            tree = ast.parse(path.read_text())
            names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return names


def test_honoured_keys_are_used_by_code() -> None:
    """A key that no code reads is not honoured, and its row must not claim it."""
    read = attributes_read()
    honoured = {key.name.replace(".", "_") for key in EVERY if key.support is Support.HONOURED}
    own_of_others = (*TOPIC_KEYS.values(), *GROUP_CONFIG_KEYS.values())
    behind = {synonym.name.replace(".", "_") for key in own_of_others for synonym in key.synonyms}
    behind |= {name.replace(".", "_") for limits in GROUP_LIMITS.values() for name in limits}
    behind |= {name for name in honoured if name.startswith(OF_LISTENERS)}  # attributes of ListenerSecurity
    names = {ALIASES.get(name, name) for name in honoured - behind} | (honoured & ATTRIBUTES)
    assert sorted(name for name in names if name not in read) == []


def test_keys_without_effect_are_used_by_no_code() -> None:
    idle = {key.name.replace(".", "_") for key in EVERY if key.support is Support.WITHOUT_EFFECT}
    assert sorted(idle & attributes_read()) == []


def test_dynamic_keys_are_topic_defaults_or_applied_at_run_time() -> None:
    changeable = {
        name
        for name, key in BROKER_KEYS.items()
        if key.update is not Update.READ_ONLY and key.support is Support.HONOURED
    }
    behind = {synonym.name for key in TOPIC_KEYS.values() for synonym in key.synonyms}
    live = {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "num.replica.fetchers",
        "producer.id.expiration.ms",
        "group.consumer.assignment.interval.ms",
        "transaction.partition.verification.enable",
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        *LISTENER_ONLY,
    }
    assert changeable - behind - AT_START == live
    assert changeable >= AT_START


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("num.partitions", "0", "allowed is a whole number between 1 and 2147483647"),
        ("num.partitions", "1.5", "allowed is a whole number"),
        ("num.partitions", "２", "allowed is a whole number"),
        ("num.partitions", "9" * 5000, "allowed is a whole number"),
        ("log.retention.bytes", str(2**63), "between -9223372036854775808 and 9223372036854775807"),
        ("auto.create.topics.enable", "yes", "allowed is true or false"),
        ("compression.type", "brotli", "allowed is uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("log.cleanup.policy", "delete,erase", "allowed is a comma-separated list of compact, delete"),
        ("log.cleanup.policy", "delete,delete", "allowed is a comma-separated list of compact, delete"),
        ("log.cleaner.min.cleanable.ratio", "1.1", "allowed is a number between 0 and 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "allowed is a number between 0 and 1"),
        ("log.segment.bytes", "1000", "between 1048576 and 2147483647"),
    ],
)
def test_errors_of_wrong_values_name_key_and_allowed_values(name: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BROKER_KEYS[name].parse(text)
    assert caught.value.key == name and caught.value.code == 40
    assert str(caught.value).startswith(f"Invalid value {text} for configuration {name}: ")
    assert words in str(caught.value)


def test_values_are_parsed_as_by_kafka() -> None:
    assert BROKER_KEYS["auto.create.topics.enable"].parse(" FALSE ") is False
    assert BROKER_KEYS["log.retention.bytes"].parse("-1") == -1
    assert BROKER_KEYS["log.cleanup.policy"].parse("compact, delete") == ("compact", "delete")
    assert BROKER_KEYS["log.cleanup.policy"].parse("") == ()
    assert BROKER_KEYS["log.cleaner.min.cleanable.ratio"].parse("0.25") == 0.25


def test_nearest_known_key() -> None:
    assert nearest("log.retention.hour", BROKER_KEYS) == "log.retention.hours"
    assert nearest("completely.different", BROKER_KEYS) is None
