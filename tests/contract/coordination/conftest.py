"""The backends that have to pass the contract, each as a small service with several clients."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Outcome
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.tree import Operation, Stat, WatchEvent
from kafkalite.testing.virtual_clock import InlineOffload, VirtualClock

UNANSWERED = Outcome(error=AssertionError("no answer came"))


class Service(Protocol):
    """A running service under test."""

    clock: VirtualClock

    def connect(self, on_lost: Callable[[], object] | None = None) -> Coordination: ...
    def expire(self, session: Coordination) -> None: ...
    def run_until_idle(self) -> None:
        """Let everything under way arrive."""


class EmbeddedService:
    """The embedded tree: in memory, with a journal, with one written by jobs, or with one opened again."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.clock = VirtualClock()
        self._kind = kind
        self._path = str(directory / "coordination.journal")
        self._offload = InlineOffload() if kind == "journal-jobs" else None
        self._embedded = EmbeddedCoordination(self.clock) if kind == "memory" else self._open()
        if kind == "reopened":
            session = self._embedded.connect()
            session.create("/left", b"behind", lambda outcome: outcome.result())
            session.create("/left/ephemeral", b"", lambda outcome: outcome.result(), ephemeral=True)
            self._embedded.close()
            self._embedded = self._open()
            session = self._embedded.connect()
            session.delete("/left", lambda outcome: outcome.result())
            session.close(lambda outcome: outcome.result())

    def _open(self) -> EmbeddedCoordination:
        return EmbeddedCoordination.open(Disk(), self._path, self.clock, self._offload)

    def connect(self, on_lost: Callable[[], object] | None = None) -> Coordination:
        session = self._embedded.connect(on_lost)
        self.run_until_idle()
        return session

    def expire(self, session: Coordination) -> None:
        self._embedded.expire(session.session_id)
        self.run_until_idle()

    def run_until_idle(self) -> None:
        if self._offload is not None:
            self._offload.drain()

    def close(self) -> None:
        self.run_until_idle()
        self._embedded.close()


class Client:
    """A session driven like plain calls: waits for the answer, returns or raises it."""

    def __init__(self, service: Service) -> None:
        self.lost = 0
        self.session = service.connect(self._count_loss)
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
        outcomes: list[Outcome] = []
        call(*args, then=outcomes.append, **kwargs)
        self._service.run_until_idle()
        (outcome,) = outcomes or [UNANSWERED]
        return outcome.result()


@pytest.fixture(params=["memory", "journal", "journal-jobs", "reopened"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedService]:
    service = EmbeddedService(request.param, tmp_path)
    yield service
    service.close()


@pytest.fixture
def client(service: EmbeddedService) -> Client:
    return Client(service)


@pytest.fixture
def other(service: EmbeddedService) -> Client:
    return Client(service)
