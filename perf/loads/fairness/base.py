"""What all hostile loads share: a client that does its worst while another one is probed, and the figures."""

import time
from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType

from perf.loads.base import CpuMeter, Figure, Load, Sample, Trial
from perf.loads.durable import BOTH
from perf.loads.fairness.client import Client
from perf.loads.fairness.probe import Probe
from perf.loads.fairness.waits import summary_ms

KAFKALITE = frozenset({"kafkalite"})
QUIET_S = 0.5  # before and after the load, so that the probe has begun and what the load leaves behind is seen
LONGEST_MUST_MS, LONGEST_AIM_MS = 50.0, 20.0
FIGURES = (
    Figure("longest", "longest wait of another client", "ms"),
    Figure("net", "of that without waiting for a core", "ms"),
    Figure("p99", "p99 of its waits", "ms"),
    Figure("net_p99", "of that without waiting for a core", "ms"),
    Figure("control", "longest wait at the idle control process", "ms"),
    Figure("cpu_s", "CPU of the broker", "s"),
    Figure("load_s", "the load takes", "s"),
)
JOB_FIGURES = (Figure("job_longest", "longest wait for a compressed produce of 200 kB", "ms"),)
# Queues and files of a load are not the next one's: nothing may be created by a client's mistake.
SETTINGS = {"auto.create.topics.enable": "false"}


class Hostile(Load):
    """A hostile load: `before` prepares a round, `attack` is what the other client must not notice.

    Arguments:
        name: of the load, without the prefix `fairness-`.
        title: one sentence with the sizes.
        brokers: those that can run it at its full size.
        settings: of the broker.
    """

    figures = FIGURES
    group = "fairness"

    def __init__(
        self,
        name: str,
        title: str,
        *,
        brokers: frozenset[str] = BOTH,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.name, self.title, self.brokers = f"fairness-{name}", title, brokers
        self.settings = {**SETTINGS, **settings}

    def before(self, trial: Trial, client: Client) -> None:
        """Prepare one round."""

    @abstractmethod
    def attack(self, trial: Trial, client: Client) -> None:
        """The hostile part. Raises VerificationError if a request fails that must not."""

    def after(self, trial: Trial, client: Client) -> None:
        """Remove what the round left."""

    def job(self, trial: Trial) -> bytes | None:
        """A request whose wait is measured besides, or None."""
        return None

    def run(self, trial: Trial) -> Sample:
        with Client(trial.broker) as client:
            self.before(trial, client)
            with Probe(trial.broker, self.job(trial)) as probe, CpuMeter(trial.broker) as cpu:
                time.sleep(QUIET_S)
                began = time.perf_counter()
                self.attack(trial, client)
                load_s = time.perf_counter() - began
                time.sleep(QUIET_S)
            self.after(trial, client)
        found = summary_ms(probe.waits)
        sample = {key: found[key] for key in ("longest", "net", "p99", "net_p99")}
        sample |= {"control": summary_ms(probe.control)["longest"], "cpu_s": cpu.seconds, "load_s": load_s}
        return sample | ({"job_longest": summary_ms(probe.jobs)["longest"]} if probe.jobs else {})


def topic_names(stem: str, trial: Trial, count: int) -> list[str]:
    """Names for one round of a load; warm-up and rounds do not share topics."""
    return [f"{stem}-{trial.round}-{number:05}" for number in range(count)]


def group_names(stem: str, trial: Trial, count: int) -> list[str]:
    """The same for groups."""
    return [f"{stem}-group-{trial.round}-{number:06}" for number in range(count)]
