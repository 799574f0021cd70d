"""A program that uses the SDK prints nothing in development mode, unless it forgets to close a client."""

import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite.testing.thread import BrokerThread

PROGRAM = """
import asyncio, gc, sys
from kafkalite_sdk import Consumer, Producer, errors
from kafkalite.server.broker import Broker

async def use(address):
    async with Producer(address) as producer, Consumer(address, group="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("orders")
        sends = [producer.send("orders", b"%d" % number) for number in range(100)]
        await producer.flush()
        assert [send.result().offset for send in sends] == list(range(100))
        seen = 0
        while seen < 100:
            seen += len(await consumer.poll(timeout=1.0))
        await consumer.commit()
    dead = Producer("127.0.0.1:1")
    try:
        await dead.start()
    except errors.KafkaError:
        await dead.close()

async def forget(address):
    await Producer(address).start()

async def main(directory, what):
    asyncio.get_running_loop().slow_callback_duration = 60.0  # the machine may be busy
    async with Broker(directory) as broker:
        await what(broker.address)
    print("done")

if sys.argv[1] == "uvloop":
    import uvloop as loops
else:
    loops = asyncio
with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
    runner.run(main(sys.argv[2], globals()[sys.argv[3]]))
gc.collect()
"""


def run(loop: str, directory: Path, end: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-X", "dev", "-c", PROGRAM, loop, str(directory), end]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_development_mode_prints_nothing(loop: str, tmp_path: Path) -> None:
    done = run(loop, tmp_path, "use", "-W", "error")
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


def test_forgotten_close_is_named(tmp_path: Path) -> None:
    done = run("asyncio", tmp_path, "forget")
    assert 'ResourceWarning: unclosed Producer: use "async with" or await its close()' in done.stderr


FORGETS = """
import asyncio, sys
from kafkalite_sdk import Producer

async def main():
    producer = Producer(sys.argv[1], linger_ms=60_000)
    await producer.start()
    producer.send("orders", b"first")
    await producer.flush()
    for _ in range(int(sys.argv[2])):
        producer.send("orders", b"lost")
    if sys.argv[3] == "kept":
        global kept
        kept = producer

asyncio.run(main())
"""

FORGOTTEN = (
    "a Producer was not closed, and 3 record(s) were not acknowledged; they may be lost: "
    'use "async with", or await its close()\n'
)


@pytest.mark.parametrize("end", ["dropped", "kept"])
def test_forgotten_close_with_records_is_an_error_with_their_number(end: str) -> None:
    with BrokerThread() as broker:
        for count, error in (("3", FORGOTTEN), ("0", "")):
            command = [sys.executable, "-c", FORGETS, broker.address, count, end]
            done = subprocess.run(command, capture_output=True, text=True, timeout=240)
            assert (done.stdout, done.stderr, done.returncode) == ("", error, 0)
