"""kafkalite with a TLS listener beside the plaintext one; a test broker, as `serve` has no TLS yet."""

import sys
from collections.abc import Mapping
from pathlib import Path

from perf.brokers.base import HOST, Running, free_port, spawn
from perf.brokers.kafkalite import Kafkalite


class KafkaliteTls(Kafkalite):
    name = "kafkalite-tls"
    title = "kafkalite with TLS"

    def start(self, directory: Path, settings: Mapping[str, str] | None = None) -> Running:
        """As `Broker.start`; the broker has its own settings."""
        directory.mkdir(parents=True, exist_ok=True)
        port, secure = free_port(), free_port()
        command = [sys.executable, "-m", "tests.kit.tls_broker", str(directory), str(port), str(secure)]
        running = spawn(self.name, command, port, directory)
        running.tls_address, running.cafile = f"{HOST}:{secure}", str(directory / "tls" / "ca.pem")
        return running
