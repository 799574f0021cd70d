"""What a run of a client is: the job, the measurement, and the methods that a client offers."""

import asyncio
import json
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

Sample = dict[str, float]
PARTITIONS = 4
SECONDS_MAX = 300.0


@dataclass(frozen=True)
class Job:
    """One run, as it is passed to the process of the client.

    Arguments:
        work: the method of the client.
        address: of the broker, host:port.
        topic: its name; with `topics` > 1 the beginning of their names.
        topics, partitions: number of topics, and of partitions of each.
        records, value_bytes: number and size of the measured records.
        warm_up: number of records before the measurement.
        codec: of the producer.
        linger_ms: of the producer.
        tasks: tasks that send at the same time.
        topics_at_once, burst: a wave sends so many records to each of so many topics, then waits for all.
        group_protocol: classic or consumer.
        seconds: duration of idle loads.
        broker_pid: of the process that the load suspends.
        uvloop: whether asyncio clients run on uvloop.
        tls: the client uses TLS; `cafile` is the authority of the broker's certificate.
    """

    work: str
    address: str = ""
    topic: str = ""
    topics: int = 1
    partitions: int = PARTITIONS
    records: int = 0
    value_bytes: int = 100
    warm_up: int = 0
    codec: str = "none"
    linger_ms: int = 5
    tasks: int = 1
    topics_at_once: int = 1
    burst: int = 1
    group_protocol: str = "classic"
    seconds: float = 0.0
    broker_pid: int = 0
    uvloop: bool = True
    tls: bool = False
    cafile: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @cached_property
    def value(self) -> bytes:
        """JSON-like text, which compresses as events do."""
        text = "".join(f'{{"id":{number * 7919 % 100_003},"name":"n{number % 977}"}},' for number in range(200))
        return text.encode()[: self.value_bytes].ljust(self.value_bytes, b".")

    @property
    def topic_names(self) -> list[str]:
        return [self.topic] if self.topics == 1 else [f"{self.topic}-{number}" for number in range(self.topics)]

    def waves(self, records: int) -> Iterator[Sequence[str]]:
        """The topics of each wave, until `records` records are sent."""
        names = self.topic_names
        at = 0
        for _ in range(records // (self.topics_at_once * self.burst)):
            yield [names[(at + number) % len(names)] for number in range(self.topics_at_once)]
            at += self.topics_at_once


class Meter:
    """Wall and CPU seconds of this process, all threads, within a `with` block."""

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.cpu_s = 0.0

    def __enter__(self) -> "Meter":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.wall_s, self.cpu_s = -time.perf_counter(), -time.process_time()

    def stop(self) -> None:
        self.wall_s += time.perf_counter()
        self.cpu_s += time.process_time()

    def per_record(self, records: int) -> Sample:
        return {"records_per_s": records / self.wall_s, "cpu_us": self.cpu_s / records * 1e6}


class Client:
    """A client library. Its methods have the names of `Job.work` and return a sample; rows use those that exist.

    `name`: in options and reports; `title`: for people.
    """

    name: str
    title: str

    def missing(self) -> str | None:
        """Why it cannot run here, or None."""
        return None

    def version(self) -> str:
        raise NotImplementedError

    def can(self, work: str) -> bool:
        return hasattr(self, work)

    def run(self, job: Job) -> Sample:
        sample: Sample = getattr(self, job.work)(job)
        return sample


class AsyncClient(Client):
    """A client whose methods are coroutines."""

    def run(self, job: Job) -> Sample:
        async def limited() -> Sample:
            async with asyncio.timeout(SECONDS_MAX):
                sample: Sample = await getattr(self, job.work)(job)
                return sample

        return run_loop(limited(), job.uvloop)


def run_loop(coroutine: Coroutine[Any, Any, Sample], use_uvloop: bool) -> Sample:
    if not use_uvloop:
        return asyncio.run(coroutine)
    import uvloop

    return uvloop.run(coroutine)


def quantiles_ms(seconds: Sequence[float]) -> Sample:
    """p50 and p99 in milliseconds by nearest rank."""
    ordered = sorted(seconds)
    return {key: ordered[int(len(ordered) * part)] * 1000 for key, part in (("p50", 0.5), ("p99", 0.99))}


def check_offsets(offsets: Sequence[int], records: int) -> None:
    """Raises RuntimeError unless every record has an offset."""
    if len(offsets) != records or min(offsets) < 0:
        raise RuntimeError(f"{records} records were sent, {sum(offset >= 0 for offset in offsets)} have an offset")
