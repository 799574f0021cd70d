"""A group whose consumers are restarted one after another, with other storages of their offsets.

No record may be skipped. After a restart a record may be read again only if it is not below the offset that was
committed before it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from kafkalite_sdk import Producer
from kafkalite_sdk.blocking import Admin

from tests.kit.brokers import wait_until
from tests.kit.flights import Flight
from tests.kit.zookeeper_era.links import Link
from tests.kit.zookeeper_era.mixed_group import SETTINGS
from tests.kit.zookeeper_era.processes import Member, Process, Read

Partition = tuple[str, int]
ZOOKEEPER, BOTH, BROKER = "zookeeper", "both", "broker"
STORAGES: dict[str, dict[str, object]] = {
    ZOOKEEPER: {"offsets_storage": "zookeeper"},
    BOTH: {"offsets_storage": "kafka", "dual_commit_enabled": True},
    BROKER: {"offsets_storage": "kafka", "dual_commit_enabled": False},
}
QUIET_S = 60.0


class RollingGroup:
    """The group, and what its members have read.

    Arguments:
        name: group id.
        address: of the broker.
        topic: that all members read.
        partitions: their number.

    Attributes:
        members: by name.
        ends: log end offsets.
        violations: records that were read again although an offset behind them was committed.
    """

    def __init__(self, name: str, address: str, topic: str, partitions: int) -> None:
        self.name = name
        self.members: dict[str, Member] = {}
        self.ends: dict[Partition, int] = {(topic, number): 0 for number in range(partitions)}
        self.violations: list[Read] = []
        self._address = address
        self._topic = topic
        self._committed: dict[Partition, int] = dict.fromkeys(self.ends, 0)
        self._read: dict[Partition, set[int]] = defaultdict(set)

    async def open(self, name: str, process: Process, storage: str, zookeeper: str) -> None:
        """Open a member.

        Arguments:
            name: of the member.
            process: that it runs in.
            storage: a key of STORAGES.
            zookeeper: host:port.
        """
        settings = {
            **SETTINGS,
            **STORAGES[storage],
            "group_id": self.name,
            "zookeeper_connect": zookeeper,
            "auto_commit_interval_ms": 60_000,  # it commits at rebalances, at its end, and on request
        }
        self.members[name] = await process.open(name, "static", self._topic, 2, self._note, **settings)

    async def restart(self, name: str, storage: str, zookeeper: str) -> None:
        """Close a member, and open it with another storage."""
        process = self.members[name].process
        await self.members.pop(name).close()
        await self.open(name, process, storage, zookeeper)

    async def write(self, flights: Sequence[Flight]) -> None:
        """Write flights to all partitions in turn."""
        async with Producer(self._address) as producer:
            for each in flights:
                number = each.row % len(self.ends)
                producer.send(self._topic, each.value, key=each.key, partition=number)
                self.ends[self._topic, number] += 1
            await producer.flush()

    async def commit(self) -> None:
        """Wait until all records are read and each partition has an owner; commit, and remember the offsets."""
        await asyncio.to_thread(wait_until, self._all_read, "all records are read", QUIET_S)
        for member in list(self.members.values()):
            await member.process.synchronize()
            await member.commit()
        self._committed = dict(self.ends)

    async def kill_between_commits(self, name: str, link: Link) -> None:
        """Kill a member with dual commit that has committed to the broker, and not to ZooKeeper.

        Arguments:
            name: of the member, the only one of its process.
            link: its connection to ZooKeeper, which is interrupted before the commit.
        """
        await asyncio.to_thread(wait_until, self._all_read, "all records are read", QUIET_S)
        killed = self.members.pop(name)
        await killed.process.synchronize()
        link.interrupt()
        killed.process.send("commit", name)
        for member in self.members.values():
            await member.commit()
        await asyncio.to_thread(wait_until, self._broker_has_all, "the broker has the offsets", QUIET_S)
        await killed.process.kill()
        self._committed = dict(self.ends)

    def _broker_has_all(self) -> bool:
        with Admin(self._address) as admin:
            found = admin.group_offsets.list(self.name)[self.name]
        return {(each.topic, each.partition): one.offset for each, one in found.items()} == self.ends

    @property
    def skipped(self) -> dict[Partition, list[int]]:
        """The records that no member has read."""
        return {each: sorted({*range(end)} - self._read[each]) for each, end in self.ends.items()}

    def _all_read(self) -> bool:
        return all(len(self._read[each]) == end for each, end in self.ends.items())

    def _note(self, read: Read) -> None:
        at = read.topic, read.partition
        if read.offset < self._committed[at]:
            self.violations.append(read)
        self._read[at].add(read.offset)
