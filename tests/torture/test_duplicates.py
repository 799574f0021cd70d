"""A batch that an idempotent producer sends again, without the response of the first attempt, is appended once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from kafkalite.server.broker import Broker
from kafkalite.server.running.running_broker import RunningBroker
from tests.kit.checker import check
from tests.kit.load import IdempotentSender
from tests.kit.ports import free_port
from tests.kit.proxy import CuttingProxy
from tests.kit.readers import READERS
from tests.kit.rig import assert_kept, create_topic

pytestmark = [
    pytest.mark.torture,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
CUTS = 20
COUNTER = "kafkalite_duplicate_batches"


def duplicates(broker: RunningBroker) -> float:
    (family,) = [family for family in broker.metrics.walk() if family.name == COUNTER]
    (gauge,) = family.members.values()
    return gauge.value  # type: ignore[union-attr]


async def test_repeated_batch_is_counted_and_stored_once(random: Random, tmp_path: Path) -> None:
    port = free_port()
    async with CuttingProxy(port, random, share=0.1) as proxy:
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
        }
        async with Broker(str(tmp_path), settings) as broker:
            partitions = await create_topic(broker.address, "t", 1)
            sender = IdempotentSender(f"127.0.0.1:{proxy.port}", "t", 1)
            sender.start()
            try:
                async with asyncio.timeout(60):
                    while proxy.answered_again < CUTS:
                        assert sender.is_alive(), sender.errors
                        await proxy.answered.wait()
                        proxy.answered.clear()
            finally:
                await asyncio.to_thread(sender.finish)
            # a request behind the one that was cut off may have been appended, too
            assert CUTS <= proxy.answered_again <= duplicates(broker.running) <= proxy.answered_again + proxy.unanswered
            assert proxy.wrong == []
            for reader in READERS:
                await asyncio.to_thread(reader, reader.__name__, broker.address, partitions, sender.history)
                assert_kept(check(sender.history, reader.__name__))
