"""A poll loop of a group: writes the row number and the CRC of each record to a file.

`python -m tests.kit.application.loop ADDRESS FILE`; SIGTERM ends it. It prints READY when it owns its first partitions,
then the number of records of each poll.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import zlib
from collections.abc import Iterable

import uvloop
from kafkalite_sdk import Consumer, RebalanceListener, TopicPartition

from tests.kit.application import GROUP, READY, SLOW_CALLBACK_S, TOPIC
from tests.kit.flights import row_of

POLL_S = 0.5


class Ready(RebalanceListener):
    """Prints READY, once."""

    def __init__(self) -> None:
        self._is_ready = False

    def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        if not self._is_ready and any(True for _ in partitions):
            self._is_ready = True
            print(READY, flush=True)


async def main(address: str, path: str) -> None:
    ending, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.slow_callback_duration = SLOW_CALLBACK_S
    loop.add_signal_handler(signal.SIGTERM, ending.set)
    with open(path, "a", encoding="ascii") as sink:
        async with Consumer(address, group=GROUP, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(TOPIC, listener=Ready())
            while not ending.is_set():
                records = await consumer.poll(POLL_S)
                for record in records:
                    sink.write(f"{row_of(record.value)} {zlib.crc32(record.value)}\n")
                if records:
                    print(len(records), flush=True)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
