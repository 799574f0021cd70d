"""Our consumers of the ZooKeeper era in a process of their own, with the conversation of `OldConsumers.java`.

    python -m tests.kit.zookeeper_era.our_consumers

A record is printed before anything else runs in this process, so no commit is ahead of the output.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from kafkalite_sdk.zk import ConsumerConnector

TEXTS = {"zookeeper.connect", "group.id", "consumer.id", "round.robin.release"}


def say(*words: str) -> None:
    """Write a line."""
    sys.stdout.write("\t".join(words).replace("\n", " ") + "\n")
    sys.stdout.flush()


class Member:
    """One connector, and the tasks that read its streams."""

    def __init__(self, name: str, pattern: str, what: str, streams: str, *settings: str) -> None:
        self.name = name
        self._pattern, self._what, self._streams = pattern, what, int(streams)
        self._settings = {key.replace(".", "_"): parsed(key, value) for key, _, value in map(split, settings)}
        self._readers: list[asyncio.Task[None]] = []
        self._commands: asyncio.Queue[tuple[str, Callable[[], Awaitable[None]]]] = asyncio.Queue()
        self._worker = asyncio.ensure_future(self._work())

    def execute(self, done: str, step: Callable[[], Awaitable[None]]) -> None:
        """Queue a command; `done` is its answer."""
        self._commands.put_nowait((done, step))

    async def _work(self) -> None:
        done = ""
        while done != "closed":
            done, step = await self._commands.get()
            try:
                await step()
                say(self.name, done)
            except Exception as failure:
                traceback.print_exc()
                say(self.name, "failed", repr(failure))

    async def open(self) -> None:
        """Create the connector and its streams."""
        self._connector = ConsumerConnector(**self._settings)
        await self._connector.start()
        if self._pattern == "static":
            counts = dict.fromkeys(self._what.split(","), self._streams)
            streams = [stream for each in self._connector.create_message_streams(counts).values() for stream in each]
        else:
            option = {f"{self._pattern}list": self._what}
            streams = self._connector.create_message_streams_by_filter(**option, streams=self._streams)
        await self._connector.wait_until_assigned()
        self._readers = [asyncio.ensure_future(self._read(str(n), stream)) for n, stream in enumerate(streams)]

    async def _read(self, number: str, stream: AsyncIterator[Any]) -> None:
        try:
            async for record in stream:
                say(self.name, "read", number, record.topic, str(record.partition), str(record.offset))
        except Exception as failure:
            traceback.print_exc()
            say(self.name, "failed", repr(failure))

    async def commit(self) -> None:
        """Commit the positions of the streams."""
        await self._connector.commit_offsets()

    async def close(self) -> None:
        """Shut the connector down."""
        await self._connector.shutdown()
        await asyncio.gather(*self._readers)


def split(pair: str) -> tuple[str, str, str]:
    return pair.partition("=")


def parsed(key: str, value: str) -> object:
    """A setting as Python has it."""
    if key in TEXTS:
        return value
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.lstrip("-").isdigit() else value


async def main() -> None:
    """Execute the commands until the input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    members: dict[str, Member] = {}
    say("ready", "")
    async for line in reader:
        command, *words = line.decode().rstrip("\n").split("\t")
        if command == "open":
            member = members[words[0]] = Member(*words)
            member.execute("opened", member.open)
        elif command == "commit":
            members[words[0]].execute("committed", members[words[0]].commit)
        elif command == "close":
            member = members.pop(words[0])
            member.execute("closed", member.close)
        elif command == "ping":
            say("pong", words[0])
        else:
            raise ValueError(f"unknown command {command}")


if __name__ == "__main__":
    asyncio.run(main())
