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
        directory.mkdir(parents=True, exist_ok=True)
        port = free_port()
        command = [sys.executable, "-m", "kafkalite", "serve", "--listen", f"{HOST}:{port}"]
        chosen = [part for key, value in (settings or {}).items() for part in ("--set", f"{key}={value}")]
        return spawn(self.name, [*command, "--data", str(directory / "data"), *chosen], port, directory)
