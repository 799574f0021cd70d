"""Commits of a transactional producer whose response is late: the outcome is known later, and nothing is aborted."""

from pathlib import Path

import pytest
from kafkalite_sdk import Producer

from kafkalite.errors import ClientUseError, OutcomeUnknownError, TransactionAbortedError
from kafkalite.testing.simulated_broker import HOST, PORT
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.world import World, run

FAULTLESS = 0
STALL_S = 5.0
COMMIT_S = 1.0


async def commit_in_doubt(world: World, producer: Producer[bytes, bytes]) -> None:
    """Commit a transaction with one record; the network delays EndTxn beyond the deadline of the call."""
    await producer.begin_transaction()
    await producer.send("orders", b"1")
    world.network.stall(HOST, PORT, STALL_S)
    with pytest.raises(OutcomeUnknownError):
        await producer.commit_transaction(timeout=COMMIT_S)


@pytest.mark.parametrize("answered", [False, True], ids=["waits", "answered before"])
def test_second_commit_returns_the_outcome(tmp_path: Path, answered: bool) -> None:
    async def scenario(world: World) -> None:
        await world.create_topics(orders=1)
        async with Producer(world.bootstrap, environment=world.environment(), transactional_id="me") as producer:
            await commit_in_doubt(world, producer)
            if answered:
                await pass_time(2 * STALL_S)
            await producer.commit_transaction()
            with pytest.raises(ClientUseError, match="no transaction is open"):
                await producer.commit_transaction()
            async with producer.transaction():
                producer.send("orders", b"2")
        values = [value for _, value in (await world.logs(["orders"]))["orders", 0]]
        assert [value for value in values if value in (b"1", b"2")] == [b"1", b"2"]

    run(tmp_path, FAULTLESS, scenario)


@pytest.mark.parametrize("answered", [False, True], ids=["waits", "answered before"])
def test_second_commit_of_a_transaction_that_has_timed_out_fails(tmp_path: Path, answered: bool) -> None:
    async def scenario(world: World) -> None:
        await world.create_topics(orders=1)
        options = {"transactional_id": "me", "transaction_timeout_ms": 2_000}
        async with Producer(world.bootstrap, environment=world.environment(), **options) as producer:
            await commit_in_doubt(world, producer)
            if answered:
                await pass_time(2 * STALL_S)
            with pytest.raises(TransactionAbortedError):
                await producer.commit_transaction()
            await producer.abort_transaction()  # nothing is left to abort

    run(tmp_path, FAULTLESS, scenario)


def test_end_of_the_block_has_the_outcome_of_a_commit_in_doubt(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.create_topics(orders=1)
        options = {"transactional_id": "me", "transaction_timeout_ms": 2_000}
        async with Producer(world.bootstrap, environment=world.environment(), **options) as producer:
            with pytest.raises(TransactionAbortedError):
                async with producer.transaction():
                    await producer.send("orders", b"1")
                    world.network.stall(HOST, PORT, STALL_S)
                    with pytest.raises(OutcomeUnknownError):
                        await producer.commit_transaction(timeout=COMMIT_S)
                    await pass_time(2 * STALL_S)

    run(tmp_path, FAULTLESS, scenario)


def test_commit_in_doubt_is_not_aborted(tmp_path: Path) -> None:
    """Its records may be visible: an application that takes it for aborted would process them again."""

    async def scenario(world: World) -> None:
        await world.create_topics(orders=1)
        async with Producer(world.bootstrap, environment=world.environment(), transactional_id="me") as producer:
            await commit_in_doubt(world, producer)
            for pause_s in (0.0, 2 * STALL_S):
                await pass_time(pause_s)
                with pytest.raises(ClientUseError, match="its commit was sent"):
                    await producer.abort_transaction()
            await producer.commit_transaction()

    run(tmp_path, FAULTLESS, scenario)
