"""The backends that have to pass the contract, and a client that calls them synchronously.

ZOOKEEPER=host:port names a server of ZooKeeper's protocol that runs; without it, Apache ZooKeeper is started once.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kafkalite.coordination.tree import Operation, Stat, WatchEvent
from tests.contract.coordination.services import (
    EmbeddedService,
    FakeService,
    NetworkService,
    ServedOverSockets,
    ServedService,
    ServerService,
    Service,
)
from tests.kit import jvm
from tests.kit.zookeeper import start_zookeeper

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "zookeeper-asyncio": asyncio.new_event_loop,
    "zookeeper-uvloop": uvloop.new_event_loop,
}
SERVED = {name.replace("zookeeper", "served"): new_loop for name, new_loop in LOOPS.items()}
SERVERS = [pytest.param(name, marks=pytest.mark.xdist_group("zookeeper")) for name in LOOPS]
TICK_MS = 1_000  # Apache ZooKeeper grants sessions of 2 to 20 s
EMBEDDED = ["memory", "journal", "journal-jobs", "reopened"]


class Client:
    """A session driven like plain calls: waits for the response, returns or raises it."""

    def __init__(self, service: Service) -> None:
        self.lost = 0
        self.states: list[str] = []
        self.session = service.connect(
            self._count_loss, lambda: self.states.append("suspended"), lambda: self.states.append("resumed")
        )
        self.events: list[WatchEvent] = []
        self._service = service

    def create(self, path: str, data: bytes = b"", **kind: bool) -> str:
        return self._wait(self.session.create, path, data, **kind).path

    def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        return self._wait(self.session.set, path, data, version=version)

    def delete(self, path: str, version: int = -1) -> None:
        self._wait(self.session.delete, path, version=version)

    def multi(self, *operations: Operation) -> list[Any]:
        return self._wait(self.session.multi, operations)

    def get(self, path: str, *, watch: bool = False) -> tuple[bytes, Stat]:
        return self._wait(self.session.get, path, **self._watch(watch))

    def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        return self._wait(self.session.exists, path, **self._watch(watch))

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        return self._wait(self.session.children, path, **self._watch(watch))[0]

    def close(self) -> None:
        self._wait(self.session.close)

    def take_events(self) -> list[tuple[str, str]]:
        self._service.run_until_idle()
        events, self.events = self.events, []
        return [(event.kind, event.path) for event in events]

    def _note(self, event: WatchEvent) -> None:
        self.events.append(event)

    def _count_loss(self) -> None:
        self.lost += 1

    def _watch(self, watch: bool) -> dict[str, Any]:
        return {"watch": self._note} if watch else {}

    def _wait(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        return self._service.result(lambda then: call(*args, then=then, **kwargs))


@pytest.fixture(scope="package")
def zookeeper_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server: one for all tests of this folder in a process."""
    if address := os.environ.get("ZOOKEEPER"):
        yield address
        return
    if (reason := jvm.java_missing()) is not None:
        pytest.skip(f"Apache ZooKeeper: {reason}")
    server = start_zookeeper(tmp_path_factory.mktemp("zookeeper"), tick_ms=TICK_MS)
    yield server.address
    server.kill()


def network_service(request: pytest.FixtureRequest, directory: Path) -> NetworkService:
    """Return the service that a parameter names."""
    if request.param == "fake":
        return FakeService()
    if request.param == "served":
        return ServedService(directory)
    if request.param in SERVED:
        return ServedOverSockets(SERVED[request.param](), directory)
    return ServerService(LOOPS[request.param](), request.getfixturevalue("zookeeper_address"))


@pytest.fixture(params=[*EMBEDDED, "fake", "served", *SERVED, *SERVERS])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    embedded = request.param in EMBEDDED
    service = EmbeddedService(request.param, tmp_path) if embedded else network_service(request, tmp_path)
    yield service
    service.close()


@pytest.fixture
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NetworkService]:
    """A service whose connections can be broken; a test names it as a parameter."""
    service = network_service(request, tmp_path)
    yield service
    service.close()


@pytest.fixture
def client(service: Service) -> Client:
    return Client(service)


@pytest.fixture
def other(service: Service) -> Client:
    return Client(service)
