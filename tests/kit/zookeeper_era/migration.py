"""A group of consumers of both languages moves its offsets from ZooKeeper to the broker and back, restart by restart.

It reads the flights all the time. After each step every report of the offsets is the same: ExportZkOffsets and
`kafkalite group offsets export` for ZooKeeper, kafka-consumer-groups and the same command for the broker.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kafkalite_sdk import Producer
from kafkalite_sdk.admin import Admin

from tests.kit import jvm
from tests.kit.brokers import wait_until
from tests.kit.clients.java import CLASSES
from tests.kit.flights import Flight
from tests.kit.zookeeper_era.commands import run_group_command
from tests.kit.zookeeper_era.mixed_group import Joined, MixedGroup
from tests.kit.zookeeper_era.processes import Process, start_java, start_ours
from tests.kit.zookeeper_era.tree import TopicPartition

ZOOKEEPER: dict[str, object] = {"offsets_storage": "zookeeper"}
BOTH: dict[str, object] = {"offsets_storage": "kafka", "dual_commit_enabled": True}
BROKER: dict[str, object] = {"offsets_storage": "kafka", "dual_commit_enabled": False}
LANGUAGES = ("java", "ours", "java", "ours")
AT_REBALANCES = {"auto_commit_interval_ms": 600_000}  # commits happen at rebalances and ends, and by command
Offsets = dict[TopicPartition, int]


class Migration:
    """The group, its consumers, each in a process of its own, and the records.

    Arguments:
        group: without members.
        topic: of the flights.
        address: of the broker.
        zookeeper: its address.
        flights: that are written, a part for each step.
        folder: for logs and files.
    """

    def __init__(
        self, group: MixedGroup, topic: str, address: str, zookeeper: str, flights: Sequence[Flight], folder: Path
    ) -> None:
        self.group = group
        self.ends: Offsets = {}
        self._topic, self._address, self._zookeeper, self._folder = topic, address, zookeeper, folder
        self._flights: Iterator[Flight] = iter(flights)
        self._consumers: list[Joined] = []
        self._numbers = itertools.count(1)

    async def begin(self) -> None:
        """All consumers join with offsets in ZooKeeper."""
        for language in LANGUAGES:
            self._consumers.append(await self._join(await self._start(language), ZOOKEEPER))

    async def end(self) -> None:
        """All consumers leave."""
        for each in self._consumers:
            await self.group.leave(each)
            await each.member.process.end()

    async def write(self, count: int) -> None:
        """Write the next flights, and note the ends of the partitions."""
        async with Producer(self._address) as producer:
            sent = [producer.send(self._topic, each.value, each.key) for each in itertools.islice(self._flights, count)]
            for each in sent:
                written = await each
                end = self.ends.get((written.topic, written.partition), 0)
                self.ends[written.topic, written.partition] = max(end, written.offset + 1)

    async def restart_all(self, settings: Mapping[str, object], count: int) -> None:
        """Restart each consumer with other settings while flights are written; then everything is read and committed.

        No record below the commits before it is processed again. More flights are written after the restarts: Java's
        consumer writes an offset to ZooKeeper only if it differs from that with which it has begun.
        """
        await self.commit()
        floor = dict(self.ends)
        repeated = self.group.ledger.repeated
        writing = asyncio.ensure_future(self.write(count))
        for number, each in enumerate(self._consumers):
            await self.group.leave(each)
            self._consumers[number] = await self._join(each.member.process, settings)
        await writing
        await self.group.quiet()
        await self.write(count)
        await self.commit()
        self._check_repeated(repeated, floor)

    async def kill_between_commits(self, language: str, settings: Mapping[str, object], count: int) -> None:
        """Kill a consumer that has committed to the broker and not to ZooKeeper; another one takes its place.

        No record below the commit to the broker is processed again.

        Arguments:
            language: of the consumer, `java` or `ours`.
            settings: of the consumer that takes its place.
            count: of flights that it reads before.
        """
        await self.write(count)
        await self.group.read_all(self.ends)
        number = LANGUAGES.index(language)
        killed = self._consumers[number]
        nodes = await self.group.quiet()
        owned = [each for each, stream in nodes.owners.items() if stream.startswith(f"{killed.member.id}-")]
        assert owned, f"{killed.member.id} owns no partition"
        killed.link.interrupt()
        killed.member.process.send("commit", killed.member.name)
        await self._until_committed({each: self.ends.get(each, 0) for each in owned})
        behind = [each for each in owned if int(nodes.offsets.get(each, 0)) < self.ends[each]]
        assert behind, "the consumer had nothing to commit to ZooKeeper"
        floor = {each: self.ends[each] for each in owned}
        repeated = self.group.ledger.repeated
        await killed.member.process.kill()
        self.group.killed(killed.member.process)
        self._consumers[number] = await self._join(await self._start(language), settings)
        await self.group.quiet()
        await self.commit()
        self._check_repeated(repeated, floor)

    async def _until_committed(self, wanted: Offsets) -> None:
        """Wait until the broker has these offsets."""
        loop = asyncio.get_running_loop()

        def is_committed() -> bool:
            found = asyncio.run_coroutine_threadsafe(self.broker_offsets(), loop).result()
            return all(found.get(each) == offset for each, offset in wanted.items())

        await asyncio.to_thread(wait_until, is_committed, "the commit to the broker", 30)

    def _check_repeated(self, before: int, floor: Offsets) -> None:
        again = self.group.ledger.repetitions[before:]
        wrong = [each for each in again if each.offset < floor.get((each.topic, each.partition), 0)]
        assert not wrong, (
            f"{len(wrong)} records below a commit were processed again: {wrong[:5]}\n{self.group.report()}"
        )

    async def commit(self) -> None:
        """Everything is read, and all consumers commit."""
        await self.group.read_all(self.ends)
        for each in self._consumers:
            await each.member.commit()

    async def _start(self, language: str) -> Process:
        log = self._folder / f"{language}-{next(self._numbers)}.log"
        return await (start_java if language == "java" else start_ours)(log)

    async def _join(self, process: Process, settings: Mapping[str, object]) -> Joined:
        self.group.settings = {**settings, **AT_REBALANCES}
        return await self.group.join(process)

    # Reports.

    async def broker_offsets(self) -> Offsets:
        """The offsets of the broker, by the SDK."""
        async with Admin(self._address) as admin:
            found = (await admin.group_offsets.list(self.group.name))[self.group.name]
        return {(each.topic, each.partition): one.offset for each, one in found.items()}

    async def check_zookeeper(self) -> None:
        """ExportZkOffsets and our command report the log ends."""
        expected = sorted(f"/consumers/{self.group.name}/offsets/{t}/{p}:{end}" for (t, p), end in self.ends.items())
        file = self._folder / f"export-{next(self._numbers)}"
        java = self._consumers[0].member.process
        arguments = ("--zkconnect", self._zookeeper, "--group", self.group.name, "--output-file", str(file))
        await java.tool("export", *arguments)
        self._check(sorted(file.read_text().splitlines()), expected)
        self._check(sorted(await self._export("--zookeeper", self._zookeeper)), expected)

    async def check_broker(self) -> None:
        """kafka-consumer-groups and our command report the log ends."""
        expected = sorted(f"/consumers/{self.group.name}/offsets/{t}/{p}:{end}" for (t, p), end in self.ends.items())
        tool = ["--bootstrap-server", self._address, "--describe", "--group", self.group.name]
        done = await asyncio.to_thread(jvm.run_tool, jvm.PREVIOUS, CLASSES["consumer-groups"], tool)
        rows = [line.split() for line in done.stdout.splitlines() if line.startswith(self.group.name)]
        self._check({(row[1], int(row[2])): int(row[3]) for row in rows}, self.ends)
        self._check(sorted(await self._export("--znodes", "-b", self._address)), expected)

    def _check(self, reported: object, expected: object) -> None:
        assert reported == expected, f"reported {reported}, expected {expected}\n{self.group.report()}"

    async def _export(self, *options: str) -> list[str]:
        return await run_group_command("offsets", "export", self.group.name, *options)
