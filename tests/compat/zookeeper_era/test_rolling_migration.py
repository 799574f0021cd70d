"""The way to the broker's offsets and back by rolling restarts, as in docs/legacy.md, with Java's consumers and ours.

After each step Kafka's tools and our command report the same offsets.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkalite.cli.main import main
from tests.kit import jvm
from tests.kit.brokers import ApacheKafkaZooKeeper, wait_until
from tests.kit.flights import Flight, flights
from tests.kit.zookeeper_era.links import Link
from tests.kit.zookeeper_era.processes import Process, start_ours
from tests.kit.zookeeper_era.rolling import BOTH, BROKER, ZOOKEEPER, RollingGroup

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
    pytest.mark.xdist_group("zookeeper-era"),
]
GROUP, PARTITIONS, EACH = "rolling", 12, 48
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
Offsets = dict[int, int]


class Reports:
    """What Kafka's tools and our command say about the group."""

    def __init__(self, kafka: ApacheKafkaZooKeeper, java: Process, topic: str, directory: Path) -> None:
        self._kafka = kafka
        self._java = java
        self._topic = topic
        self._file = directory / "exported"

    async def ours(self, *args: str) -> str:
        """The output of a group command."""
        done = await asyncio.to_thread(self._run, *args)
        assert done.exit_code == 0, f"{args} ended with {done.exit_code}:\n{done.output}"
        return done.stdout

    def _run(self, *args: str) -> Result:
        return CliRunner().invoke(main, ["group", *args, "--zookeeper", self._kafka.zookeeper.address])

    async def wait_for_owners(self, consumers: Collection[str]) -> None:
        """Wait until these consumers are registered and own all partitions: the last rebalance is over."""

        def complete() -> bool:
            verified = self._run("verify", GROUP, "--json")
            return verified.exit_code == 0 and json.loads(verified.stdout)["consumers"] == len(consumers)

        await asyncio.to_thread(wait_until, complete, f"{len(consumers)} consumers own all partitions", 60.0, 0.2)

    async def check(self, storage: str, ends: Offsets) -> None:
        """All report these offsets, in this storage."""
        described = json.loads(await self.ours("describe", GROUP, "--json"))
        current = {each["partition"]: each["current_offset"] for each in described["partitions"]}
        stored = {each["partition"]: each[f"{ZOOKEEPER}_offset"] for each in described["partitions"]}
        committed = {each["partition"]: each[f"{BROKER}_offset"] for each in described["partitions"]}
        assert current == ends
        if storage != BROKER:
            assert stored == ends == await self.exported()
            lines = [f"/consumers/{GROUP}/offsets/{self._topic}/{each}:{end}" for each, end in ends.items()]
            assert (await self.ours("offsets", "export", GROUP)).splitlines() == lines
        if storage != ZOOKEEPER:
            assert committed == ends == await self.kafkas()

    async def exported(self) -> Offsets:
        """The lines of ExportZkOffsets."""
        address = self._kafka.zookeeper.address
        await self._java.tool("export", "--zkconnect", address, "--group", GROUP, "--output-file", str(self._file))
        found = re.findall(rf"/consumers/{GROUP}/offsets/{self._topic}/(\d+):(\d+)\n", self._file.read_text())
        return {int(partition): int(offset) for partition, offset in sorted(found)}

    async def kafkas(self) -> Offsets:
        """What kafka-consumer-groups describes."""
        options = ["--bootstrap-server", self._kafka.address, "--group", GROUP, "--describe"]
        done = await asyncio.to_thread(jvm.run_tool, jvm.PREVIOUS, TOOL, options)
        found = re.findall(rf"{GROUP}\s+{self._topic}\s+(\d+)\s+(\d+)", done.stdout)
        return {int(partition): int(offset) for partition, offset in sorted(found)}


async def test_both_rolling_restarts_and_back(
    kafka: ApacheKafkaZooKeeper,
    zookeeper: str,
    java: Process,
    ours: Process,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """Flights are written during each restart; one of our consumers is killed between its two commits."""
    topic = await asyncio.to_thread(new_topic, PARTITIONS)
    group, reports = RollingGroup(GROUP, kafka.address, topic, PARTITIONS), Reports(kafka, java, topic, tmp_path)
    rows = iter(flights(24 * EACH))
    for name, process in (("j1", java), ("j2", java), ("o1", ours), ("o2", ours)):
        await group.open(name, process, ZOOKEEPER, zookeeper)
    for storage in (BOTH, BROKER, BOTH, ZOOKEEPER):
        for name in list(group.members):
            await asyncio.gather(group.write(list(islice(rows, EACH))), group.restart(name, storage, zookeeper))
            await group.commit()
        if storage is BOTH:
            await lose_member(group, zookeeper, tmp_path, list(islice(rows, EACH)))
            await group.write(list(islice(rows, EACH)))
        await reports.wait_for_owners(group.members)
        await group.write(
            list(islice(rows, EACH))
        )  # what was written before may have been read before the last rebalance
        await group.commit()
        assert (group.violations, any(group.skipped.values())) == ([], False)
        await reports.check(storage, {number: end for (_, number), end in group.ends.items()})
        assert all(member.reads for member in group.members.values()), "each consumer owns partitions"


async def lose_member(group: RollingGroup, zookeeper: str, folder: Path, rows: Sequence[Flight]) -> None:
    """A fifth consumer joins, and is killed between its two commits; the others continue from the larger offsets."""
    process, link = await start_ours(folder / "killed.log"), await Link.open(zookeeper)
    await group.open("o3", process, BOTH, link.address)
    await group.commit()
    await group.write(rows)
    await group.commit()
    assert group.members["o3"].reads, "it owns partitions"
    await group.write(rows)
    await group.kill_between_commits("o3", link)
    link.close()
