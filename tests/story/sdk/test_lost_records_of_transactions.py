"""Records of a transaction that fail before they are in a batch: the transaction must not be committed without them."""

from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk import Producer

from kafkalite.errors import TransactionAbortedError
from tests.story.sdk.world import World, run

FAULTLESS = 0


@pytest.mark.parametrize(
    ("topic", "options", "cause"),
    [("missing", {}, "no metadata within 2 s"), ("fresh", {"partition": 9}, "partition")],
    ids=["unknown topic", "unknown partition"],
)
@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside another record"])
def test_record_that_has_no_partition_aborts_the_transaction(
    tmp_path: Path, topic: str, options: dict[str, Any], cause: str, others: bool
) -> None:
    async def scenario(world: World) -> None:
        await world.create_topics(orders=1, fresh=1)
        settings = {"transactional_id": "me", "max_block_ms": 2_000, "allow_auto_create_topics": False}
        async with Producer(world.bootstrap, environment=world.environment(), **settings) as producer:
            await producer.begin_transaction()
            if others:
                await producer.send("orders", b"lost")
            producer.send(topic, b"lost", **options)
            with pytest.raises(TransactionAbortedError, match=cause):
                await producer.commit_transaction()
            async with producer.transaction():
                producer.send("orders", b"next")

    run(tmp_path, FAULTLESS, scenario)
