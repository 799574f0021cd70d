"""kafkalite from this checkout, through its command line."""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from kafkalite._version import VERSION
from perf.brokers.base import HOST, Broker, Running, free_port, spawn


class Kafkalite(Broker):
    name = "kafkalite"
    title = "kafkalite"

    def missing(self) -> str | None:
        for module in ("kafkalite._speedups.net.epoll", "kafkalite.server.broker", "kafkalite.cli.serve"):
            if importlib.util.find_spec(module) is None:
                return f"{module} is not built: run `make build`"
        return None

    def version(self) -> str:
        return VERSION

    def start(self, directory: Path, settings: Mapping[str, str] | None = None) -> Running:
        port = free_port()
        return self.start_on(directory, port, {"listeners": f"PLAINTEXT://{HOST}:{port}", **(settings or {})})

    def start_on(self, directory: Path, port: int, settings: Mapping[str, str]) -> Running:
        """As `start`, with settings that name the listeners.

        Arguments:
            directory: of the broker.
            port: of the plaintext listener.
            settings: under Kafka's names.
        """
        directory.mkdir(parents=True, exist_ok=True)
        chosen = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "kafkalite", "serve", "--data", str(directory / "data"), *chosen]
        return spawn(self.name, command, port, directory)
