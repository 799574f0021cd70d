"""How listeners are secured: values of listeners and mechanisms, contradictions, and no secret in a text."""

import pytest

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.describe_and_alter import describe_broker
from kafkalite.config.keys import ConfigError
from kafkalite.config.security import ListenerSecurity, listener_security
from kafkalite.model import Endpoint

SECRET = "hunter2"
MAP = "listener.security.protocol.map"
NAMES = {MAP: "PLAINTEXT:PLAINTEXT,IN:SSL,OUT:SASL_SSL", "listeners": "PLAINTEXT://h:9092"}
STORE = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/broker.pem"}


def security(protocol: str, settings: dict[str, str]) -> ListenerSecurity:
    """The security of a listener IN or OUT with these settings."""
    name = "IN" if protocol == "SSL" else "OUT"
    return listener_security(BrokerConfig({**NAMES, **settings}).values, Endpoint(name, "h", 1, protocol))


def test_a_listener_without_security_has_default_values() -> None:
    config = BrokerConfig({**NAMES, **STORE})
    assert config.listener_security("PLAINTEXT") == ListenerSecurity("PLAINTEXT", "PLAINTEXT")
    assert config.listener_security("PLAINTEXT") == ListenerSecurity("PLAINTEXT", "PLAINTEXT")


def test_the_value_of_a_listener_precedes_that_of_the_broker() -> None:
    tls = security("SSL", {**STORE, "ssl.client.auth": "required", "listener.name.in.ssl.client.auth": "requested"}).tls
    assert tls is not None and tls.client_auth == "requested" and tls.key_store is not None
    assert tls.key_store.location == "/broker.pem"
    unset = security("SSL", {**STORE, "listener.name.in.ssl.keystore.location": ""}).tls
    assert unset is not None and unset.key_store is None


def test_mechanisms_have_values_of_their_own() -> None:
    found = security(
        "SASL_SSL",
        {
            **STORE,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "connections.max.reauth.ms": "7",
            "listener.name.out.plain.connections.max.reauth.ms": "9",
            "listener.name.out.plain.sasl.jaas.config": SECRET,
            "listener.name.out.sasl.server.max.receive.size": "1000",
            "listener.name.out.max.connections": "5",
        },
    )
    assert found.mechanisms == ("PLAIN", "SCRAM-SHA-256") and found.jaas == {"PLAIN": SECRET}
    assert found.reauth_ms == {"PLAIN": 9, "SCRAM-SHA-256": 7}
    assert (found.receive_bytes_max, found.connections_max, found.uses_sasl) == (1000, 5, True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ssl.keystore.location": "/k.jks"}, "keytool -importkeystore -srckeystore /k.jks -destkeystore /k.p12"),
        ({"ssl.keystore.type": "DER", "ssl.keystore.location": "/k"}, "allowed is PEM, PKCS12"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "K"}, "certificate.chain is missing"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "K"}, "ssl.keystore.key is missing"),
        ({**STORE, "ssl.keystore.password": SECRET}, "PEM files have no password; encrypted keys need ssl.key.pass"),
        ({**STORE, "ssl.keystore.key": "K", "ssl.keystore.certificate.chain": "C"}, "choose one"),
        ({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k.p12"}, "ssl.keystore.password is missing"),
        ({"ssl.keystore.password": SECRET}, "ssl.keystore.location is not"),
        ({"ssl.truststore.certificates": "C"}, "set ssl.truststore.type=PEM"),
        ({"ssl.truststore.type": "PKCS12", "ssl.truststore.certificates": "C"}, "must be PEM"),
    ],
)
def test_contradictions_name_the_key(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        security("SSL", settings)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("listener.name.other.ssl.client.auth", "there is no listener other"),
        ("listener.name.IN.ssl.client.auth", "there is no listener IN"),
        ("listener.name.in.num.partitions", "is no setting of a listener: set num.partitions for the whole broker"),
        ("listener.name.in.ssl.keystore.locatoin", "did you mean ssl.keystore.location"),
        ("sasl.jaas.config", "write listener.name.NAME.MECHANISM.sasl.jaas.config"),
    ],
)
def test_keys_that_would_have_no_effect_are_refused(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BrokerConfig({**NAMES, name: "required"})


def test_passwords_are_in_no_text_and_no_answer() -> None:
    """CVE-2019-12399 is such an answer: a description with the value of a sensitive config."""
    secrets = {
        "ssl.keystore.key": SECRET,
        "ssl.keystore.certificate.chain": SECRET,
        "ssl.truststore.certificates": SECRET,
        "ssl.key.password": SECRET,
        "listener.name.in.ssl.key.password": SECRET,
        "listener.name.out.plain.sasl.jaas.config": SECRET,
    }
    own = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM", "sasl.enabled.mechanisms": "PLAIN"}
    config = BrokerConfig({**NAMES, **own, **secrets})
    for protocol, listener in (("SSL", "IN"), ("SASL_SSL", "OUT")):
        found = listener_security(config.values, Endpoint(listener, "h", 1, protocol))
        assert SECRET not in repr(found) and found.tls is not None
    assert SECRET not in repr(config)
    settings = describe_broker(config)
    assert SECRET not in repr(settings)
    assert {each.name for each in settings if each.sensitive} >= secrets.keys()


def test_client_certificates_with_sasl_need_a_setting_of_the_listener() -> None:
    """As in Kafka (ChannelBuilders.java)."""
    for name, expected in (("ssl.client.auth", "none"), ("listener.name.out.ssl.client.auth", "required")):
        tls = security("SASL_SSL", {**STORE, name: "required"}).tls
        assert tls is not None and tls.client_auth == expected


def test_additional_listeners_between_brokers_are_listeners() -> None:
    key = "kafkalite.inter.broker.additional.listeners"
    assert BrokerConfig({**NAMES, key: "PLAINTEXT"}).kafkalite_inter_broker_additional_listeners == ("PLAINTEXT",)
    for name in ("IN", "plaintext"):
        with pytest.raises(ConfigError, match=f"{name} is none of the listeners"):
            BrokerConfig({**NAMES, key: name})


@pytest.mark.parametrize(
    ("listeners", "additional", "exempt"),
    [
        (["PLAINTEXT"], "", []),
        (["PLAINTEXT", "IN"], "", ["PLAINTEXT"]),
        (["PLAINTEXT", "IN"], "PLAINTEXT,IN", ["PLAINTEXT"]),
        (["PLAINTEXT", "IN", "OUT"], "IN", ["PLAINTEXT", "IN"]),
    ],
)
def test_listeners_between_brokers_have_no_limits_beside_those_of_clients(
    listeners: list[str], additional: str, exempt: list[str]
) -> None:
    settings = {
        "listeners": ",".join(f"{name}://:{port}" for port, name in enumerate(listeners, 9092)),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
        "inter.broker.listener.name": "PLAINTEXT",
        "kafkalite.inter.broker.additional.listeners": additional,
    }
    config = BrokerConfig(settings)
    assert config.exempt_listeners == set(exempt)
    assert config.listeners_between_brokers == {"PLAINTEXT", *filter(None, additional.split(","))}
