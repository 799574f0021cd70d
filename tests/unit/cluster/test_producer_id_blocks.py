"""Blocks of producer ids are taken from the node of the cluster, unless it is invalid."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.cluster.metadata.store import MetadataStore
from kafkalite.coordination import znodes
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.tree import Set
from kafkalite.testing.virtual_clock import VirtualClock

VALID = b'{"version":1,"broker":1,"block_start":"5000","block_end":"5999"}'


@pytest.mark.parametrize("invalid", [b"{}", b"no JSON", VALID.replace(b'"broker":1', b'"broker":-1')])
def test_invalid_node_assigns_no_ids_until_it_is_repaired(invalid: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Clients repeat InitProducerId, so one line a minute says it."""
    clock = VirtualClock()
    session = EmbeddedCoordination(clock).connect()
    store, taken = MetadataStore(session, clock), list[range | None]()
    written: list[object] = []
    asyncio.run(store.prepare())
    for data in (invalid, invalid, VALID):
        session.multi([Set(znodes.PRODUCER_ID_BLOCK, data)], written.append)
        store.take_producer_ids(taken.append)
    assert taken == [None, None, range(6000, 7000)]
    (line,) = caplog.messages
    assert line.startswith(znodes.PRODUCER_ID_BLOCK) and line.endswith(
        "no producer ids are assigned until it is repaired"
    )
