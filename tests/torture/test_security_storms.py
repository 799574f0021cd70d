"""Storms against the security of a broker, beside a well-behaved producer and consumer on the plaintext listener.

TLS handshakes as fast as clients on one core can, 1,000 wrong logins per second, 1,000 half-open handshakes, and
throttled clients that never read. Judged, beside each storm and without the time that anything waited for a core
(`tests/torture/test_fairness.py`):

- p99 of acknowledgements and records: at most twice that without a storm, or `SMALL_MS`, which a busy machine alone
  causes;
- the longest loop iteration: at most 20 ms of CPU time;
- resident memory: bounded, whatever the storm sends.
"""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path
from threading import Event

import pytest
from kafkalite_sdk import Admin
from kafkalite_sdk.admin import QuotaEntity

from kafkalite.config.jaas import MODULES
from perf.loads.fairness.waits import summary_ms
from perf.process import memory
from tests.kit.certificates import Authority
from tests.kit.fairness.storms import SLOW_ID, STORMS, storm
from tests.kit.fairness.watched import BEAT_S, Watched
from tests.kit.fairness.well_behaved import Steady
from tests.kit.ports import free_port
from tests.kit.rig import create_topic, ended

pytestmark = [pytest.mark.torture, pytest.mark.long_form]
ITERATION_MS_MAX = 20.0
STORM_S_MIN = 3.0  # of `--fairness-seconds`, a twentieth
P99_FACTOR_MAX = 2.0
RATE_MIN = 1.0  # per second: a storm whose clients all fail proves nothing
SMALL_MS = 25.0
GROWTH_BYTES_MAX = 160 << 20
MEMORY = {"queued.max.request.bytes": str(64 << 20), "socket.request.max.bytes": str(16 << 20)}
NUMBERS = 1 << 24  # of one phase: more than it can send
FILES = 8_192
HOST = "127.0.0.1"
LISTENER = {"handshakes": "SSL", "half_open": "SSL", "wrong_logins": "SASL_PLAINTEXT", "never_reading": "PLAINTEXT"}


class Rig:
    """A broker with three listeners, and its figures."""

    def __init__(self, directory: Path, seconds: float) -> None:
        self.seconds = seconds
        self.ports = {"SSL": free_port(), "SASL_PLAINTEXT": free_port()}
        self.broker = Watched(directory / "broker", MEMORY)
        self.ports["PLAINTEXT"] = self.broker.port
        listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in self.ports.items())
        jaas = f'{MODULES["PLAIN"]} required user_alice="secret";'
        self.broker.settings |= {
            "listeners": listeners,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(Authority(directory / "tls").issue("broker").bundle()),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        }

    async def begin(self) -> None:
        await asyncio.to_thread(self.broker.start)
        for topic in ("undisturbed", *STORMS, *(f"{name}-own" for name in STORMS)):
            await create_topic(self.broker.address, topic, 1)
        async with Admin(self.broker.address) as admin:
            slow = QuotaEntity.of({"client-id": SLOW_ID.decode()})
            await admin.quotas.alter({slow: {"producer_byte_rate": 1024.0, "consumer_byte_rate": 1024.0}})

    def beside(self, name: str, phase: int) -> tuple[Steady, float]:
        """The well-behaved clients beside a storm, and how much the storm did per second."""
        rates: dict[str, float] = {}
        own = f"{name}-own"
        with (
            storm(name, self.ports[LISTENER[name]], own, rates),
            Steady(self.broker.port, self.broker.pid, name, phase * NUMBERS) as steady,
        ):
            Event().wait(self.seconds)
        return steady, rates[name]

    def undisturbed(self) -> Steady:
        with Steady(self.broker.port, self.broker.pid, "undisturbed", 0) as steady:
            Event().wait(self.seconds)
        return steady


def p99_ms(steady: Steady) -> tuple[float, float]:
    """Of acknowledgements and of records."""
    return summary_ms(steady.produced)["net_p99"], summary_ms(steady.consumed)["net_p99"]


async def test_clients_beside_storms(
    tmp_path: Path, fairness_seconds: float, record_property: pytest.RecordProperty
) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, FILES), hard))
    rig = Rig(tmp_path, max(STORM_S_MIN, fairness_seconds / 20))
    late: list[str] = []
    with ended(rig.broker):
        await rig.begin()
        before = p99_ms(await asyncio.to_thread(rig.undisturbed))
        resident = memory(rig.broker.pid).resident
        seen = len(rig.broker.slow_iterations())
        for phase, name in enumerate(STORMS, 1):
            steady, rate = await asyncio.to_thread(rig.beside, name, phase)
            after, found = p99_ms(steady), rig.broker.slow_iterations()[seen:]
            seen += len(found)
            longest = max(0.0, 0.0, *(each.cpu_s - BEAT_S for each in found)) * 1000
            grown = memory(rig.broker.pid).peak - resident
            text = (
                f"{name}: {rate:.0f}/s, p99 {after[0]:.2f} and {after[1]:.2f} ms, before "
                f"{before[0]:.2f} and {before[1]:.2f}; longest iteration {longest:.0f} ms; memory +{grown >> 20} MiB"
            )
            record_property("summary", text)
            print(text)
            allowed = [max(SMALL_MS, P99_FACTOR_MAX * each) for each in before]
            slow = any(wait > limit for wait, limit in zip(after, allowed, strict=True))
            if slow or longest > ITERATION_MS_MAX or grown > GROWTH_BYTES_MAX or rate < RATE_MIN:
                late.append(text)
        assert late == []
        assert await asyncio.to_thread(rig.broker.stop) == rig.broker.clean_exit
