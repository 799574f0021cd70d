"""A producer and a consumer that ask for nothing unusual, in a process of their own, and what they saw.

The producer sends at a fixed rate, waiting or not: waits count from the planned moment of a request. The consumer
fetches what is there as soon as it has taken what came before. One thread runs both, so that the time in which this
process had no core is known for every wait (`perf.loads.fairness.waits`).

Started by `Steady`: it reads its parameters as a line of JSON, prints `ready`, works until its standard input ends, and
prints what it saw as JSON.
"""

import gc
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from kafkalite.records import Builder, batches
from perf.group_wire import Reader
from perf.loads.fairness import wire
from perf.loads.fairness.prober import Asked, Stream, probe
from perf.loads.fairness.waits import Delay, ProcessDelay, Wait
from tests.kit.checker import History, Partition
from tests.kit.load import number_of, value_of

ROOT = Path(__file__).parents[3]
INTERVAL_S = 0.005
FETCH_WAIT_MS = 100
RECORDS = 2  # of a request
END_S = 120.0


class Producer(Stream):
    """One batch per request, to partition 0 of its topic."""

    def __init__(self, host: str, port: int, topic: str, first: int, broker: ProcessDelay) -> None:
        super().__init__(host, port, b"", INTERVAL_S, broker)
        self._topic, self._number = topic, first
        self._sent = list[list[int]]()
        self.asked = dict[int, Asked]()  # by number, until it has been read
        self.acknowledged = list[tuple[list[int], int]]()

    def ask_one(self, planned: float, queued_s: float) -> Asked:
        asked = super().ask_one(planned, queued_s)
        self.asked.update(dict.fromkeys(self._sent[-1], asked))
        return asked

    def request(self) -> bytes:
        numbers = list(range(self._number, self._number + RECORDS))
        self._number += RECORDS
        self._sent.append(numbers)
        builder, now_ms = Builder(1 << 16), time.time_ns() // 1_000_000
        for number in numbers:
            builder.append(now_ms, None, value_of(number))
        return wire.produce(self._topic, {0: bytes(builder.build(0))})

    def took(self, response: bytes, asked: Asked) -> None:
        super().took(response, asked)
        reader = Reader(response, 8)
        reader.text()
        reader.take(8)
        error, offset = reader.int16(), reader.int64()
        if error:
            raise ValueError(f"a produce request failed with error {error}")
        self.acknowledged.append((self._sent[len(self.acknowledged)], offset))


class Consumer(Stream):
    """One fetch under way, the next one behind its response. A wait is that of a record, from its produce request."""

    def __init__(self, host: str, port: int, topic: str, broker: ProcessDelay, producer: Producer) -> None:
        super().__init__(host, port, b"", FETCH_WAIT_MS / 1000, broker)
        self._topic, self._offset, self._asked_of = topic, 0, producer.asked
        self.records = list[tuple[int, int]]()

    def ask(self, now: float, queued_s: float) -> None:
        if not self.under_way:
            self.ask_one(now, queued_s)
        self.next_at = now + FETCH_WAIT_MS / 1000  # never due: a response comes before, and takes this process here

    def request(self) -> bytes:
        return wire.fetch({self._topic: [0]}, offset=self._offset, max_wait_ms=FETCH_WAIT_MS)

    def took(self, response: bytes, asked: Asked) -> None:
        for batch in batches(wire.records_of(response)):
            for record in batch:
                if record.offset >= self._offset:
                    self.records.append((record.offset, number := number_of(record.value)))
                    self.waits.append(self.wait_since(self._asked_of.pop(number)))
                    self._offset = record.offset + 1


def main(settings: dict[str, Any]) -> None:
    gc.disable()  # as in the prober
    host, port = settings["host"], settings["port"]
    with ExitStack() as stack:
        own = stack.enter_context(Delay(os.getpid()))
        broker = stack.enter_context(ProcessDelay(settings["pid"]))
        producer = Producer(host, port, settings["topic"], settings["first"], broker)
        consumer = Consumer(host, port, settings["topic"], broker, producer)
        print("ready", flush=True)
        began = time.monotonic()
        probe([producer, consumer], own)
        seconds = time.monotonic() - began
    waits = [[astuple(wait) for wait in each.waits] for each in (producer, consumer)]
    seen = {"produced": waits[0], "consumed": waits[1], "acks": producer.acknowledged, "records": consumer.records}
    print(json.dumps({**seen, "seconds": seconds}))


@dataclass
class Steady:
    """Runs the two clients within its `with` block.

    Arguments:
        port: of the broker on 127.0.0.1. pid: of its process.
        topic: with one partition, for these clients alone.
        first: the first number to send.

    Attributes:
        produced, consumed: waits for acknowledgements, and of records until they were read, after the block.
        acks_per_s: acknowledged requests per second.
    """

    port: int
    pid: int
    topic: str
    first: int
    produced: list[Wait] = field(default_factory=list)
    consumed: list[Wait] = field(default_factory=list)
    acks_per_s: float = 0.0

    def __enter__(self) -> "Steady":
        command = [sys.executable, "-m", "tests.kit.fairness.well_behaved"]
        pipe = subprocess.PIPE
        self._began = time.monotonic()
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)
        assert self._process.stdin is not None and self._process.stdout is not None
        settings = {"host": "127.0.0.1", "port": self.port, "pid": self.pid, "topic": self.topic, "first": self.first}
        print(json.dumps(settings), file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == "ready\n", "the well-behaved clients did not start"
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        ran_s = time.monotonic() - self._began  # its output grows with that
        try:
            output, _errors = self._process.communicate(timeout=END_S + ran_s)
        finally:
            self._process.kill()
            self._process.wait()
        if kind is None:
            assert self._process.returncode == 0, "the well-behaved clients failed; their error output is above"
            self._seen = json.loads(output)
            self.produced, self.consumed = (
                [Wait(*wait) for wait in self._seen[key]] for key in ("produced", "consumed")
            )
            self.acks_per_s = len(self._seen["acks"]) / self._seen["seconds"]

    def note(self, history: History) -> None:
        """Write sends, acknowledgements and what the consumer read into a history."""
        topic_partition: Partition = (self.topic, 0)
        for numbers, offset in self._seen["acks"]:
            history.sent("steady", topic_partition, numbers)
            history.acknowledged(numbers, offset)
        for offset, number in self._seen["records"]:
            history.read("steady consumer", topic_partition, offset, number)


if __name__ == "__main__":
    main(json.loads(sys.stdin.buffer.raw.readline()))
