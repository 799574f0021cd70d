"""The broker of the tests of SASL and TLS of aiokafka and librdkafka: its listeners, certificates and users."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kafkalite.config.jaas import MODULES
from tests.kit.brokers import Broker, Kafkalite
from tests.kit.certificates import Authority
from tests.kit.ports import free_port
from tests.kit.secured.listener import AUTHORIZER
from tests.kit.tokens import Issuer
from tests.suites.token_endpoint import token_endpoint

KEY_PASSWORD = "abcdefgh"
USER = PASSWORD = "test"
CERTIFICATES, TLS_PORT, SASL_PORT, SASL_TLS_PORT = (
    f"KAFKALITE_SUITE_{each}" for each in ("CERTIFICATES", "TLS_PORT", "SASL_PORT", "SASL_TLS_PORT")
)
PORTS = {TLS_PORT: "SSL", SASL_PORT: "SASL_PLAINTEXT", SASL_TLS_PORT: "SASL_SSL"}
JAAS = {"PLAIN": f' required user_{USER}="{PASSWORD}";', "SCRAM-SHA-256": " required;"}


@contextmanager
def broker_with_listeners(
    directory: Path, settings: Mapping[str, str], kind: type[Kafkalite] = Kafkalite
) -> Iterator[tuple[Broker, dict[str, str]]]:
    """A running broker, or several, with a listener for each protocol; and the variables of the process of the tests.

    Arguments:
        directory: for its data, log and certificates.
        settings: more settings of the broker.
        kind: `KafkaliteCluster` for three brokers; the variables have the ports of the first one.
    """
    broker, certificates, issuer = kind(directory, settings), directory / "tls", Issuer(rsa=True)
    shared = {**tls(certificates), **issuer.publish(directory / "keys.json"), **sasl()}
    ports = [add_listeners(each, shared) for each in broker.processes]
    try:
        broker.start()
        numbers = {variable: str(ports[0][protocol]) for variable, protocol in PORTS.items()}
        with token_endpoint(issuer, USER) as urls:
            yield broker, {CERTIFICATES: str(certificates), **numbers, **urls}
    finally:
        broker.close()


def add_listeners(broker: Kafkalite, settings: Mapping[str, str]) -> dict[str, int]:
    """Give a broker a listener for each protocol; return the port of each."""
    ports = {"PLAINTEXT": broker.port, "SSL": free_port(), "SASL_PLAINTEXT": free_port(), "SASL_SSL": free_port()}
    listeners = ",".join(f"{name}://{broker.host}:{port}" for name, port in ports.items())
    broker.settings |= {"listeners": listeners, **settings}
    return ports


def tls(folder: Path) -> dict[str, str]:
    """Create certificates, under the names that the tests expect; return the settings of the broker."""
    authority = Authority(folder)
    client = authority.issue("client", password=KEY_PASSWORD)
    for each in (client.cert, authority.cert):
        each.with_suffix(".crt").write_bytes(each.read_bytes())
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker").bundle()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.cert),
        "ssl.client.auth": "required",
    }


def sasl() -> dict[str, str]:
    """The settings of logins and ACLs: clients of the plaintext listener are super users."""
    return {
        **{
            f"listener.name.{listener}.{name.lower()}.sasl.jaas.config": MODULES[name] + options
            for listener in ("sasl_plaintext", "sasl_ssl")
            for name, options in JAAS.items()
        },
        "sasl.enabled.mechanisms": ",".join((*JAAS, "OAUTHBEARER")),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
