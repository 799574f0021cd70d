"""Brokers with a TLS listener and one for SCRAM logins beside the plaintext one: kafkalite and Apache Kafka.

Both have the same certificate (P-256) and the same user; all else are their defaults.
"""

from collections.abc import Mapping
from pathlib import Path

from kafkalite.config.jaas import MODULES
from perf.brokers.base import HOST, Broker, BrokerError, Running, free_port
from perf.brokers.kafka import Kafka
from perf.brokers.kafkalite import Kafkalite
from perf.scram_wire import ITERATIONS, MECHANISM, PASSWORD, SALT, USER
from tests.kit import jvm
from tests.kit.certificates import Authority

NAMES = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT")
ATTEMPTS = 5
JAAS = f"listener.name.sasl_plaintext.{MECHANISM.lower()}.sasl.jaas.config"


class Ports:
    """Free ports for the listeners, and the certificate of the broker."""

    def __init__(self, directory: Path) -> None:
        self.plaintext, self.tls, self.sasl, self.controller = (free_port() for _ in range(4))
        authority = Authority(directory / "tls")
        self.cafile, self.store = str(authority.cert), str(authority.issue("broker").bundle())

    def settings(self) -> dict[str, str]:
        """The settings that both brokers have."""
        ports = zip(NAMES, (self.plaintext, self.tls, self.sasl), strict=True)
        listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in ports)
        return {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.store,
            "sasl.enabled.mechanisms": MECHANISM,
            JAAS: f"{MODULES[MECHANISM]} required;",
        }

    def give_to(self, running: Running) -> Running:
        """Add the addresses to a running broker, and create its user."""
        running.tls_address, running.cafile = f"{HOST}:{self.tls}", self.cafile
        running.scram_address = f"{HOST}:{self.sasl}"
        create_user(running)
        return running


def create_user(running: Running) -> None:
    """Create the user of the loads. Raises BrokerError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": running.address, "enable.metrics.push": False, "log_level": 2})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    wanted = UserScramCredentialUpsertion(USER, info, PASSWORD.encode(), SALT)
    for attempt in range(ATTEMPTS):
        try:
            for future in admin.alter_user_scram_credentials([wanted]).values():
                future.result(60.0)
            return
        except KafkaException as error:  # a broker that has just started may close the connection
            if attempt == ATTEMPTS - 1:
                raise BrokerError(f"{running.name}: the user was not created: {error}") from error


class KafkaliteTls(Kafkalite):
    """kafkalite from this checkout."""

    name = "kafkalite-tls"
    title = "kafkalite with TLS and SCRAM"

    def start(self, directory: Path, settings: Mapping[str, str] | None = None) -> Running:
        """As `Broker.start`."""
        directory.mkdir(parents=True, exist_ok=True)
        ports = Ports(directory)
        return ports.give_to(self.start_on(directory, ports.plaintext, {**ports.settings(), **(settings or {})}))


class KafkaTls(Kafka):
    """The current version of Apache Kafka."""

    name = "kafka-tls"
    title = f"Apache Kafka {jvm.CURRENT} with TLS and SCRAM"

    def start(self, directory: Path, settings: Mapping[str, str] | None = None) -> Running:
        """As `Broker.start`."""
        directory.mkdir(parents=True, exist_ok=True)
        ports = Ports(directory)
        own = ports.settings()
        controller = f"{HOST}:{ports.controller}"
        own |= {
            "listeners": f"{own['listeners']},CONTROLLER://{controller}",
            "controller.quorum.voters": f"1@{controller}",
            "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in NAMES) + ",CONTROLLER:PLAINTEXT",
        }
        return ports.give_to(self.start_on(directory, ports.plaintext, {**own, **(settings or {})}))


SECURED: tuple[Broker, ...] = (KafkaliteTls(), KafkaTls())
