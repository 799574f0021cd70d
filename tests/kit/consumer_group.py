"""A simulated consumer group over the wire: two members own the partitions, a third one joins and leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from kafkalite.errors import KafkaConnectionError, KafkaErrorCode
from tests.kit.members import beat_join, fast_heartbeat, given, owned
from tests.kit.simulated_group import NONE, Member, SimulatedGroup

HEARTBEATS_MAX = 30
REBALANCE_MS = 60_000  # longer than any broker needs to come back
LEAVES = -1


class SimulatedConsumerGroup(SimulatedGroup):
    """Members that send full heartbeats, like real clients after a lost connection."""

    fenced_codes = (KafkaErrorCode.STALE_MEMBER_EPOCH,)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.members = [self._member(), self._member()]
        self._newcomer: Member | None = None
        self._topic_id = b""
        self._open: asyncio.Task[Any] | None = None

    def _member(self) -> Member:
        return Member(f"{self.group} {self.random.randbytes(8).hex()}", 0)

    async def form(self) -> None:
        """Send heartbeats until nothing changes: every partition has one owner, all members have one epoch."""
        for _ in range(HEARTBEATS_MAX):
            before = [(member.generation, member.partitions) for member in self.members]
            for member in self.members:
                assert await self._beat(member) == NONE
            if before == [(member.generation, member.partitions) for member in self.members]:
                break
        assert sorted(topic_partition for member in self.members for topic_partition in member.partitions) == list(
            range(self.partitions)
        )
        assert len({member.generation for member in self.members}) == 1

    async def _beat(self, member: Member) -> int:
        """Send a heartbeat and apply the response at once."""
        answer = await self.ask(self._request(member))
        self._take(member, answer)
        code: int = answer.error_code
        return code

    def _request(self, member: Member) -> Any:
        if member.generation == 0:
            return beat_join(self.group, member.id, self.topic, rebalance_timeout_ms=REBALANCE_MS)
        return fast_heartbeat(
            self.group,
            member.id,
            member.generation,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[self.topic],
            topic_partitions=owned({self._topic_id: member.partitions}) if member.partitions else [],
        )

    def _take(self, member: Member, answer: Any) -> None:
        if answer.error_code:
            return
        member.generation = answer.member_epoch
        if (received := given(answer)) is not None:
            assert len(received) <= 1
            self._topic_id = next(iter(received), self._topic_id)
            member.partitions = sorted(received.get(self._topic_id, []))

    async def begin_rebalance(self, phase: str) -> None:
        """A third member joins; some heartbeats are answered, the last one perhaps."""
        self._newcomer = self._member()
        all_members = [*self.members, self._newcomer]
        for member in [self._newcomer, *self.random.choices(all_members, k=self.random.randint(0, 6))]:
            assert await self._beat(member) == NONE
        self._open = asyncio.create_task(self.ask(self._request(self.random.choice(all_members))))

    async def go_on(self, fenced: Collection[str]) -> None:
        newcomer, self._newcomer = self._newcomer, None
        if newcomer is not None:
            self.members.append(newcomer)
            await self._end_open()
        for member in self.members:
            expected = KafkaErrorCode.FENCED_MEMBER_EPOCH if member.id in fenced else NONE
            assert await self._beat(member) == expected
            if expected != NONE:
                member.generation, member.partitions = 0, []
            self.resumed += expected == NONE
        await self.form()
        if newcomer is not None:
            self.members.remove(newcomer)
            assert (await self.ask(fast_heartbeat(self.group, newcomer.id, LEAVES))).error_code == NONE
            await self.form()

    async def _end_open(self) -> None:
        """Requests that were open when the broker ended: no response was received."""
        assert self._open is not None
        found = (await asyncio.gather(self._open, return_exceptions=True))[0]
        assert isinstance(found, KafkaConnectionError) or found.error_code == NONE, found
