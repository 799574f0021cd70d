"""What a load sees of a broker: a process with an address. One module beside this one per broker."""

import contextlib
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kit.jvm import HOST, api_versions_answers, cache_directory
from tests.kit.ports import free_port
from tests.kit.starting import killed_on_failure

__all__ = ["HOST", "Broker", "BrokerError", "Running", "cache_directory", "free_port", "spawn"]

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0


class BrokerError(Exception):
    """A broker could not be built, started or stopped; the text names it and shows the end of its log."""


@dataclass
class Running:
    """A broker that answers. start_seconds: from the start of the process to its first answer to ApiVersions.

    tls_address, scram_address: host:port of its listeners for TLS and for logins by SCRAM, "" = it has none; cafile:
    the authority of its certificate. replicas: replication factor of the topics of loads, with a minimum of 2 in-sync
    replicas if it is above 1.
    """

    name: str
    process: subprocess.Popen[bytes]
    port: int
    directory: Path
    start_seconds: float
    host: str = HOST
    tls_address: str = ""
    scram_address: str = ""
    cafile: str = ""
    replicas: int = 1

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def members(self) -> Mapping[int, "Running"]:
        """The brokers of the cluster that the load drives, by id."""
        return {1: self}

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def stop(self) -> None:
        """End it cleanly. Raises BrokerError if it had died before or does not end."""
        if self.process.poll() is not None:
            raise BrokerError(f"{self.name} had ended with {self.process.returncode}:\n{log_tail(self.directory)}")
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(f"{self.name} did not stop within {STOP_SECONDS_MAX} s") from None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Broker(ABC):
    """A kind of broker: how it is found, made ready and started; `replicas`: as of `Running`."""

    name: str
    title: str
    replicas = 1

    @abstractmethod
    def missing(self) -> str | None:
        """Why it cannot run here, or None."""

    @abstractmethod
    def version(self) -> str:
        """For the report."""

    @abstractmethod
    def start(self, directory: Path, settings: Mapping[str, str] | None = None) -> Running:
        """Start on `directory` (created if need be) and wait until ApiVersions answers; `settings`: under
        Kafka's names. Raises BrokerError.
        """


def spawn(name: str, command: Sequence[str], port: int, directory: Path) -> Running:
    """Start the process, its output in `server.log`, and try to connect every millisecond until it answers."""
    # An installed package has its bytecode compiled; a checkout keeps it from its first start on.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    started = time.monotonic()
    with open(directory / "server.log", "ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment
        )
    with killed_on_failure(process):
        while not api_versions_answers(HOST, port):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.001)
                raise BrokerError(f"{name} ended with {process.returncode} while starting:\n{log_tail(directory)}")
            if time.monotonic() - started > START_SECONDS_MAX:
                raise BrokerError(f"{name} did not answer within {START_SECONDS_MAX} s:\n{log_tail(directory)}")
    return Running(name, process, port, directory, time.monotonic() - started)


def log_tail(directory: Path, lines: int = 20) -> str:
    return "\n".join((directory / "server.log").read_text(errors="replace").splitlines()[-lines:])
