"""The keys of ZooKeeper and of the controller in Kafka 3.9: each is honoured, refused, or says why it has no effect.

`test_replication_keys` has those of replication. Sources: ZkConfigs.java, ServerConfigs.java and KafkaConfig.scala of
Apache Kafka 3.9.
"""

from __future__ import annotations

import pytest

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.definitions import BROKER_KEYS
from kafkalite.config.keys import ConfigError, Support

HONOURED = (
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
    "zookeeper.max.in.flight.requests",
    "zookeeper.session.timeout.ms",
    "zookeeper.set.acl",
    "zookeeper.ssl.cipher.suites",
    "zookeeper.ssl.client.enable",
    "zookeeper.ssl.enabled.protocols",
    "zookeeper.ssl.endpoint.identification.algorithm",
    "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.protocol",
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.truststore.type",
    "broker.id",
    "broker.id.generation.enable",
    "broker.rack",
    "reserved.broker.max.id",
    "inter.broker.listener.name",
    "controller.socket.timeout.ms",
    "controller.quota.window.num",
    "controller.quota.window.size.seconds",
    "delete.topic.enable",
    "auto.create.topics.enable",
)
REFUSED = {
    "zookeeper.metadata.migration.enable": "true",
    "zookeeper.ssl.crl.enable": "true",
    "zookeeper.ssl.ocsp.enable": "true",
    "control.plane.listener.name": "CONTROLLER",
}
NOT_ENFORCED = "not enforced yet"
WITHOUT_EFFECT = {
    "zookeeper.clientCnxnSocket": "Java class",
    "zookeeper.ssl.truststore.password": "PEM files have none",
    "zookeeper.metadata.migration.min.batch.size": "zookeeper.metadata.migration.enable is refused",
    "initial.broker.registration.timeout.ms": "KRaft",
    "broker.heartbeat.interval.ms": "KRaft",
    "broker.session.timeout.ms": "KRaft",
}


@pytest.mark.parametrize("name", HONOURED)
def test_honoured_keys(name: str) -> None:
    """`test_definitions` proves that code reads them."""
    assert BROKER_KEYS[name].support is Support.HONOURED


@pytest.mark.parametrize(("name", "text"), REFUSED.items())
def test_refused_keys_name_themselves(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} is not supported( \(.+\))?, and ignoring it is unsafe"):
        BrokerConfig({name: text})


@pytest.mark.parametrize(("name", "reason"), WITHOUT_EFFECT.items())
def test_keys_without_effect_give_the_reason(name: str, reason: str) -> None:
    key = BROKER_KEYS[name]
    assert key.support is Support.WITHOUT_EFFECT and reason in key.doc


def test_no_other_key_of_zookeeper_or_the_controller_is_known() -> None:
    """A new row is added to one of the lists above."""
    listed = {*HONOURED, *REFUSED, *WITHOUT_EFFECT}
    kinds = ("zookeeper.", "controller.socket", "controller.quota.window")
    assert [name for name in BROKER_KEYS if name.startswith(kinds) and name not in listed] == []
