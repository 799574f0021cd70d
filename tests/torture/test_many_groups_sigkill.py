"""kill -9 under very many groups: each has what was acknowledged to it last, or all of the one commit on its way.

10,000 groups of 10 partitions in the long form, over some shards whose segments are rolled and compacted meanwhile;
fewer in the short one. They have no members; those are in test_groups_sigkill.py. Killed at rest, while all commit, and
while what was committed is being loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random

import pytest

from kafkalite.errors import KafkaConnectionError
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.fix_torture import is_long
from tests.kit.brokers import READY, Kafkalite
from tests.kit.members import codes, commit, fetch_of
from tests.kit.rig import assert_files_are_good, create_topic, ended
from tests.kit.simulated_group import LOADING
from tests.kit.watching import Watch

pytestmark = pytest.mark.torture
MOMENTS = ("rest", "commits", "loading")
OFFSETS_TOPIC, SHARDS = "__consumer_offsets", 4
SETTINGS = {
    "offsets.topic.num.partitions": str(SHARDS),
    "offsets.topic.segment.bytes": str(1 << 20),
    "log.cleaner.backoff.ms": "20",
}
GROUPS, GROUPS_SHORT = 10_000, 1_000
TOPIC, PARTITIONS = "read", 10
BY_NAME = 9  # the last version of OffsetCommit and OffsetFetch that names topics
CONNECTIONS, DEPTH = 4, 16
ASKED = 100  # groups in one request
DEADLINE_S = 120.0
NOTHING = dict.fromkeys(range(PARTITIONS), -1)


def offsets(number: int) -> dict[int, int]:
    """The content of the commit with this number; 0 = before the first."""
    return {at: number * PARTITIONS + at for at in range(PARTITIONS)} if number else NOTHING


class KillSeries:
    """A broker, its groups, and the responses that each of them has received.

    Attributes:
        kept: the number of each group's commit that is surely there.
        sent: the number of the last one that was sent.
    """

    def __init__(self, random: Random, broker: Kafkalite, count: int) -> None:
        self.random = random
        self.broker = broker
        self.groups = [f"group-{number}" for number in range(count)]
        self.kept = dict.fromkeys(self.groups, 0)
        self.sent = dict(self.kept)
        self.acks = self.doubtful = 0
        self.goal = 0
        self.enough = asyncio.Event()
        self.looked = asyncio.Event()

    # Commits.

    async def commit_all(self) -> None:
        """One more commit of every group, in random order over some connections; as far as these go."""
        some = self.random.sample(self.groups, len(self.groups))
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(self.peer()) for _ in range(CONNECTIONS)]
            shares = [iter(some[at::CONNECTIONS]) for at in range(CONNECTIONS)]
            async with asyncio.TaskGroup() as work:
                for peer, share in zip(peers, shares, strict=True):
                    for _ in range(DEPTH):
                        work.create_task(self.commit_each(peer, share))

    async def commit_each(self, peer: ClientConnection, share: Iterator[str]) -> None:
        """One group after the other, until the connection ends."""
        for group in share:
            self.sent[group] += 1
            number = self.sent[group]
            try:
                answer = await peer.call(commit(group, TOPIC, offsets(number)), version_max=BY_NAME)
            except KafkaConnectionError:
                return  # the broker may have it or not
            assert set(codes(answer)) == {0}, (group, answer)
            self.kept[group] = number
            self.acks += 1
            if self.acks >= self.goal:
                self.enough.set()

    def peer(self) -> ClientConnection:
        host, port = self.broker.address.rsplit(":", 1)
        return ClientConnection(host, int(port), timeout_s=DEADLINE_S)

    # The moments.

    async def kill_at_rest(self) -> None:
        """All is acknowledged."""
        await self.commit_all()
        assert self.kept == self.sent
        await asyncio.to_thread(self.broker.kill)

    async def kill_at_commits(self) -> None:
        """Many commits are on their way."""
        self.enough.clear()
        self.goal = self.acks + self.random.randrange(len(self.groups) // 10, len(self.groups) * 9 // 10)
        commits = asyncio.create_task(self.commit_all())
        await self.enough.wait()
        await asyncio.to_thread(self.broker.kill)
        await commits

    async def kill_at_loading(self) -> None:
        """What it has is being read, by one start after the other, or already asked for."""
        await self.kill_at_commits()
        for _ in range(2):
            await asyncio.to_thread(self.kill_a_start)
        await asyncio.to_thread(self.broker.start)
        self.looked.clear()
        asking = asyncio.create_task(self.ask(self.groups))
        await self.looked.wait()
        await asyncio.to_thread(self.broker.kill)
        with suppress(KafkaConnectionError):  # unless everything was answered before
            await asking

    def kill_a_start(self) -> None:
        """When it has touched so many files."""
        data = self.broker.data
        with Watch([data, *sorted(data.glob(f"{OFFSETS_TOPIC}-*"))]) as watch:
            self.broker.launch()
            watch.wait(self.random.randint(1, 12), lambda name: True, lambda: READY in self.broker.said())
        self.broker.kill()

    # Judging.

    async def ask(self, groups: Sequence[str]) -> dict[str, dict[int, int]]:
        """What the groups have committed; those whose shard is loading are missing."""
        found = {}
        async with self.peer() as peer:
            for at in range(0, len(groups), ASKED):
                wanted = [fetch_of(group, TOPIC, *range(PARTITIONS)) for group in groups[at : at + ASKED]]
                answer = await peer.call(OffsetFetchRequest(groups=wanted), version_max=BY_NAME)
                self.looked.set()
                for group in answer.groups:
                    if group.error_code not in LOADING:
                        assert group.error_code == 0, group
                        parts = group.topics[0].partitions
                        found[group.group_id] = {part.partition_index: part.committed_offset for part in parts}
        return found

    async def judge(self) -> None:
        """Every group has all of the commit acknowledged last, or of one that was sent behind it."""
        missing = self.groups
        async with asyncio.timeout(DEADLINE_S):
            while missing:
                found = await self.ask(missing)
                for group, has in found.items():
                    self.resolve(group, has)
                missing = [group for group in missing if group not in found]

    def resolve(self, group: str, has: dict[int, int]) -> None:
        kept, sent = self.kept[group], self.sent[group]
        number = has[0] // PARTITIONS if has[0] >= 0 else 0
        assert kept <= number <= sent and has == offsets(number), f"{group} has {has}, not commit {kept} to {sent}"
        self.doubtful += sent > kept
        self.kept[group] = self.sent[group] = number

    async def end(self) -> None:
        """A clean end and the start after it change nothing; the files are good."""
        assert await asyncio.to_thread(self.broker.stop) == self.broker.clean_exit
        await asyncio.to_thread(self.broker.start)
        await self.judge()
        assert await asyncio.to_thread(self.broker.stop) == self.broker.clean_exit
        shards = [(OFFSETS_TOPIC, shard) for shard in range(SHARDS)]
        await asyncio.to_thread(assert_files_are_good, self.broker.data, shards, compacted=True)


async def test_many_groups_keep_their_offsets(
    group_series: int,
    random: Random,
    tmp_path: Path,
    pytestconfig: pytest.Config,
    record_property: pytest.RecordProperty,
) -> None:
    broker = Kafkalite(tmp_path / "broker", SETTINGS)
    with ended(broker):
        await asyncio.to_thread(broker.start)
        await create_topic(broker.address, TOPIC, PARTITIONS)
        this = KillSeries(random, broker, GROUPS if is_long(pytestconfig) else GROUPS_SHORT)
        for moment in random.sample(MOMENTS, len(MOMENTS)):
            print(f"killed at {moment}")
            await getattr(this, f"kill_at_{moment}")()
            await asyncio.to_thread(broker.start)
            await this.judge()
        await this.end()
    assert this.doubtful > 0
    record_property(
        "summary",
        f"many groups' life {group_series}: {len(this.groups)} groups x {PARTITIONS} partitions, {this.acks} commits "
        f"acknowledged, {this.doubtful} on their way when it was killed",
    )
