"""Transactions of another broker whose logs are adopted: they are listed, and each one ends."""

import asyncio
from pathlib import Path

from kafkalite.cli.log.adopt import transaction_text
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.server.adoption.topic_adoption import AdoptedTopic
from tests.kit.server import Client, running
from tests.story.server.test_assigned_producer_ids import adopt, other_broker
from tests.story.server.test_transaction_coordinator import TV2, Producer
from tests.story.server.test_whole_transactions import STATE_PARTITIONS, committed, send

TIMEOUT_MS = 1_000


async def begin(client: Client, name: str, topic: str) -> Producer:
    """A producer with a record in an open transaction."""
    producer = Producer(client, name)
    assert await producer.init(timeout_ms=TIMEOUT_MS) == Error.NONE
    assert await send(producer, TV2, name.encode(), topic=topic) == Error.NONE
    return producer


async def adopted(directory: Path) -> AdoptedTopic:
    """Adopt the logs of a broker that ends with a decided and an open transaction, and one that is complete."""
    async with running(str(directory / "theirs"), STATE_PARTITIONS) as client:
        for topic in ("t", "u"):
            await client.create(topic)
        assert await (await begin(client, "complete", "u")).end() == Error.NONE
        decided = await begin(client, "decided", "t")
        partition = client.broker.replicas.partition("t", b"", 0, by_id=False)
        assert isinstance(partition, Partition)
        partition.pause(lambda: None)  # the marker waits
        assert await decided.end() == Error.NONE
        await begin(client, "open", "u")
        other_broker(directory / "theirs", directory / "kafka")
        partition.resume()
    return await asyncio.to_thread(adopt, directory / "kafka", directory / "ours")


async def state_of(client: Client, name: str) -> str:
    """The state of a transaction, once its shard is loaded."""
    while (found := await Producer(client, name).state()).error_code:
        await asyncio.sleep(0)
    return str(found.transaction_state)


async def test_decided_transactions_are_completed_and_others_expire(tmp_path: Path) -> None:
    found = await adopted(tmp_path)
    assert [transaction_text(each) for each in found.open_transactions] == [
        "transaction decided in t-0: PrepareCommit, it is decided, the start commits it",
        "transaction open in u-0: Ongoing, it is aborted 1000 ms after its begin, unless its producer ends it",
    ]
    async with running(str(tmp_path / "ours"), STATE_PARTITIONS) as client:
        for name, state in (("decided", "CompleteCommit"), ("open", "CompleteAbort"), ("complete", "CompleteCommit")):
            while await state_of(client, name) != state:
                await asyncio.sleep(0)
        assert await committed(client) == ([b"decided"], 2, 2)
