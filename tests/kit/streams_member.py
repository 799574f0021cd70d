"""A member with four streams, to be killed: `python -m ... NAME ADDRESS GROUP TOPIC PROTOCOL SESSION_MS SLOW JOURNAL`.

Its first stream handles SLOW records with a pause for each; the task of its second one is cancelled and restarted after
each CANCEL_AFTER records. Every event is a line of JOURNAL before it has an effect: assignments, records, commits.
SIGTERM closes the consumer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from kafkalite_sdk import Consumer
from kafkalite_sdk.consumer.listeners import RebalanceListener
from kafkalite_sdk.interceptors.consumer import ConsumerInterceptor, Offsets

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from tests.kit.sdk_load import elapse
from tests.kit.streams_checker import NOTHING, Event

STREAMS = 4
PAUSE_S = 0.005
CANCEL_AFTER = 500
COMMIT_MS = 50
MAX_POLL_RECORDS = 200


class Journal(RebalanceListener, ConsumerInterceptor):
    """Writes events to a file, each in one write: a killed process has no event in a buffer."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, name: str, partition: int, offset: int = NOTHING) -> None:
        os.write(self._file, b"%d %b %d %d\n" % (time.monotonic_ns(), name.encode(), partition, offset))

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for each in partitions:
            self.write("assigned", each.partition)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        for each in partitions:
            self.write("revoked", each.partition)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        for each in partitions:
            self.write("lost", each.partition)

    def on_commit(self, offsets: Offsets, error: KafkaError | None) -> None:
        if error is None:
            for partition, committed in offsets.items():
                self.write("committed", partition.partition, committed.offset)


class JournalReader:
    """Reads the events of a member while it writes them."""

    def __init__(self, member: str, path: Path) -> None:
        self._member = member
        self._path = path
        self._position = 0

    def read(self) -> list[Event]:
        """The events since the last call."""
        if not self._path.exists():
            return []
        with open(self._path, "rb") as file:
            file.seek(self._position)
            lines = file.read().rpartition(b"\n")[0].splitlines()
        self._position += sum(len(line) + 1 for line in lines)
        fields = (line.decode().split(" ") for line in lines)
        return [Event(int(when), name, self._member, int(number), int(at)) for when, name, number, at in fields]


async def handle(stream: Any, journal: Journal, slow: int, limit: int = -1) -> None:
    """Handle the records of a stream; after `limit` of them the task is cancelled within the next one."""
    async for record in stream:
        journal.write("begun", record.partition, record.offset)
        try:
            if not limit:
                asyncio.current_task().cancel()  # type: ignore[union-attr]
            await elapse(PAUSE_S if slow > 0 else 0)
        except asyncio.CancelledError:
            journal.write("cancelled", record.partition, record.offset)
            raise
        journal.write("completed", record.partition, record.offset)
        slow, limit = slow - 1, limit - 1


async def handle_with_restarts(stream: Any, journal: Journal) -> None:
    """Handle the records of a stream in one task after the other."""
    ended = False
    while not ended:
        task = asyncio.ensure_future(handle(stream, journal, 0, CANCEL_AFTER))
        with suppress(asyncio.CancelledError):
            await task
        current = asyncio.current_task()
        assert current is not None
        ended = not task.cancelled() or current.cancelling() > 0


async def main(address: str, group: str, topic: str, protocol: str, session_ms: int, slow: int, path: Path) -> None:
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    journal = Journal(path)
    session = {"session_timeout_ms": session_ms, "heartbeat_interval_ms": 200} if protocol == "classic" else {}
    options: Any = {"group": group, "group_protocol": protocol, "auto_commit_interval_ms": COMMIT_MS, **session}
    options |= {"auto_offset_reset": "earliest", "max_poll_records": MAX_POLL_RECORDS, "interceptors": [journal]}
    async with Consumer(address, enable_auto_commit=True, **options) as consumer, asyncio.TaskGroup() as tasks:
        consumer.subscribe(topic, listener=journal)
        first, second, *others = consumer.streams(STREAMS)
        tasks.create_task(handle(first, journal, slow))
        tasks.create_task(handle_with_restarts(second, journal))
        for stream in others:
            tasks.create_task(handle(stream, journal, 0))
        await ending.wait()
        await consumer.close()


if __name__ == "__main__":
    name, address, group, topic, protocol, session_ms, slow, path = sys.argv[1:]
    asyncio.run(main(address, group, topic, protocol, int(session_ms), int(slow), Path(path)))
