"""Metadata of 10,000 partitions (10 topics), asked for over and over on one connection."""

import socket
import time

from perf.checks import Topics
from perf.errors import VerificationError
from perf.loads.base import LATENCY_FIGURES, CpuMeter, Figure, Load, Sample, Trial, quantiles_ms
from perf.wire import call, metadata_of_all

TOPICS = 10


class MetadataOfMany(Load):
    name = "metadata-10000"
    title = "Metadata v12 of all topics, 10,000 partitions (quick: 1,000)"
    figures = (*LATENCY_FIGURES, Figure("cpu_ms", "CPU per request", "ms"), Figure("answer_kb", "answer", "kB"))

    def prepare(self, trial: Trial) -> None:
        for number in range(TOPICS):  # Apache Kafka refuses 10,000 partitions in one request
            Topics(trial.broker).create([f"metadata-{number}"], trial.scaled(1_000, 100))

    def run(self, trial: Trial) -> Sample:
        count, partitions = trial.scaled(100, 50), trial.scaled(10_000, 1_000)
        request, seconds, size = metadata_of_all(7), [], 0
        with socket.create_connection((trial.broker.host, trial.broker.port), timeout=60) as connection:
            call(connection, request)
            with CpuMeter(trial.broker) as cpu:
                for _ in range(count):
                    started = time.perf_counter()
                    size = len(call(connection, request))
                    seconds.append(time.perf_counter() - started)
        # A partition takes 26 bytes at least: error, index, leader, epoch, three arrays, tags.
        if size < partitions * 26:
            raise VerificationError(f"{trial.broker.name}: Metadata of {partitions} partitions has {size} bytes")
        return {**quantiles_ms(seconds), "cpu_ms": cpu.seconds / count * 1000, "answer_kb": size / 1000}


LOADS = (MetadataOfMany(),)
