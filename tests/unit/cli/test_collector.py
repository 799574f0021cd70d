"""The daemon's collector freezes what long collections leave, and a broker leaves no cycles for it."""

import asyncio
import gc
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkalite.cli.gc_tuning import LONG_S, MANY, GcTuning
from kafkalite.server.broker import Broker
from perf.brokers.base import Running
from perf.loads.fairness import wire
from perf.loads.fairness.client import Client

GROUPS, TOPICS = 500, 200

pytestmark = pytest.mark.usefixtures("collector_restored")


class Timed:
    """A clock that the test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(("seconds", "frozen"), [(LONG_S / 2, False), (LONG_S * 2, True)])
def test_survivors_of_a_long_collection_are_frozen(seconds: float, frozen: bool) -> None:
    clock = Timed()
    collector = GcTuning(clock)
    gc.unfreeze()
    gc.collect(0)  # else the objects of earlier tests may be so many that they count as loaded
    collector.watch("start", {"generation": 1})
    clock.now_s += seconds
    collector.watch("stop", {"generation": 1})
    assert (gc.get_freeze_count() > 0) == frozen


def test_objects_loaded_with_the_collector_off_are_not_walked() -> None:
    gc.unfreeze()
    gc.disable()
    loaded = [[number] for number in range(MANY + 1000)]
    GcTuning(Timed()).watch("start", {"generation": 0})
    assert gc.get_freeze_count() > len(loaded)


def test_install_watches_all_collections() -> None:
    collector = GcTuning()
    collector.install()
    assert collector.watch in gc.callbacks
    assert gc.get_freeze_count() > 0


def fill_and_delete(client: Client) -> int:
    """Create and delete groups and topics with the collector off; how much of them it finds."""
    names, groups = [f"t{number}" for number in range(TOPICS)], [f"g{number}" for number in range(GROUPS)]
    client.create(names, 1)
    client.commit(groups, names[0])
    gc.collect()
    gc.disable()
    client.expect("DeleteGroups", wire.deleted(client.call(wire.delete_groups(groups))))
    client.delete(names)
    return gc.collect()


async def test_deleted_groups_and_topics_leave_no_cycles() -> None:
    async with Broker() as broker:
        host, port = broker.address.rsplit(":", 1)
        process = cast("Any", SimpleNamespace(pid=os.getpid()))
        with Client(Running("kafkalite", process, int(port), Path(), 0.0, host)) as client:
            assert await asyncio.to_thread(fill_and_delete, client) < GROUPS
