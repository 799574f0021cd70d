"""The settings that secure sessions with ZooKeeper: each is honoured, has no effect, or is refused with a reason."""

import pytest

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.keys import ConfigError
from kafkalite.config.table_security import DIGEST_FILE, ZOOKEEPER_SECURITY_KEYS
from kafkalite.config.zookeeper import ZooKeeperSecurity

TLS = {"zookeeper.ssl.client.enable": "true"}
STORES = {"zookeeper.ssl.truststore.location": "/ca.pem", "zookeeper.ssl.keystore.location": "/own.pem"}
ALL_OF_KAFKA = {
    *("zookeeper.set.acl", "zookeeper.ssl.client.enable", "zookeeper.clientCnxnSocket", "zookeeper.ssl.protocol"),
    *(f"zookeeper.ssl.{store}.{of}" for store in ("keystore", "truststore") for of in ("location", "password", "type")),
    *("zookeeper.ssl.enabled.protocols", "zookeeper.ssl.cipher.suites", "zookeeper.ssl.crl.enable"),
    *("zookeeper.ssl.endpoint.identification.algorithm", "zookeeper.ssl.ocsp.enable"),
}


def security(**settings: str) -> ZooKeeperSecurity:
    """Of these settings; names below `zookeeper.`, with underscores."""
    texts = {f"zookeeper.{name.replace('_', '.')}": text for name, text in settings.items()}
    return BrokerConfig({"zookeeper.connect": "zk:2181", **texts}).zookeeper_security


def test_all_keys_of_kafka_have_a_row() -> None:
    assert {key.name for key in ZOOKEEPER_SECURITY_KEYS} == {*ALL_OF_KAFKA, DIGEST_FILE}


def test_without_settings_nothing_is_secured() -> None:
    assert security() == ZooKeeperSecurity(False, None, None, None, ("TLSv1.2",), (), True, None, False)


def test_settings_of_tls_are_honoured() -> None:
    found = BrokerConfig(
        {
            **TLS,
            **STORES,
            "zookeeper.ssl.keystore.password": "secret",
            "zookeeper.ssl.keystore.type": "pem",
            "zookeeper.ssl.truststore.type": "PEM",
            "zookeeper.ssl.enabled.protocols": "TLSv1.3, TLSv1.2",
            "zookeeper.ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            "zookeeper.ssl.endpoint.identification.algorithm": "",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        }
    )
    assert found.without_effect() == ["zookeeper.clientCnxnSocket"]
    assert found.zookeeper_security == ZooKeeperSecurity(
        True, "/ca.pem", "/own.pem", "secret", ("TLSv1.3", "TLSv1.2"), ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",),
        False, None, False,
    )  # fmt: skip


def test_the_password_of_the_key_is_not_shown() -> None:
    shown = repr(security(ssl_client_enable="true", ssl_keystore_location="/own.pem", ssl_keystore_password="geheim"))
    assert shown.startswith("ZooKeeperSecurity(tls_enabled=True, truststore=None, keystore='/own.pem', tls_versions=")
    assert "geheim" not in shown


@pytest.mark.parametrize(("given", "versions"), [("TLSv1.2", ("TLSv1.2",)), ("TLSv1.3", ("TLSv1.3",))])
def test_enabled_versions_are_by_default_that_of_the_protocol(given: str, versions: tuple[str, ...]) -> None:
    assert security(ssl_protocol=given).tls_versions == versions
    assert security(ssl_protocol=given, ssl_enabled_protocols="").tls_versions == versions


@pytest.mark.parametrize("text", ["https", "HTTPS", "Https"])
def test_host_names_are_compared(text: str) -> None:
    assert security(ssl_endpoint_identification_algorithm=text).check_hostname


@pytest.mark.parametrize(
    ("settings", "key", "words"),
    [
        (
            {"zookeeper.ssl.keystore.location": "/own.jks"},
            "zookeeper.ssl.keystore.location",
            r"keystore.location /own.jks: a store of type JKS is not supported, because OpenSSL reads PEM files: ",
        ),
        ({"zookeeper.ssl.truststore.location": "/a.b/ca.p12"}, "zookeeper.ssl.truststore.location", "type PKCS12 is"),
        (
            {"zookeeper.ssl.truststore.location": "/ca", "zookeeper.ssl.truststore.type": "jks"},
            "zookeeper.ssl.truststore.location",
            "type JKS is not supported",
        ),
        ({"zookeeper.ssl.keystore.type": "DER"}, "zookeeper.ssl.keystore.type", "Invalid value DER .*allowed is PEM"),
        ({"zookeeper.ssl.protocol": "TLSv1.1"}, "zookeeper.ssl.protocol", "allowed is TLSv1.2, TLSv1.3"),
        ({"zookeeper.ssl.enabled.protocols": "SSLv3"}, "zookeeper.ssl.enabled.protocols", "list of TLSv1.2, TLSv1.3"),
        (
            {"zookeeper.ssl.endpoint.identification.algorithm": "ldaps"},
            "zookeeper.ssl.endpoint.identification.algorithm",
            "allowed is https, or an empty text",
        ),
        (
            {"zookeeper.ssl.crl.enable": "true"},
            "zookeeper.ssl.crl.enable",
            r"not supported \(Python's ssl downloads no lists of revoked certificates\), and ignoring it is unsafe",
        ),
        ({"zookeeper.ssl.ocsp.enable": "true"}, "zookeeper.ssl.ocsp.enable", "asks no OCSP server"),
        (
            {"zookeeper.set.acl": "true"},
            "zookeeper.set.acl",
            "needs an identity that owns the nodes: set kafkalite.zookeeper.digest.file, or zookeeper.ssl.client",
        ),
    ],
)
def test_settings_are_refused_with_a_reason(settings: dict[str, str], key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        BrokerConfig({**TLS, **settings})
    assert caught.value.key == key


def test_stores_have_no_effect_without_tls_as_in_kafka() -> None:
    found = security(ssl_keystore_location="/own.jks", ssl_truststore_location="/ca.pem")
    assert found.keystore is None and found.truststore is None


def test_a_digest_or_a_certificate_is_an_identity() -> None:
    assert BrokerConfig({"zookeeper.set.acl": "true", DIGEST_FILE: "/d"}).zookeeper_security.set_acl
    assert BrokerConfig({"zookeeper.set.acl": "true", **TLS, **STORES}).zookeeper_security.set_acl
    with pytest.raises(ConfigError, match="needs an identity"):
        BrokerConfig({"zookeeper.set.acl": "true", **STORES})


@pytest.mark.parametrize("settings", [TLS, {DIGEST_FILE: "/d"}, {"zookeeper.set.acl": "true", DIGEST_FILE: "/d"}])
def test_a_served_tree_cannot_be_secured(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"is for zookeeper\.connect: brokers with kafkalite\.coordination\.dir"):
        BrokerConfig({"kafkalite.coordination.directory": "/shared", **settings})
