"""Broker processes in network namespaces, joined by a bridge, whose packets are dropped by iptables.

Needs root, `ip` and `iptables`. A namespace has no default route: a broker reaches the others, ZooKeeper and the
clients on the bridge, and nothing else. Invariant: bridge and namespaces are removed, whatever becomes of the test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from tests.kit.broker_processes import BrokerProcesses

IN, OUT = "INPUT", "OUTPUT"
HOST_ID = 254  # of the address that clients and ZooKeeper have on the bridge


def missing() -> str | None:
    """Why there can be no such network on this machine, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    tools = [tool for tool in ("ip", "iptables") if shutil.which(tool) is None]
    return f"not installed: {', '.join(tools)}" if tools else None


def run(*command: str) -> str:
    """The output of a command. Raises AssertionError with its errors."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


class Network:
    """A bridge with a namespace for each broker; a context manager.

    Arguments:
        ids: of the brokers, each the last part of its broker's address.
    """

    def __init__(self, ids: Iterable[int]) -> None:
        self._ids = tuple(ids)
        self._bridge = f"kl{os.getpid()}"
        self._subnet = f"10.213.{os.getpid() % 256}"
        self.host = self.address(HOST_ID)

    def __enter__(self) -> Self:
        try:
            run("ip", "link", "add", self._bridge, "type", "bridge")
            run("ip", "address", "add", f"{self.host}/24", "dev", self._bridge)
            run("ip", "link", "set", self._bridge, "up")
            for each in self._ids:
                self._join(each)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def address(self, broker_id: int) -> str:
        """The IP address of a broker."""
        return f"{self._subnet}.{broker_id}"

    def use_namespaces(self, cluster: BrokerProcesses) -> None:
        """Run each broker of a cluster, not yet started, in its namespace."""
        for each, broker in cluster.brokers.items():
            broker.host = self.address(each)
            broker.prefix = ("ip", "netns", "exec", self._namespace(each))

    def drop(self, broker_id: int, chain: str, *match: str) -> None:
        """Drop packets that a broker receives (IN) or sends (OUT) and that match, in iptables' words."""
        self._iptables(broker_id, "-A", chain, *match, "-j", "DROP")

    def cut(self, broker_id: int, *others: int) -> None:
        """Drop all packets between a broker and others."""
        for each in others:
            self.drop(broker_id, IN, "-s", self.address(each))
            self.drop(broker_id, OUT, "-d", self.address(each))

    def cut_port(self, broker_id: int, port: int) -> None:
        """Drop all packets between a broker and a port on the bridge's own address."""
        self.drop(broker_id, IN, "-s", self.host, "-p", "tcp", "--sport", str(port))
        self.drop(broker_id, OUT, "-d", self.host, "-p", "tcp", "--dport", str(port))

    def dropped(self, broker_id: int) -> int:
        """Packets that the rules of a broker have dropped."""
        lines = self._iptables(broker_id, "-nvxL").splitlines()
        return sum(int(line.split()[0]) for line in lines if " DROP " in line and not line.startswith("Chain"))

    def heal(self) -> None:
        """Drop nothing more."""
        for each in self._ids:
            self._iptables(each, "-F")

    def _iptables(self, broker_id: int, *arguments: str) -> str:
        return run("ip", "netns", "exec", self._namespace(broker_id), "iptables", "-w", *arguments)

    def _namespace(self, broker_id: int) -> str:
        return f"{self._bridge}-{broker_id}"

    def _join(self, broker_id: int) -> None:
        """Create the namespace of a broker, and a pair of devices between it and the bridge."""
        namespace, device, inner = self._namespace(broker_id), f"{self._bridge}v{broker_id}", "eth0"
        run("ip", "netns", "add", namespace)
        run("ip", "link", "add", device, "type", "veth", "peer", "name", inner, "netns", namespace)
        run("ip", "link", "set", device, "master", self._bridge, "up")
        run("ip", "-n", namespace, "address", "add", f"{self.address(broker_id)}/24", "dev", inner)
        for each in ("lo", inner):
            run("ip", "-n", namespace, "link", "set", each, "up")

    def _remove(self) -> None:
        """Remove what there is, also after a partial start. A namespace takes its devices with it."""
        existing = run("ip", "netns", "list").split()
        for namespace in map(self._namespace, self._ids):
            if namespace in existing:
                run("ip", "netns", "delete", namespace)
        if f" {self._bridge}:" in run("ip", "-o", "link"):
            run("ip", "link", "delete", self._bridge)
