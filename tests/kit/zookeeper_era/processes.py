"""Processes with consumers of the ZooKeeper era, Java's (`OldConsumers.java`) and ours (`our_consumers.py`).

Both are one conversation of lines: commands on standard input, what the consumers do on standard output. A process that
is killed has said everything that it printed; `Process.synchronize` waits until a running one has.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.kit import jvm

SOURCE = Path(__file__).parent / "OldConsumers.java"
OURS = "tests.kit.zookeeper_era.our_consumers"
NEWEST = "1.1.1"
START_S = 60.0
ANSWER_S = 60.0
TOOLS = {
    "export": "kafka.tools.ExportZkOffsets",
    "import": "kafka.tools.ImportZkOffsets",
    "update": "kafka.tools.UpdateOffsetsInZK",
    "verify": "kafka.tools.VerifyConsumerRebalance",
    "check": "kafka.tools.ConsumerOffsetChecker",
}
_words = itertools.count(1)


class Read(NamedTuple):
    """A record that a stream has returned."""

    topic: str
    partition: int
    offset: int


class FailedError(Exception):
    """A consumer reported an exception; the text is Java's or Python's."""


class Member:
    """One connector of a process.

    Attributes:
        id: its consumer id in ZooKeeper.
        reads: the records it returned, in order of the output.
        failures: what it reported.
    """

    def __init__(self, process: Process, name: str, consumer_id: str, on_read: Callable[[Read], None]) -> None:
        self.process = process
        self.name = name
        self.id = consumer_id
        self.reads: list[Read] = []
        self.failures: list[str] = []
        self._on_read = on_read
        self._answers: asyncio.Queue[str] = asyncio.Queue()

    def received(self, words: Sequence[str]) -> None:
        """One line about it, without its name."""
        if words[0] == "read":
            read = Read(words[2], int(words[3]), int(words[4]))
            self.reads.append(read)
            self._on_read(read)
        elif words[0] == "failed":
            self.failures.append(words[1])
            self._answers.put_nowait(f"failed: {words[1]}")
        elif words[0] != "released":
            self._answers.put_nowait(words[0])

    async def expect(self, word: str) -> None:
        """Wait for the answer to a command. Raises FailedError if it is another one."""
        async with asyncio.timeout(ANSWER_S):
            answer = await self._answers.get()
        if answer != word:
            raise FailedError(f"{self.name}: {answer} instead of {word}\n{self.process.log_tail()}")

    async def commit(self) -> None:
        """Commit the positions of its streams."""
        self.process.send("commit", self.name)
        await self.expect("committed")

    async def close(self) -> None:
        """Shut it down."""
        self.process.send("close", self.name)
        await self.expect("closed")
        del self.process.members[self.name]


class Process:
    """A running process.

    Attributes:
        language: `java` or `ours`.
        members: its open connectors, by name.
    """

    def __init__(self, language: str, log: Path) -> None:
        self.language = language
        self.members: dict[str, Member] = {}
        self._log = log
        self._tools: asyncio.Queue[str] = asyncio.Queue()
        self._pongs: dict[str, asyncio.Event] = {}
        self._ready = asyncio.Event()

    async def start(self, command: Sequence[str]) -> None:
        """Start it and wait until it accepts commands. Raises FailedError with its log if it does not."""
        with open(self._log, "ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log, limit=1 << 24
            )
        self._reader = asyncio.ensure_future(self._read())
        ready = asyncio.ensure_future(self._ready.wait())
        await asyncio.wait([ready, self._reader], timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not self._ready.is_set():
            await self.kill()
            raise FailedError(f"the process did not start:\n{self.log_tail()}")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            name, *words = line.decode().rstrip("\n").split("\t")
            if name == "ready":
                self._ready.set()
            elif name == "tool":
                self._tools.put_nowait(bytes.fromhex(words[0]).decode())
            elif name == "pong":
                self._pongs.pop(words[0]).set()
            elif name in self.members:
                self.members[name].received(words)

    def send(self, *words: str) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(("\t".join(words) + "\n").encode())

    async def open(
        self,
        name: str,
        pattern: str,
        what: str,
        streams: int,
        on_read: Callable[[Read], None] = lambda read: None,
        **settings: object,
    ) -> Member:
        """Open a connector and wait until its first rebalance is over.

        Arguments:
            name: of the member, which has the consumer id `GROUP_name`.
            pattern: `static`, `white` or `black`.
            what: topics, separated by commas, or a regular expression.
            streams: number of streams, per topic if static.
            on_read: is called for each record.
            settings: of the consumer, under Kafka's names with `_` for `.`.
        """
        member = self.begin_open(name, pattern, what, streams, on_read, **settings)
        await member.expect("opened")
        return member

    def begin_open(
        self,
        name: str,
        pattern: str,
        what: str,
        streams: int,
        on_read: Callable[[Read], None] = lambda read: None,
        **settings: object,
    ) -> Member:
        """The same without the wait: the member's next answer is `opened`."""
        kafkas = {"consumer.id": name, **{key.replace("_", "."): value for key, value in settings.items()}}
        member = self.members[name] = Member(self, name, f"{kafkas['group.id']}_{name}", on_read)
        values = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in kafkas.items()}
        self.send("open", name, pattern, what, str(streams), *(f"{key}={value}" for key, value in values.items()))
        return member

    async def tool(self, name: str, *args: str) -> str:
        """Run one of TOOLS in a Java process; returns what it printed."""
        self.send("tool", TOOLS[name], *args)
        async with asyncio.timeout(ANSWER_S):
            return await self._tools.get()

    async def synchronize(self) -> None:
        """Wait until everything that it printed so far has been received."""
        word = str(next(_words))
        event = self._pongs[word] = asyncio.Event()
        self.send("ping", word)
        async with asyncio.timeout(ANSWER_S):
            await event.wait()

    async def kill(self) -> None:
        """SIGKILL, and receive what it had printed."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reader

    async def end(self) -> None:
        """End of its input: it exits, or is killed after a while."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._reader
        except TimeoutError:
            await self.kill()
            raise
        await self._process.wait()

    def log_tail(self) -> str:
        """The end of its standard error."""
        return self._log.read_text(errors="replace")[-4000:]


def java_start(version: str = NEWEST, log: str = "WARN", heap: str = "256m") -> list[str]:
    """The command line of a Java process. Blocks while jars are fetched and the source is compiled."""
    classes = jvm.compiled(version, SOURCE)
    archive = jvm.class_archive(version, "consumers")
    command = jvm.java_command(version, SOURCE.stem, heap=heap, log=log, classes=classes, archive=archive)
    if not archive.exists():
        command.insert(1, f"-XX:ArchiveClassesAtExit={archive}")
    return command


def our_start() -> list[str]:
    """The command line of a process with our consumers."""
    return [sys.executable, "-m", OURS]


async def start_java(log: Path, version: str = NEWEST) -> Process:
    """Start a Java process; its standard error goes to `log`."""
    process = Process("java", log)
    await process.start(await asyncio.to_thread(java_start, version))
    return process


async def start_ours(log: Path) -> Process:
    """Start a process with our consumers; its standard error goes to `log`."""
    process = Process("ours", log)
    await process.start(our_start())
    return process
