"""Quotas: how far clients that send all they can are from their limits, and what throttled connections cost."""

import resource
import select
import shutil
import struct
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from threading import Event
from types import MappingProxyType

from perf.brokers.base import Running
from perf.checks import Topics
from perf.errors import VerificationError
from perf.group_wire import text
from perf.loads.base import CpuMeter, Figure, Load, Sample, Trial
from perf.loads.durable import BOTH, batch_of
from perf.loads.fairness.client import Client
from perf.loads.fairness.wire import array, create_topics, created, fetch, list_offsets, listed
from perf.loads.requests import BATCH
from perf.wire import CLIENT, Pipe, api_versions, call, connect, frame, produce, produce_error

ALTER_QUOTAS = 49
TOPIC = "limited"
BATCH_BYTES = 10_000
STORED_BATCHES = 400
BYTES_PER_S, PARTITIONS_PER_S, CONNECTIONS_PER_S = 1_000_000.0, 10.0, 20.0
CORE_PERCENT = 10.0
LISTED, LISTED_PARTITIONS = "listed", 100
CONNECTION_RATE = "listener.name.plaintext.max.connection.creation.rate"
FILES_ADDED = 200

Step = Callable[[], int]  # sends a request, waits for its response, returns how much of the quota it has used


def alter_quotas(values: Mapping[str, float]) -> bytes:
    """AlterClientQuotas v0 of the client id of the loads."""
    entity = array([text("client-id") + text(CLIENT.decode())])
    changes = array(text(key) + struct.pack(">d?", value, False) for key, value in values.items())
    return frame(ALTER_QUOTAS, 0, 0, array([entity + changes]) + b"\0", flexible=False)


def limit(broker: Running, values: Mapping[str, float]) -> None:
    """Set quotas of the loads. Raises VerificationError."""
    with Client(broker) as client:
        response = client.call(alter_quotas(values))
        client.expect("AlterClientQuotas", {*struct.unpack_from(">h", response, 12)})  # throttle time, one entry


class QuotaLoad(Load):
    """A load whose broker is started in each round, as quotas remember what clients have sent."""

    brokers = BOTH
    group = "quotas"
    starts_broker = True

    def run(self, trial: Trial) -> Sample:
        broker = trial.kind.start(trial.directory / f"{self.name}-{trial.round}", self.settings)
        try:
            Topics(broker).create([TOPIC], 1)
            return self.measure(trial, broker)
        finally:
            broker.stop()
            shutil.rmtree(broker.directory)

    @abstractmethod
    def measure(self, trial: Trial, broker: Running) -> Sample:
        """One round on a broker that has just started."""


class Deviation(QuotaLoad):
    name = "quota-deviation"
    title = "clients that send all they can: difference to the limit from 30 to 60 s after the begin (quick: 3 to 6 s)"
    figures = (
        Figure("produce_percent", "producer_byte_rate (1 MB/s)", "%"),
        Figure("fetch_percent", "consumer_byte_rate (1 MB/s)", "%"),
        Figure("partitions_percent", "controller_mutation_rate (10/s)", "%"),
        Figure("connections_percent", "max.connection.creation.rate (20/s)", "%"),
    )
    settings: Mapping[str, str] = MappingProxyType({CONNECTION_RATE: str(int(CONNECTIONS_PER_S))})

    def measure(self, trial: Trial, broker: Running) -> Sample:
        store(broker)
        rates = {"producer_byte_rate": BYTES_PER_S, "consumer_byte_rate": BYTES_PER_S}
        limit(broker, {**rates, "controller_mutation_rate": PARTITIONS_PER_S})
        limits = (BYTES_PER_S, BYTES_PER_S, PARTITIONS_PER_S, CONNECTIONS_PER_S)
        with ExitStack() as stack, ThreadPoolExecutor(len(limits)) as pool:
            steps = [stack.enter_context(each(broker)) for each in (produced, fetched, mutated, connected)]
            found = pool.map(lambda step: rate(step, trial.scaled(30, 3)), steps)
            deviations = [abs(rate / limit - 1) * 100 for rate, limit in zip(found, limits, strict=True)]
        return dict(zip((figure.key for figure in self.figures), deviations, strict=True))


def rate(step: Step, seconds: float) -> float:
    """Repeat a step; return what it uses per second in the second half of twice the time."""
    repeat(step, seconds)
    used, elapsed = repeat(step, seconds)
    return used / elapsed


def repeat(step: Step, seconds: float) -> tuple[int, float]:
    """Repeat a step for a time; return what it uses, and the time until the last one ended."""
    used, begin = 0, time.monotonic()
    last = begin
    while last < begin + seconds:
        used += step()
        last = time.monotonic()
    return used, last - begin


def store(broker: Running) -> None:
    """Records for the fetches."""
    request = produce(TOPIC, 0, batch_of(BATCH_BYTES))
    with Client(broker) as client:
        client.expect("Produce", {produce_error(each) for each in client.pipelined([request] * STORED_BATCHES)})


@contextmanager
def produced(broker: Running) -> Iterator[Step]:
    """Produce requests; bytes."""
    request = produce(TOPIC, 0, batch_of(BATCH_BYTES))
    with Client(broker) as client:

        def step() -> int:
            client.expect("Produce", {produce_error(client.call(request))})
            return len(request)

        yield step


@contextmanager
def fetched(broker: Running) -> Iterator[Step]:
    """Fetch requests from the beginning, of 1 MiB at most; bytes."""
    request = fetch({TOPIC: [0]})
    with Client(broker) as client:
        yield lambda: len(client.call(request))


