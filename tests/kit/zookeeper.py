"""Apache ZooKeeper, one server in a process of its own, for Apache Kafka before version 4; its jars come with 3.9."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.kit import jvm
from tests.kit.ports import free_port
from tests.kit.starting import killed_on_failure

TICK_MS = 200  # sessions of 400 to 4,000 ms
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"


@dataclass
class ZooKeeper:
    """A running server that accepts connections at `address`, with TLS at `secure_address`."""

    address: str
    process: subprocess.Popen[bytes]
    directory: Path
    secure_address: str = ""

    @property
    def data(self) -> Path:
        """Directory of its snapshots and transaction logs."""
        return self.directory / "zookeeper" / "version-2"

    def dump(self) -> str:
        """Sessions and their ephemeral nodes, as the server prints them."""
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), timeout=10.0) as connection:
            connection.sendall(b"dump")
            return connection.makefile("rb").read().decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def start_zookeeper(
    directory: Path,
    port: int = 0,
    tick_ms: int = TICK_MS,
    stores: tuple[Path, Path] | None = None,
    host: str = jvm.HOST,
) -> ZooKeeper:
    """Start a server and wait until it accepts connections.

    Arguments:
        directory: for its data, configuration and log (`zookeeper.log`).
        port: 0 = a free one.
        tick_ms: sessions take 2 to 20 ticks.
        stores: PEM files: certificate with key, and issuers. The server also listens with TLS then, where it requires a
            certificate of clients.
        host: address on which it listens.

    Raises JvmError with its log if it does not start.
    """
    directory.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    config = directory / "zoo.cfg"
    config.write_text(
        f"dataDir={directory / 'zookeeper'}\nclientPort={port}\nclientPortAddress={host}\n"
        f"tickTime={tick_ms}\nadmin.enableServer=false\n4lw.commands.whitelist=dump\n"
    )
    ports = [port]
    if stores is not None:
        ports.append(free_port())
        with open(config, "a") as file:
            file.write(
                f"secureClientPort={ports[1]}\nsecureClientPortAddress={host}\nserverCnxnFactory={NETTY}\n"
                f"ssl.keyStore.location={stores[0]}\nssl.trustStore.location={stores[1]}\nssl.clientAuth=need\n"
                "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n"
            )
    command = [*jvm.java_command(jvm.PREVIOUS, MAIN, heap="128m"), str(config)]
    with open(directory / "zookeeper.log", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    with killed_on_failure(process):
        for each in ports:
            _wait_ready(process, host, each, directory / "zookeeper.log")
    addresses = [f"{host}:{each}" for each in ports]
    return ZooKeeper(addresses[0], process, directory, "".join(addresses[1:]))


def _wait_ready(process: subprocess.Popen[bytes], host: str, port: int, log: Path) -> None:
    # The port opens at an unknown moment without an event: try to connect, with a pause between two attempts.
    deadline = time.monotonic() + jvm.START_SECONDS_MAX
    while not _accepts(host, port):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
            raise jvm.JvmError(f"ZooKeeper ended while starting:\n{log.read_text(errors='replace')[-4000:]}")
        if time.monotonic() > deadline:
            raise jvm.JvmError(f"ZooKeeper not ready after {jvm.START_SECONDS_MAX} s:\n{log.read_text()[-4000:]}")


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False
