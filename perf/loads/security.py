"""What TLS and logins cost the broker: handshakes, logins by SCRAM, idle connections."""

import socket
import ssl
import time
from abc import abstractmethod
from concurrent.futures import ThreadPoolExecutor

from perf.brokers.base import HOST, Running
from perf.errors import VerificationError
from perf.loads.base import CpuMeter, Figure, Load, Sample, Trial
from perf.loads.process import IdleConnections
from perf.loads.rdkafka import SECURED
from perf.scram_wire import log_in
from perf.wire import api_versions, call, connect

THREADS = 4
WARM_UP = 3_000  # Java compiles


class Connections(Load):
    """New connections, some at a time, each of which is served once and closed."""

    figures = (
        Figure("per_cpu_s", "per CPU second of the broker", "", "higher"),
        Figure("per_s", "per second", "", "higher"),
    )
    brokers = SECURED
    group = "security"

    @abstractmethod
    def visit(self, broker: Running) -> None:
        """Connect, get a response, leave. Raises VerificationError, OSError."""

    def prepare(self, trial: Trial) -> None:
        self._visits(trial.broker, trial.scaled(WARM_UP, 100))

    def run(self, trial: Trial) -> Sample:
        count, began = trial.scaled(3_000, 300), time.perf_counter()
        with CpuMeter(trial.broker) as cpu:
            self._visits(trial.broker, count)
        return {"per_cpu_s": count / cpu.seconds, "per_s": count / (time.perf_counter() - began)}

    def _visits(self, broker: Running, count: int) -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(self.visit, [broker] * count):
                pass


class Handshakes(Connections):
    name = "tls-handshakes"
    title = "TLS 1.3 handshakes (P-256, not resumed), one ApiVersions each, 4 at a time"

    def __init__(self) -> None:
        self._contexts: dict[str, ssl.SSLContext] = {}

    def visit(self, broker: Running) -> None:
        if broker.cafile not in self._contexts:
            self._contexts[broker.cafile] = ssl.create_default_context(cafile=broker.cafile)
        with secured(broker, self._contexts[broker.cafile]) as connection:
            if connection.version() != "TLSv1.3":
                raise VerificationError(f"{broker.name}: {connection.version()}")


class Logins(Connections):
    name = "scram-logins"
    title = "logins by SCRAM-SHA-512 without TLS, 4 at a time"

    def visit(self, broker: Running) -> None:
        host, port = broker.scram_address.split(":")
        with connect(host, int(port)) as connection:
            if error := log_in(connection):
                raise VerificationError(f"{broker.name}: a login failed with error {error}")
            call(connection, api_versions(9))


class IdleTlsConnections(IdleConnections):
    name = "tls-connections"
    title = "memory per idle TLS connection (5,000; quick: 1,000), each having asked ApiVersions once"
    brokers = SECURED
    group = "security"

    def run(self, trial: Trial) -> Sample:
        self._context: ssl.SSLContext | None = None
        return super().run(trial)

    def connect(self, broker: Running) -> socket.socket:
        """A TLS connection that has been served."""
        if self._context is None:
            self._context = ssl.create_default_context(cafile=broker.cafile)
        return secured(broker, self._context)


def secured(broker: Running, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A TLS connection that has been served."""
    plain = connect(HOST, int(broker.tls_address.split(":")[1]))
    found = context.wrap_socket(plain, server_hostname=HOST)
    call(found, api_versions(1))
    return found


LOADS = (Handshakes(), Logins(), IdleTlsConnections())