@contextmanager
def mutated(broker: Running) -> Iterator[Step]:
    """Topics that are created; partitions. CreateTopics v4 is throttled, not refused."""
    numbers = count()
    with Client(broker) as client:

        def step() -> int:
            response = client.call(create_topics([f"mutated-{next(numbers)}"], 1))
            client.expect("CreateTopics", created(response))
            return 1

        yield step


@contextmanager
def connected(broker: Running) -> Iterator[Step]:
    """Connections that are served once; their number."""

    def step() -> int:
        with connect(broker.host, broker.port) as connection:
            call(connection, api_versions(1))
        return 1

    yield step


class RequestTime(QuotaLoad):
    name = "quota-request-time"
    title = "a client that sends all it can, request_percentage 10: difference of its CPU time to the limit, as above"
    figures = (
        Figure("beside_percent", "beside a client without a quota: CPU x its part of the requests", "%"),
        Figure("alone_percent", "alone: CPU, less that of an idle broker", "%"),
    )

    def measure(self, trial: Trial, broker: Running) -> Sample:
        seconds = trial.scaled(30, 3)
        Topics(broker).create([LISTED], LISTED_PARTITIONS)
        with CpuMeter(broker) as idle:
            time.sleep(seconds / 3)
        limit(broker, {"request_percentage": CORE_PERCENT})
        with Client(broker) as client:
            step = listing(client)
            alone = core_alone(broker, step, seconds) - idle.seconds / (seconds / 3)
            beside = core_beside(broker, step, seconds)
        return {"beside_percent": deviation(beside), "alone_percent": deviation(alone)}


def deviation(core: float) -> float:
    """The difference of a part of a core to the limit, in percent of the limit."""
    return abs(core * 100 / CORE_PERCENT - 1) * 100


def core_alone(broker: Running, step: Step, seconds: float) -> float:
    """The part of a core that the broker uses in the second half of twice the time, while a step is repeated."""
    repeat(step, seconds)
    with CpuMeter(broker) as cpu:
        _, elapsed = repeat(step, seconds)
    return cpu.seconds / elapsed


def core_beside(broker: Running, step: Step, seconds: float) -> float:
    """The part of a core beside a client without a quota: their requests are the same, so each costs as much."""
    with others(broker) as sent:
        repeat(step, seconds)
        before = sent[0]
        with CpuMeter(broker) as cpu:
            own, elapsed = repeat(step, seconds)
        return cpu.seconds / elapsed * own / (own + sent[0] - before)


def listing(client: Client, name: bytes = CLIENT) -> Step:
    """ListOffsets of many partitions, by the client id `name` of as many characters; requests."""
    request = list_offsets({LISTED: range(LISTED_PARTITIONS)}).replace(CLIENT, name, 1)

    def step() -> int:
        client.expect("ListOffsets", listed(client.call(request)))
        return 1

    return step


@contextmanager
def others(broker: Running) -> Iterator[list[int]]:
    """Another client without a quota sends all it can; yields the number of its requests, which grows."""
    sent, ended = [0], Event()

    def send() -> None:
        with Client(broker) as client:
            step = listing(client, b"free")
            while not ended.is_set():
                sent[0] += step()

    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(send)
        try:
            yield sent
        finally:
            ended.set()
        outcome.result()


class ThrottledConnections(QuotaLoad):
    name = "throttled-connections"
    title = "10,000 connections (quick: 500) that send all they can; their quota admits 10 requests/s of one record"
    figures = (Figure("core_percent", "of one core", "%"), Figure("requests_per_s", "requests/s", ""))
    rate = 10.0
    throttled_s = 10.0  # each connection, on average: Kafka's windows admit more requests to so many than the quota

    def measure(self, trial: Trial, broker: Running) -> Sample:
        size, seconds = trial.scaled(10_000, 500), trial.scaled(30, 5)
        open_files(size + FILES_ADDED)
        request = produce(TOPIC, 0, BATCH)
        limit(broker, {"producer_byte_rate": len(request) * self.rate})
        pipes = [Pipe(broker.host, broker.port, [request]) for _ in range(size)]
        for pipe in pipes:
            pipe.send(1)
        served(pipes, seconds)  # until the first requests are out of the windows of the quota
        with CpuMeter(broker) as cpu:
            answered = served(pipes, seconds)
        for pipe in pipes:
            pipe.socket.close()
        if answered / seconds > size / self.throttled_s:
            raise VerificationError(f"{broker.name}: {answered} requests in {seconds} s, so they are not throttled")
        return {"core_percent": cpu.seconds / seconds * 100, "requests_per_s": answered / seconds}


def open_files(wanted: int) -> None:
    """Raise the limit of open files of this process. Raises VerificationError."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < wanted:
        raise VerificationError(f"the limit of open files is {hard}: {wanted} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def served(pipes: Sequence[Pipe], seconds: float) -> int:
    """Send a request for each response, for a time; return the number of responses."""
    of_fd, answered, end = {pipe.socket.fileno(): pipe for pipe in pipes}, 0, time.monotonic() + seconds
    with select.epoll() as poll:
        for fd in of_fd:
            poll.register(fd, select.EPOLLIN)
        while (left := end - time.monotonic()) > 0:
            for fd, _ in poll.poll(left):
                complete = of_fd[fd].receive()
                of_fd[fd].send(complete)
                answered += complete
    return answered


LOADS = (Deviation(), RequestTime(), ThrottledConnections())
