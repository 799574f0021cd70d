"""What a load is: it drives one broker once and returns figures; the harness decides how often and in which order."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from perf.brokers.base import Broker, Running
from perf.checks import Topics
from perf.errors import VerificationError
from perf.images import image, in_sync, wait_for
from perf.process import cpu_seconds
from tests.kit.metadata_v1 import Image

Sample = dict[str, float]


@dataclass(frozen=True)
class Figure:
    """One column of the report; key names it in the JSON, with its unit; `better` is `higher` or `lower`."""

    key: str
    title: str
    unit: str
    better: str = "lower"


@dataclass(frozen=True)
class Trial:
    """One run of a load: the kind of broker, a directory for this broker and load, the round (0 = warm-up)."""

    kind: Broker
    directory: Path
    round: int
    quick: bool
    running: Running | None = None

    @property
    def broker(self) -> Running:
        assert self.running is not None, "this load starts its broker itself"
        return self.running

    def scaled(self, full: int, quick: int) -> int:
        """The size of the load: full, or quick for a first look."""
        return quick if self.quick else full


class Load(ABC):
    """A load. `starts_broker`: it wants a process of its own in every round, and starts it itself; `fills_bytes`: so
    much free memory a turn fills, with the page cache and the clients' buffers; `brokers`: names of those that can do
    it, empty = all; `settings`: what the harness starts brokers with, under Kafka's names; `group`: a name that
    selects this load with others, and gives them a common table in the report.
    """

    name: str
    title: str
    figures: Sequence[Figure]
    starts_broker = False
    fills_bytes = 0
    brokers: frozenset[str] = frozenset()
    group: str = ""
    settings: Mapping[str, str] = MappingProxyType({})

    def missing(self) -> str | None:
        """Why it cannot run here, or None."""
        return None

    def prepare(self, trial: Trial) -> None:  # noqa: B027 - most loads need nothing
        """Once per broker, before the warm-up: data that every round reads."""

    @abstractmethod
    def run(self, trial: Trial) -> Sample:
        """One round. Raises VerificationError if anything that was sent is not there."""


class CpuMeter:
    """CPU seconds of the broker's process, or of all brokers of its cluster, within a `with` block."""

    def __init__(self, broker: Running) -> None:
        self._pids = [each.pid for each in broker.members.values()]
        self.seconds = 0.0

    def __enter__(self) -> "CpuMeter":
        self.seconds = -self._used()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += self._used()

    def _used(self) -> float:
        return sum(map(cpu_seconds, self._pids))


class FreshTopic:
    """A topic for the length of a `with` block, deleted after it so that rounds do not fill the disk.

    All its replicas are in sync at the beginning, and when its records are counted.
    """

    def __init__(self, trial: Trial, load: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        self.name, self.partitions, self.configs = f"{load}-{trial.round}", partitions, configs
        self.broker, self.topics = trial.broker, Topics(trial.broker)

    def __enter__(self) -> "FreshTopic":
        self.topics.create([self.name], self.partitions, self.configs)
        if self.broker.replicas > 1:
            wait_for(self.broker.members, self._is_in_sync)
        return self

    def __exit__(self, *_: object) -> None:
        self.topics.delete([self.name])

    def expect(self, records: int) -> None:
        """Raise VerificationError unless the topic has so many records and all its replicas are in sync."""
        self.topics.expect(self.name, self.partitions, records)
        if self.broker.replicas > 1 and not all(map(self._is_in_sync, map(image, self.broker.members.values()))):
            raise VerificationError(f"{self.broker.name}: not all replicas of {self.name} are in sync after the load")

    def _is_in_sync(self, found: Image) -> bool:
        return in_sync(found, self.name, self.broker.replicas) == self.partitions


def quantiles_ms(seconds: Sequence[float]) -> Sample:
    """p50, p99 and p99.9 in milliseconds by nearest rank."""
    ordered = sorted(seconds)
    at = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    return {key: ordered[min(len(ordered) - 1, int(len(ordered) * q))] * 1000 for key, q in at.items()}


LATENCY_FIGURES = (
    Figure("p50", "p50", "ms"),
    Figure("p99", "p99", "ms"),
    Figure("p999", "p99.9", "ms"),
)
