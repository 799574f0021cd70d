"""A fresh broker for every story, with a client of it."""

from collections.abc import AsyncIterator

import pytest

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
