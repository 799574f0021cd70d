"""One record per request, from our own generator: what a request costs the broker, and how it answers under many."""

from perf.loads.base import LATENCY_FIGURES, CpuMeter, Figure, FreshTopic, Load, Sample, Turn, quantiles_ms
from perf.wire import Pipe, batch_of_one, paced, pipelined, produce

TIMESTAMP_MS = 1_700_000_000_000
BATCH = batch_of_one(b"x" * 100, TIMESTAMP_MS)


class Requests(Load):
    figures = (Figure("requests_per_s", "requests/s", "", "higher"), Figure("cpu_us", "CPU per request", "us"))

    def __init__(self, connections: int, depth: int) -> None:
        self.name = f"requests-c{connections}"
        self.title = f"one record of 100 B per request, {connections} connection(s), {depth} under way on each"
        self._connections, self._depth = connections, depth

    def run(self, turn: Turn) -> Sample:
        count = turn.scaled(400_000, 40_000)
        with FreshTopic(turn, self.name, self._connections) as topic:
            pipes = [
                Pipe(turn.broker.host, turn.broker.port, [produce(topic.name, partition, BATCH)])
                for partition in range(self._connections)
            ]
            with CpuMeter(turn.broker) as cpu:
                seconds = pipelined(pipes, self._depth, count)
            topic.expect(count + len(pipes))
            for pipe in pipes:
                pipe.socket.close()
        return {"requests_per_s": count / seconds, "cpu_us": cpu.seconds / count * 1e6}


class FanOut(Load):
    name = "fanout"
    title = "100 connections x 1,000 partitions, one record per request, 5,000 requests/s: acknowledgement"
    figures = (*LATENCY_FIGURES, Figure("cpu_us", "CPU per request", "us"))
    connections, partitions, rate = 100, 1_000, 5_000.0

    def run(self, turn: Turn) -> Sample:
        count = turn.scaled(100_000, 15_000)
        with FreshTopic(turn, self.name, self.partitions) as topic:
            pipes = [
                Pipe(turn.broker.host, turn.broker.port, self._requests(topic.name, number))
                for number in range(self.connections)
            ]
            with CpuMeter(turn.broker) as cpu:
                seconds = paced(pipes, self.rate, count)
            topic.expect(count + len(pipes))
            for pipe in pipes:
                pipe.socket.close()
        return {**quantiles_ms(seconds), "cpu_us": cpu.seconds / count * 1e6}

    def _requests(self, topic: str, connection: int) -> list[bytes]:
        return [produce(topic, p, BATCH) for p in range(connection, self.partitions, self.connections)]


LOADS = (Requests(1, 50), Requests(10, 50), FanOut())
