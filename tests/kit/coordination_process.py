"""A process that serves a coordination directory when it can: `python -m tests.kit.coordination_process DIRECTORY`.

It has one session, as a broker has, and prints "serves" when it has become the process that serves.
"""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import LoopClock, SystemRandom, ThreadOffload
from kafkalite.coordination.served.coordination import SERVERS, ServedCoordination
from kafkalite.coordination.zookeeper.coordination import connect_zookeeper

SESSION_MS = 60_000  # none expires


def start_process(directory: Path) -> subprocess.Popen[str]:
    """Start such a process."""
    command = [sys.executable, "-m", "tests.kit.coordination_process", str(directory)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wait_serving(process: subprocess.Popen[str]) -> None:
    """Wait until it serves."""
    assert process.stdout is not None
    assert process.stdout.readline() == "serves\n"


@contextmanager
def coordination_process(directory: Path) -> Iterator[None]:
    """A process of its own serves the directory within the block, so that any broker can be suspended."""
    with start_process(directory) as process:
        try:
            wait_serving(process)
            yield
        finally:
            process.kill()


class Report(logging.Handler):
    """Prints when this process serves."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("this broker serves"):
            print("serves", flush=True)


async def main(path: str) -> None:
    """Serve until the process is killed."""
    logger = logging.getLogger("kafkalite.coordination")
    logger.setLevel(logging.INFO)
    logger.addHandler(Report())
    loop = asyncio.get_running_loop()
    clock, random = LoopClock(loop), SystemRandom()
    served = ServedCoordination(path, Disk(), clock, random, ThreadOffload(loop))
    await served.open()
    connect_zookeeper(
        SERVERS, SESSION_MS, lambda outcome: outcome.result(), dial=served.dial, clock=clock, random=random
    )
    await loop.create_future()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
