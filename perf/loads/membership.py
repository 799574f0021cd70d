"""Members of groups: what a rebalance costs the broker, and what thousands of members cost it that only stay."""

import os
import resource
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

from perf import group_wire as wire
from perf.brokers.base import Running
from perf.checks import Topics
from perf.errors import VerificationError
from perf.loads.base import CpuMeter, Figure, Load, Sample, Trial, quantiles_ms
from perf.loads.durable import BOTH
from perf.members import Crowd, crowd
from perf.wire import Pipe, paced

AT_ONCE = {"group.initial.rebalance.delay.ms": "0", "group.consumer.assignment.interval.ms": "0"}
TITLES = {"classic": "classic group", "consumer": "KIP-848 group"}


class Rebalance(Load):
    """A group forms from nothing; then members leave and come back, one after the other."""

    settings = AT_ONCE
    brokers = BOTH
    figures = (
        Figure("cpu_ms", "CPU per rebalance", "ms"),
        Figure("forming_cpu_ms", "CPU until the group stands", "ms"),
        Figure("elapsed_ms", "a rebalance takes", "ms"),
    )

    def __init__(self, kind: str) -> None:
        self.name, self._kind = f"rebalance-{kind}", kind
        self.title = f"{TITLES[kind]}: 100 members on 1,000 partitions, heartbeats back to back, one leaves and comes"

    def prepare(self, trial: Trial) -> None:
        Topics(trial.broker).create([self.name], self._partitions(trial))

    def run(self, trial: Trial) -> Sample:
        members, changes = trial.scaled(100, 20), trial.scaled(20, 5)
        group = f"{self.name}-{trial.round}"
        with closing(
            crowd(self._kind, trial.broker, group, self.name, members, self._partitions(trial))
        ) as all_members:
            with CpuMeter(trial.broker) as forming:
                all_members.wait_until_stable()
            with CpuMeter(trial.broker) as changing:
                seconds = [all_members.change(number) for number in range(changes)]
        return {
            "cpu_ms": changing.seconds / changes * 1000,
            "forming_cpu_ms": forming.seconds * 1000,
            "elapsed_ms": quantiles_ms(seconds)["p50"],
        }

    def _partitions(self, trial: Trial) -> int:
        return trial.scaled(1_000, 100)


class IdleMembers(Load):
    """Every member has a connection and sends a heartbeat every 3 s."""

    settings = AT_ONCE
    brokers = BOTH
    figures = (Figure("core_percent", "of one core", "%"), Figure("cpu_us", "CPU per heartbeat", "us"))
    in_group, at_once, interval_s = 100, 8, 3.0

    def __init__(self, kind: str) -> None:
        self.name, self._kind = f"idle-{kind}", kind
        self.title = f"5,000 members (quick: 500) of {TITLES[kind]}s, 100 in each, a heartbeat every 3 s"

    def prepare(self, trial: Trial) -> None:
        Topics(trial.broker).create([self.name], self.in_group)

    def run(self, trial: Trial) -> Sample:
        count = trial.scaled(5_000, 500)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < count + 200:
            raise VerificationError(f"the limit of open files is {hard}: too low for {count} members")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        low = os.open(os.devnull, os.O_RDONLY)  # a low number for `paced`, so that no two beats coincide
        with ThreadPoolExecutor(self.at_once) as pool:  # one after the other, 50 groups take Apache Kafka half a minute
            crowds = list(pool.map(partial(self._is_stable, trial), range(count // self.in_group)))
        pipes = [self._pipe(trial.broker, crowd, at) for crowd in crowds for at in range(self.in_group)]
        beats = count * trial.scaled(3, 1)
        os.close(low)
        with CpuMeter(trial.broker) as cpu:
            seconds = quantiles_ms(paced(pipes, count / self.interval_s, beats))
        for each in crowds:
            each.leave()
            each.close()
        if seconds["p50"] > self.interval_s * 1000:
            raise VerificationError(f"{trial.broker.name}: heartbeats are answered too late")
        elapsed = beats / count * self.interval_s
        return {"core_percent": cpu.seconds / elapsed * 100, "cpu_us": cpu.seconds / beats * 1e6}

    def _is_stable(self, trial: Trial, number: int) -> Crowd:
        made = crowd(
            self._kind, trial.broker, f"{self.name}-{trial.round}-{number:03}", self.name, self.in_group, self.in_group
        )
        made.wait_until_stable()
        return made

    def _pipe(self, broker: Running, of: Crowd, at: int) -> Pipe:
        member = of.members[at]
        error_at = wire.ERROR_AT if self._kind == "classic" else wire.FLEXIBLE_ERROR_AT
        return Pipe(broker.host, broker.port, [member.heartbeat()], error_at, member.connection)


LOADS = (Rebalance("classic"), Rebalance("consumer"), IdleMembers("classic"), IdleMembers("consumer"))
