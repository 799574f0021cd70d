"""A fresh broker for every story, with a client of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafkalite.storage.log_move import log_move
from tests.kit.log_dirs import Jbod
from tests.kit.server import Client, Hub, Wire, running


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with running() as client:
        yield client


@pytest.fixture
async def hub(client: Client) -> Hub:
    return Hub(client.broker)


@pytest.fixture
async def wire(hub: Hub) -> Wire:
    return Wire(hub)


@pytest.fixture
def jbod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jbod:
    """Log directories whose moves copy in small pieces."""
    monkeypatch.setattr(log_move, "PIECE_BYTES", 300_000)
    monkeypatch.setattr(log_move, "REST_BYTES", 200_000)
    return Jbod(tmp_path)
