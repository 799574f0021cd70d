"""One record per request, from our own generator: what a request costs the broker, and how it answers under many."""

import importlib
import importlib.util
import time

from perf.errors import VerificationError
from perf.loads.base import LATENCY_FIGURES, CpuMeter, Figure, FreshTopic, Load, Sample, Trial, quantiles_ms
from perf.loads.rdkafka import build_missing, read_back
from perf.wire import Pipe, batch_of_one, paced, produce, produce_error_at

# Of today: records older than `retention.ms` may be deleted by a broker while the load still runs.
BATCH = batch_of_one(b"x" * 100, time.time_ns() // 1_000_000)


class Requests(Load):
    figures = (Figure("requests_per_s", "requests/s", "", "higher"), Figure("cpu_us", "CPU per request", "us"))

    def __init__(self, connections: int, depth: int) -> None:
        self.name = f"requests-c{connections}"
        self.title = f"one record of 100 B per request, {connections} connection(s), {depth} under way on each"
        self._connections, self._depth = connections, depth

    def missing(self) -> str | None:
        found = importlib.util.find_spec("perf.loadgen")
        return build_missing() if found else "perf.loadgen is not built: run `make loadgen`"

    def run(self, trial: Trial) -> Sample:
        loadgen = importlib.import_module("perf.loadgen")
        count = trial.scaled(200_000, 40_000)
        with FreshTopic(trial, self.name, self._connections) as topic:
            requests = [produce(topic.name, partition, BATCH)[4:] for partition in range(self._connections)]
            error_at = produce_error_at(topic.name)
            try:
                with CpuMeter(trial.broker) as cpu:
                    result = loadgen.run(
                        trial.broker.host, trial.broker.port, requests, self._connections, self._depth, count=count,
                        error_at=error_at,
                    )  # fmt: skip
            except (RuntimeError, OSError) as error:
                raise VerificationError(f"{trial.broker.name}: {self.name}: {error}") from error
            read_back(trial, topic, count)
        return {"requests_per_s": count / result["seconds"], "cpu_us": cpu.seconds / count * 1e6}


class FanOut(Load):
    name = "fanout"
    title = "100 connections x 1,000 partitions, one record per request, 5,000 requests/s: acknowledgement"
    figures = (*LATENCY_FIGURES, Figure("cpu_us", "CPU per request", "us"))
    connections, partitions, rate = 100, 1_000, 5_000.0

    def missing(self) -> str | None:
        return build_missing()

    def run(self, trial: Trial) -> Sample:
        count = trial.scaled(100_000, 15_000)
        with FreshTopic(trial, self.name, self.partitions) as topic:
            pipes = [
                Pipe(trial.broker.host, trial.broker.port, self._requests(topic.name, number))
                for number in range(self.connections)
            ]
            with CpuMeter(trial.broker) as cpu:
                seconds = paced(pipes, self.rate, count)
            read_back(trial, topic, count + len(pipes))
            for pipe in pipes:
                pipe.socket.close()
        return {**quantiles_ms(seconds), "cpu_us": cpu.seconds / count * 1e6}

    def _requests(self, topic: str, connection: int) -> list[bytes]:
        return [produce(topic, p, BATCH) for p in range(connection, self.partitions, self.connections)]


LOADS = (Requests(1, 50), Requests(10, 50), FanOut())
