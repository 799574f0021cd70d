"""What the tests of the blocking clients share: topics with records, counted switches of threads, programs."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from kafkalite_sdk.blocking import Producer
from kafkalite_sdk.blocking.loop_thread import LoopThread
from kafkalite_sdk.blocking.operation import Operation

from kafkalite.testing.thread import BrokerThread

_numbers = count(1)

AROUND = """
import asyncio, os, signal, sys, threading, time
from kafkalite_sdk import TopicPartition, blocking, errors

address, topic = sys.argv[1:]
first = TopicPartition(topic, 0)


async def hold(batch):
    await asyncio.Event().wait()


def interrupt(*functions):
    '''Send SIGINT when the main thread waits in one of these functions.'''
    def watch():
        main = threading.main_thread().ident
        while True:
            frame = sys._current_frames()[main]
            while frame is not None:
                if frame.f_code.co_qualname in functions:
                    os.kill(os.getpid(), signal.SIGINT)
                    return
                frame = frame.f_back
            time.sleep(0.001)
    threading.Thread(target=watch, daemon=True).start()


def interrupted(call, *functions):
    '''Call a function that Ctrl-C must end.'''
    interrupt(*(functions or ("Operation.wait",)))
    try:
        call()
    except KeyboardInterrupt:
        return
    raise AssertionError("the call has returned")


"""


def new_topic(broker: BrokerThread, partitions: int = 1, records: int = 0) -> str:
    """Create a topic with records, whose values are their numbers; return its name."""
    name = f"blocking-{next(_numbers)}"
    broker.create_topic(name, partitions=partitions)
    if records:
        with Producer(broker.address) as producer:
            for number in range(records):
                producer.send(name, b"%d" % number, partition=number % partitions)
    return name


def count_switches(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Count the operations that threads pass to loops."""
    counted: list[None] = []
    begin = LoopThread.begin

    def counting(thread: LoopThread, operation: object) -> None:
        counted.append(None)
        begin(thread, operation)  # type: ignore[arg-type]

    monkeypatch.setattr(LoopThread, "begin", counting)
    return counted


def run_program(program: str, address: str, topic: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, behind the functions of `AROUND`."""
    code = AROUND + textwrap.dedent(program)
    command = [sys.executable, *options, "-c", code, address, topic]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@contextmanager
def interrupted_behind_the_result(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The first wait raises KeyboardInterrupt when its operation has ended."""
    wait, interrupts = Operation.wait, []

    def waiting(operation: Operation[Any]) -> None:
        wait(operation)
        if not interrupts:
            interrupts.append(None)
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Operation, "wait", waiting)
        yield
