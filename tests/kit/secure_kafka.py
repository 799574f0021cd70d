"""Apache Kafka 4.4 with listeners for TLS and SASL, beside the plaintext one of the test kit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kafkalite.net.client import ClientConnection
from kafkalite.net.sasl.scram import HASHES
from kafkalite.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from tests.kit import jvm
from tests.kit.brokers import KRAFT_SETTINGS
from tests.kit.certificates import Authority
from tests.kit.ports import free_port

USER, PASSWORD = "alice", "correct horse"
UNICODE_USER, UNICODE_PASSWORD = "bob", "soft\u00adhyphen \ufb01 \u212b"  # SASLprep would change each of them
SCRAM_IDS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
ITERATIONS = 8_192
SALT = b"salt of the test"
RENEWED_MS = 1_500
_LOGIN = "org.apache.kafka.common.security"


class SecureKafka(NamedTuple):
    """The addresses of the listeners.

    Attributes:
        authority: of the broker's certificate, and of those that it accepts.
        plaintext, tls, sasl_ssl, sasl_plaintext: by security protocol.
        renewed: SASL_SSL with sessions of `RENEWED_MS`.
        mutual: TLS that requires a certificate of the client.
        expired: TLS with an expired certificate of the broker.
        named: TLS with a certificate for another host.
    """

    authority: Authority
    plaintext: str
    tls: str
    sasl_ssl: str
    sasl_plaintext: str
    renewed: str
    mutual: str
    expired: str
    named: str


LISTENERS = {
    "tls": "SSL",
    "sasl_ssl": "SASL_SSL",
    "sasl_plaintext": "SASL_PLAINTEXT",
    "renewed": "SASL_SSL",
    "mutual": "SSL",
    "expired": "SSL",
    "named": "SSL",
}


@contextmanager
def secure_kafka(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[SecureKafka]:
    """A running Apache Kafka 4.4 with SCRAM users.

    Arguments:
        directory: for its data and certificates.
        settings: more settings of the broker.
    """
    authority = Authority(directory / "tls")
    ports = {name: free_port() for name in ("plaintext", "controller", *LISTENERS)}
    overrides = {**KRAFT_SETTINGS, **_listeners(ports), **_tls(authority), **_sasl(), **(settings or {})}
    port = ports["plaintext"]
    with jvm.start_kafka(jvm.CURRENT, directory, heap="512m", port=port, overrides=overrides) as broker:
        yield SecureKafka(authority, broker.address, *(f"{jvm.HOST}:{ports[name]}" for name in LISTENERS))


def _listeners(ports: Mapping[str, int]) -> dict[str, str]:
    protocols = {name.upper(): protocol for name, protocol in LISTENERS.items()}
    own = [f"{name.upper()}://{jvm.HOST}:{ports[name]}" for name in LISTENERS]
    advertised = [f"PLAINTEXT://{jvm.HOST}:{ports['plaintext']}", *own]
    controller = f"{jvm.HOST}:{ports['controller']}"
    mapped = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **protocols}
    return {
        "listeners": ",".join([*advertised, f"CONTROLLER://{controller}"]),
        "advertised.listeners": ",".join(advertised),
        "controller.quorum.voters": f"1@{controller}",
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in mapped.items()),
    }


def _tls(authority: Authority) -> dict[str, str]:
    valid = authority.issue("broker").bundle()
    expired = authority.issue("expired", days=-1).bundle()
    named = authority.issue("named", "DNS:broker.example").bundle()
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(valid),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.cert),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.expired.ssl.keystore.type": "PEM",
        "listener.name.expired.ssl.keystore.location": str(expired),
        "listener.name.named.ssl.keystore.type": "PEM",
        "listener.name.named.ssl.keystore.location": str(named),
    }


def _sasl() -> dict[str, str]:
    jaas = {
        "plain": f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        "scram-sha-256": f"{_LOGIN}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{_LOGIN}.scram.ScramLoginModule required;",
        "oauthbearer": f'{_LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
    }
    found = {"sasl.enabled.mechanisms": ",".join(name.upper() for name in jaas)}
    for listener in ("sasl_ssl", "sasl_plaintext", "renewed"):
        found |= {f"listener.name.{listener}.{name}.sasl.jaas.config": each for name, each in jaas.items()}
    return {**found, "listener.name.renewed.connections.max.reauth.ms": str(RENEWED_MS)}


async def create_users(address: str) -> None:
    """Create the SCRAM users, as Kafka's tools do: without SASLprep."""
    host, port = address.split(":")
    async with ClientConnection(host, int(port)) as connection:
        for mechanism in SCRAM_IDS:  # a request may change a user once
            users = [_user(mechanism, USER, PASSWORD), _user(mechanism, UNICODE_USER, UNICODE_PASSWORD)]
            answer = await connection.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=users))
            assert [each.error_code for each in answer.results] == [0, 0], answer


def _user(mechanism: str, user: str, password: str) -> AlterUserScramCredentialsRequest.ScramCredentialUpsertion:
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user,
        mechanism=SCRAM_IDS[mechanism],
        iterations=ITERATIONS,
        salt=SALT,
        salted_password=hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), SALT, ITERATIONS),
    )
