"""Kafka's own kafka-consumer-perf-test (ConsumerPerformance): the Java consumer in a group."""

from perf.brokers.base import Running
from perf.checks import Topics
from perf.errors import VerificationError
from perf.loads.base import CpuMeter, Figure, Load, Sample, Trial
from perf.loads.durable import BOTH
from perf.loads.membership import AT_ONCE
from perf.loads.rdkafka import LINGER_MS, PARTITIONS, build_missing, drive
from tests.kit import jvm

MAIN = "org.apache.kafka.tools.ConsumerPerformance"
SECONDS_MAX = 170.0


def consumer_performance(broker: Running, topic: str, group: str, records: int) -> dict[str, float]:
    """The line that the tool prints, by the names of its columns. Raises VerificationError."""
    args = ["--bootstrap-server", broker.address, "--topic", topic, "--group", group, "--num-records", str(records)]
    done = jvm.run_tool(jvm.CURRENT, MAIN, args, timeout=SECONDS_MAX, quick_start=False)
    lines = [line.split(", ") for line in done.stdout.splitlines() if ", " in line]
    if done.returncode or len(lines) != 2 or len(lines[0]) != len(lines[1]):
        raise VerificationError(f"{broker.name}: {MAIN}: {done.stdout}{done.stderr}"[-2000:])
    return {title: float(value) for title, value in zip(*lines, strict=True) if "time" not in title or "ms" in title}


class JavaConsumer(Load):
    name = "java-consume-100"
    settings = AT_ONCE
    brokers = BOTH
    title = "kafka-consumer-perf-test, a classic group of one, 100 B, 4 partitions"
    figures = (
        Figure("records_per_s", "records/s", "", "higher"),
        Figure("fetched_per_s", "records/s without the rebalance", "", "higher"),
        Figure("rebalance_ms", "rebalance", "ms"),
        Figure("cpu_s_per_m", "CPU s per M records", "s"),
    )

    def missing(self) -> str | None:
        return jvm.java_missing() or build_missing()

    def prepare(self, trial: Trial) -> None:
        records = self._records(trial)
        topics = Topics(trial.broker)
        topics.create([self.name], PARTITIONS)
        drive(trial.broker, "produce", self.name, records, 100, "none", "all", LINGER_MS)
        topics.expect(self.name, PARTITIONS, records)

    def run(self, trial: Trial) -> Sample:
        records = self._records(trial)
        with CpuMeter(trial.broker) as cpu:
            reported = consumer_performance(trial.broker, self.name, f"{self.name}-{trial.round}", records)
        if reported["data.consumed.in.nMsg"] != records:
            raise VerificationError(f"{trial.broker.name}: {records} records are there, the tool read {reported}")
        return {
            "records_per_s": reported["nMsg.sec"],
            "fetched_per_s": reported["fetch.nMsg.sec"],
            "rebalance_ms": reported["rebalance.time.ms"],
            "cpu_s_per_m": cpu.seconds / records * 1e6,
        }

    def _records(self, trial: Trial) -> int:
        return trial.scaled(5_000_000, 500_000)


LOADS = (JavaConsumer(),)
