"""A broker and a client that only have names, for reports."""

from collections.abc import Mapping
from pathlib import Path

from perf.brokers.base import Broker, Running
from perf.clients.base import Client


class FakeBroker(Broker):
    name = "broker"
    title = "A broker"

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return "1"

    def start(self, directory: Path, settings: Mapping[str, str] | None = None) -> Running:
        raise NotImplementedError


class FakeClient(Client):
    name = "client"
    title = "A client"

    def version(self) -> str:
        return "1"
