"""Groups of Java's consumers and ours on one topic, with members that come and go, for a given time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from kafkalite_sdk import Producer

from tests.kit.zookeeper_era.mixed_group import MixedGroup
from tests.kit.zookeeper_era.processes import NEWEST, Process, start_java, start_ours
from tests.kit.zookeeper_era.tree import TopicPartition

MEMBERS_MAX = 5
RECORDS_PER_WRITE = 24
PAUSE_S = 0.2
Start = Callable[[], Coroutine[None, None, Process]]


class Writer:
    """Writes records to the partitions of a topic in turn until it is stopped.

    Attributes:
        ends: the offset behind the last acknowledged record of each partition.
    """

    def __init__(self, topic: str, partitions: int) -> None:
        self.ends: dict[TopicPartition, int] = {}
        self._stopped = asyncio.Event()
        self._partitions = itertools.cycle((topic, partition) for partition in range(partitions))

    async def run(self, address: str) -> None:
        """Write until stopped; everything is acknowledged then."""
        async with Producer(address) as producer:
            while not self._stopped.is_set():
                sent = [
                    producer.send(topic, b"record", partition=partition)
                    for topic, partition in itertools.islice(self._partitions, RECORDS_PER_WRITE)
                ]
                for each in sent:
                    written = await each
                    self.ends[written.topic, written.partition] = written.offset + 1
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), PAUSE_S)

    def stop(self) -> None:
        """End `run`."""
        self._stopped.set()


class Processes:
    """Two processes of each version: one that lives, and one that is killed and started again; and one for tools."""

    def __init__(self, folder: Path, versions: tuple[str, ...], languages: tuple[str, ...]) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._starts: dict[str, list[Start]] = {
            "java": [self._java(version) for version in versions],
            "ours": [lambda: start_ours(self._log("ours"))],
        }
        self.languages = languages
        self.lasting: dict[str, list[Process]] = {each: [] for each in languages}
        self.doomed: dict[str, list[Process]] = {each: [] for each in languages}
        self.tools: Process | None = None
        self._tools_start = self._java(NEWEST)

    def _java(self, version: str) -> Start:
        return lambda: start_java(self._log(f"java-{version}"), version)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}-{next(self._numbers)}.log"

    async def start(self) -> None:
        """Start all of them."""
        for language, processes in itertools.chain(self.lasting.items(), self.doomed.items()):
            for start in self._starts[language]:
                processes.append(await start())
        self.tools = await self._tools_start()

    async def kill(self, process: Process) -> None:
        """Kill one of `doomed`, and start another one in its place."""
        doomed = self.doomed[process.language]
        number = doomed.index(process)
        await process.kill()
        doomed[number] = await self._starts[process.language][number]()

    def any_of(self, language: str, random: Random) -> Process:
        """One of the processes of this language."""
        return random.choice(self.lasting[language] + self.doomed[language])

    async def end(self) -> None:
        """End all of them."""
        tools = [] if self.tools is None else [self.tools]  # VerifyConsumerRebalance fails always in 0.8.2
        for process in itertools.chain(*self.lasting.values(), *self.doomed.values(), tools):
            await process.end()


@asynccontextmanager
async def running_processes(
    folder: Path, versions: tuple[str, ...] = (NEWEST,), languages: tuple[str, ...] = ("java", "ours")
) -> AsyncIterator[Processes]:
    """Processes of both languages, ended after the block.

    Arguments:
        folder: for their logs.
        versions: of Java's consumers.
        languages: `java`, `ours`.
    """
    processes = Processes(folder, versions, languages)
    try:
        await processes.start()
        yield processes
    finally:
        await processes.end()


class Events:
    """What happens to groups: each language is killed, loses sessions, joins and leaves in a random order."""

    def __init__(self, groups: list[MixedGroup], processes: Processes, random: Random) -> None:
        self._groups = groups
        self._processes = processes
        self._random = random
        self._deck: list[tuple[str, str]] = []

    async def begin(self) -> None:
        """A member of each language joins each group."""
        await asyncio.gather(*(self._join(group, each) for group in self._groups for each in self._processes.languages))

    async def execute_next(self) -> None:
        """The next event, in all groups at once."""
        if not self._deck:
            names = ("join", "leave", "kill", "lose", "join")
            self._deck = [(name, language) for name in names for language in self._processes.languages]
            self._random.shuffle(self._deck)
        name, language = self._deck.pop()
        if name == "kill":
            await self._kill(language)
        else:
            await asyncio.gather(*(self._change(group, name, language) for group in self._groups))

    async def _kill(self, language: str) -> None:
        doomed = self._random.choice(self._processes.doomed[language])
        for group in self._groups:
            if all(each.member.process is not doomed for each in group.joined):
                await group.join(doomed)
            if len(group.joined) == 1:
                await group.join(self._processes.lasting[language][0])
        await self._processes.kill(doomed)
        for group in self._groups:
            group.killed(doomed)

    async def _change(self, group: MixedGroup, name: str, language: str) -> None:
        members = [each for each in group.joined if each.member.process.language == language]
        if name == "lose" and members:
            await group.lose_session(self._random.choice(members))
        elif name == "leave" and members and len(group.joined) > 1:
            await group.leave(self._random.choice(members))
        elif len(group.joined) < MEMBERS_MAX:
            await self._join(group, language)
        else:
            await group.leave(self._random.choice(group.joined))

    async def _join(self, group: MixedGroup, language: str) -> None:
        await group.join(self._processes.any_of(language, self._random))


async def run_groups(
    groups: list[MixedGroup], processes: Processes, writer: Writer, address: str, random: Random, seconds: float
) -> int:
    """Let groups change for a time, and check each quiet moment; returns how many there were.

    Arguments:
        groups: that read what the writer writes.
        processes: for their members.
        writer: of their topic.
        address: of the broker.
        random: of the seed.
        seconds: for how long.
    """
    loop = asyncio.get_running_loop()
    writing = loop.create_task(writer.run(address))
    events = Events(groups, processes, random)
    end, quiet = loop.time() + seconds, 0
    await events.begin()
    while True:
        complete = await asyncio.gather(*(group.quiet() for group in groups))
        assert processes.tools is not None
        for group, nodes in zip(groups, complete, strict=True):
            await group.verify(processes.tools, nodes)
        quiet += 1
        if writing.done() or loop.time() > end:
            break
        await events.execute_next()
    writer.stop()
    await writing
    await asyncio.gather(*(group.read_all(writer.ends) for group in groups))
    for group in groups:
        for joined in list(group.joined):
            await group.leave(joined)
    return quiet
