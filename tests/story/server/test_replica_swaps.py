"""Tests the swap at the end of a move between log directories: appends that wait, faults, deletions and stops in it."""

import asyncio
import errno
import shutil
from collections.abc import AsyncIterator, Callable

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.storage.log_move.complete_mark import MARK
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.log_dirs import (
    STORAGE_ERROR,
    WAIT_S,
    HeldCopies,
    HeldSwap,
    Jbod,
    all_values,
    fill,
    log_of,
    until_in,
)
from tests.kit.server import Client, batch, connected


@pytest.fixture
async def client(jbod: Jbod) -> AsyncIterator[Client]:
    async with jbod.start() as broker, connected(broker) as client:
        yield client


def fails(operation: str, number: int, path: str) -> Callable[[FaultyDisk], None]:
    """A fault of the swap."""
    return lambda disk: disk.fail(operation, number, path=path)


SWAP_FAULTS = {
    "rename the current directory": (fails("rename", errno.EIO, "/a/t-0"), {"a"}),
    "no space to rename the current directory": (fails("rename", errno.ENOSPC, "/a/t-0"), set()),
    "sync after the first rename": (fails("sync_dir", errno.EIO, "/a"), {"a"}),
    "rename the copy": (fails("rename", errno.ENOSPC, "-future"), set()),
}


@pytest.mark.parametrize("fault", SWAP_FAULTS)
async def test_a_fault_during_the_swap_loses_nothing(jbod: Jbod, fault: str) -> None:
    """The partition is served from one of the directories, or offline until the next start."""
    inject, offline = SWAP_FAULTS[fault]
    async with jbod.start() as broker, connected(broker) as client:
        values = await fill(client)
        swap = HeldSwap(client)
        await swap.begun(client, jbod.path("b"))
        inject(jbod.disk)
        await swap.end(client)
        jbod.disk.heal()
        assert {name for name in "abc" if not client.broker.logs.is_online(jbod.path(name))} == offline
        error = (await client.produce("t", batch(b"x"))).error_code
        assert error == (STORAGE_ERROR if offline else 0)
        values += [] if error else [b"x"]
    async with jbod.start() as broker, connected(broker) as client:
        assert await all_values(client) == values
        await until_in(client, "b" if offline else "a")
        assert await all_values(client) == values


@pytest.mark.parametrize("messages", ["1", "3", None], ids=["each flushed", "three flushed", "not flushed"])
async def test_appends_wait_for_the_swap_and_keep_their_order(client: Client, jbod: Jbod, messages: str | None) -> None:
    values = await fill(client, **({} if messages is None else {"flush_messages": messages}))
    swap = HeldSwap(client)
    await swap.begun(client, jbod.path("b"))
    waiting = [asyncio.create_task(client.produce("t", batch(b"%d" % number))) for number in range(20)]
    assert await client.read("t", offset=len(values) - 1) == values[-1:], "reads do not wait"
    assert not any(each.done() for each in waiting)
    await swap.end(client)
    assert [each.base_offset for each in await asyncio.gather(*waiting)] == list(range(len(values), len(values) + 20))
    await until_in(client, "b")
    assert await all_values(client) == [*values, *(b"%d" % number for number in range(20))]


@pytest.mark.parametrize("jobs", range(6))
async def test_a_topic_that_is_deleted_during_the_swap(jbod: Jbod, jobs: int) -> None:
    """Appends that wait are rejected, and nothing of the topic is left for a new one of its name."""
    async with jbod.start() as broker, connected(broker) as client, connected(broker) as other:
        await fill(client)
        swap = HeldSwap(client)
        await swap.begun(client, jbod.path("b"))
        for _ in range(jobs):
            swap.advance()
            async with asyncio.timeout(WAIT_S):  # checkpoints in between
                while not swap.jobs.waiting and client.broker.logs.moves:
                    await asyncio.sleep(0)
        moving = log_of(client).moving
        append = asyncio.create_task(client.produce("t", batch(b"late")))
        await client.read("t")
        assert (await other.delete("t"))[0].error_code == 0
        while swap.jobs.waiting:
            swap.advance()
        if moving:
            assert (await append).error_code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await append
        values = await fill(client)
        assert await all_values(client) == values
    async with jbod.start() as broker, connected(broker) as client:
        assert await all_values(client) == values
        assert [each for name in "abc" for each in (jbod.data / name).glob("t-0.*") if "-delete" not in each.name] == []


@pytest.mark.parametrize("jobs", range(6))
async def test_a_stop_during_the_swap(jbod: Jbod, jobs: int) -> None:
    async with jbod.start() as broker, connected(broker) as client:
        values = await fill(client)
        swap = HeldSwap(client)
        await swap.begun(client, jbod.path("b"))
        for _ in range(jobs):
            swap.advance()
            async with asyncio.timeout(WAIT_S):
                while not swap.jobs.waiting and client.broker.logs.moves:
                    await asyncio.sleep(0)
        if swap.jobs.waiting:  # ends while the broker stops
            client.broker.logs.mover.ports.offload = client.broker.offload
            client.broker.offload.run(swap.advance, done=lambda _: None)
    async with jbod.start() as broker, connected(broker) as client:
        await until_in(client, "b")
        assert await all_values(client) == values
        assert (await client.produce("t", batch(b"x"))).base_offset == len(values)


async def test_a_failure_of_the_current_directory_ends_the_move(jbod: Jbod) -> None:
    async with jbod.start() as broker, connected(broker) as client:
        values = await fill(client)
        copies = HeldCopies(client)
        await copies.requested(client, jbod.path("b"))
        copies.advance(2)
        client.broker.logs.take_offline(jbod.path("a"), OSError(errno.EIO, "test"))
        copies.advance(2)
        assert not client.broker.logs.moves
        assert (await client.produce("t", batch(b"x"))).error_code == STORAGE_ERROR
    async with jbod.start() as broker, connected(broker) as client:
        await until_in(client, "b")
        assert await all_values(client) == values


async def test_a_copy_is_not_used_while_a_directory_is_offline(jbod: Jbod) -> None:
    """The directory that is missing may have the partition with later records."""
    async with jbod.start() as broker, connected(broker) as client:
        await fill(client)
        swap = HeldSwap(client)
        await swap.begun(client, jbod.path("b"))
        for _ in range(2):
            swap.advance()
            async with asyncio.timeout(WAIT_S):
                while not swap.jobs.waiting:
                    await asyncio.sleep(0)
        (copy,) = (jbod.data / "b").glob("t-0.*-future")
        assert (copy / MARK).exists() and not (jbod.data / "a" / "t-0").exists()
        kept = jbod.data / "kept"
        shutil.copytree(jbod.data, kept)
        await swap.end(client)
    for name in "abc":
        (kept / name / ".lock").unlink()
    later = Jbod(kept)
    (kept / "c").rename(kept / "away")
    (kept / "c").write_bytes(b"no directory")
    async with later.start() as broker, connected(broker) as client:
        assert (await client.produce("t", batch(b"x"))).error_code == STORAGE_ERROR
    (kept / "c").unlink()
    (kept / "away").rename(kept / "c")
    async with later.start() as broker, connected(broker) as client:
        await until_in(client, "b")
        assert len(await all_values(client)) == 30
