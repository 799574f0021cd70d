"""Careless clients of groups, many at once, over sockets: right errors, and nothing breaks.

Takes a quarter of --fuzz-inputs. Requests of every key that groups have, in all versions, sensible and senseless, in
random order. What must hold: every request is answered, with an allowed error; a partition has one owner in
a generation; the offsets at the end are those whose commit was acknowledged, also after a restart. KAFKALITE_SEED
replays what is drawn, not how the clients interleave. The machines alone: tests/story/groups/test_bad_requests.py.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from tests.fuzz.invalid_groups import GROUPS, METADATA_MAX, PARTITIONS, PASSING, Careless, World
from tests.kit.members import fetch, offsets_of
from tests.kit.server import Client, connected, running
from tests.unit.protocol.values import seed

pytestmark = pytest.mark.fuzz
SHARE = 4
CLIENTS = 24
ENOUGH = 20_000  # requests after which nearly every error was met
OWNERS_MIN = 50  # partitions that members were given, each in a generation
ATTEMPTS = 12  # some errors need a group that stays classic for a while: about one broker in four has none
SETTINGS = {
    "group.min.session.timeout.ms": "20",
    "group.max.size": "4",
    "group.consumer.max.size": "4",
    "group.consumer.min.session.timeout.ms": "20",
    "group.consumer.session.timeout.ms": "50",
    "group.consumer.min.heartbeat.interval.ms": "5",
    "group.consumer.heartbeat.interval.ms": "5",
    "group.consumer.assignment.interval.ms": "0",
    "offset.metadata.max.bytes": str(METADATA_MAX),
}
MET = {
    ("join", Error.MEMBER_ID_REQUIRED),
    ("join", Error.UNKNOWN_MEMBER_ID),
    ("join", Error.INVALID_GROUP_ID),
    ("join", Error.INVALID_SESSION_TIMEOUT),
    ("join", Error.INCONSISTENT_GROUP_PROTOCOL),
    ("join", Error.GROUP_MAX_SIZE_REACHED),
    ("join", Error.FENCED_INSTANCE_ID),
    ("sync", Error.ILLEGAL_GENERATION),
    ("sync", Error.UNKNOWN_MEMBER_ID),
    ("beat_classic", Error.REBALANCE_IN_PROGRESS),
    ("beat_classic", Error.ILLEGAL_GENERATION),
    ("beat_modern", Error.FENCED_MEMBER_EPOCH),
    ("beat_modern", Error.UNSUPPORTED_ASSIGNOR),
    ("beat_modern", Error.INVALID_REGULAR_EXPRESSION),
    ("commit", Error.ILLEGAL_GENERATION),
    ("commit", Error.STALE_MEMBER_EPOCH),
    ("commit", Error.OFFSET_METADATA_TOO_LARGE),
    ("delete_groups", Error.NON_EMPTY_GROUP),
    ("delete_groups", Error.NONE),
    ("delete_groups", Error.GROUP_ID_NOT_FOUND),
    ("delete_group", Error.NON_EMPTY_GROUP),
    ("delete_group", Error.NONE),
    ("delete_group", Error.GROUP_ID_NOT_FOUND),
    ("find", Error.NONE),
    ("find", Error.INVALID_REQUEST),
    ("rewind", Error.UNKNOWN_TOPIC_OR_PARTITION),
    ("create", Error.UNSUPPORTED_ASSIGNOR),
    ("create", Error.INVALID_SESSION_TIMEOUT),
    ("create", Error.INVALID_REGULAR_EXPRESSION),
    ("create", Error.INVALID_TOPIC_EXCEPTION),
    ("register", Error.INVALID_SESSION_TIMEOUT),
    ("register", Error.GROUP_MAX_SIZE_REACHED),
    ("register", Error.INCONSISTENT_GROUP_PROTOCOL),
    ("beat_registered", Error.REBALANCE_IN_PROGRESS),
    ("beat_registered", Error.ILLEGAL_GENERATION),
    ("beat_registered", Error.UNKNOWN_MEMBER_ID),
}


async def test_invalid_group_requests_do_not_affect_other_clients(
    tmp_path: Path, fuzz_inputs: int, record_property: Callable[[str, object], None]
) -> None:
    count = fuzz_inputs // SHARE
    missing, owners = (set(MET), 0) if count >= ENOUGH else (set(), OWNERS_MIN)
    for attempt in range(ATTEMPTS):
        world = World(count)
        await serve_and_restart(tmp_path / str(attempt), world, random.Random(f"{seed()} {attempt}"))
        missing -= set(world.seen)
        owners = max(owners, len(world.owners))
        if not missing and owners >= OWNERS_MIN:
            break
    lines = f"groups over sockets: {count} requests, {len(world.seen)} outcomes, {len(world.owners)} partitions given"
    record_property("summary", f"{lines}\n{received(world)}")
    names = {(what, Error(error).name) for what, error in missing}
    assert not names and owners >= OWNERS_MIN, (names, lines)


async def serve_and_restart(directory: Path, world: World, dice: random.Random) -> None:
    """Serve all requests of a world with a new broker, restart it, and compare what is committed."""
    async with running(str(directory), SETTINGS) as client:
        await client.create("orders", partitions=PARTITIONS)
        await run_until_idle(client)
        await misbehave(client, world, dice)
        before = await committed(client)
    async with running(str(directory), SETTINGS) as client:
        await run_until_idle(client)
        assert await committed(client) == before
    for (group, partition), offset in before.items():
        known = world.committed[group, partition]
        assert offset in known or (offset == -1 and not known), (group, partition, offset)


async def misbehave(client: Client, world: World, dice: random.Random) -> None:
    """All clients at once, each with a connection and dice of its own; what one raises ends all."""
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as crowd:
        for _ in range(CLIENTS):
            other = await stack.enter_async_context(connected(client.broker))
            crowd.create_task(Careless(other, world, random.Random(dice.getrandbits(64))).run())


async def run_until_idle(client: Client) -> None:
    """Wait until the coordinator has loaded its groups, as clients do."""
    while (await client.call(fetch("any", "orders", 0), 8)).groups[0].error_code:
        pass


async def committed(client: Client) -> dict[tuple[str, int], int]:
    """What every group has committed, -1 where it has not; but for the group that is deleted now and then."""
    found = {}
    for group in GROUPS:
        if group != PASSING:
            answer: Any = await client.call(fetch(group, "orders", *range(PARTITIONS)), 9)
            assert answer.groups[0].error_code == 0, answer
            found |= {(group, partition): offset for (_, partition), offset in offsets_of(answer).items()}
    return found


def received(world: World) -> str:
    """The number of responses with each outcome."""
    return "\n".join(f"  {what} {Error(error).name} {count}" for (what, error), count in sorted(world.seen.items()))
