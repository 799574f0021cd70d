"""Starts the prober and the control beside a hostile load, and returns what they measured."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from perf.brokers.base import HOST, Running
from perf.errors import VerificationError
from perf.loads.fairness.waits import Wait
from perf.wire import api_versions

ROOT = Path(__file__).parents[3]
INTERVAL_S = 0.002
END_S = 150.0
ONE_LOOP = frozenset({"kafkalite", "kafkalite-cluster"})  # brokers whose main thread answers everything


@dataclass
class Probe:
    """Within the `with` block the broker and a control process are asked ApiVersions every 2 ms.

    Arguments:
        broker: the broker to ask.
        job: a request that is sent besides, every `job_interval_s`, on a connection of its own; None = none.

    Attributes:
        waits, control, jobs: the waits of all requests, after the block.
    """

    broker: Running
    job: bytes | None = None
    job_interval_s: float = 0.05
    waits: list[Wait] = field(default_factory=list)
    control: list[Wait] = field(default_factory=list)
    jobs: list[Wait] = field(default_factory=list)

    def __enter__(self) -> "Probe":
        self._control = _spawn("perf.loads.fairness.control")
        port = int(_line(self._control))
        loop_pid = self.broker.pid if self.broker.name in ONE_LOOP else 0
        streams = [
            _stream(self.broker.host, self.broker.port, loop_pid, api_versions(0), INTERVAL_S),
            _stream(HOST, port, self._control.pid, api_versions(0), INTERVAL_S),
        ]
        if self.job is not None:
            streams.append(_stream(self.broker.host, self.broker.port, loop_pid, self.job, self.job_interval_s))
        self._prober = _spawn("perf.loads.fairness.prober")
        assert self._prober.stdin is not None
        print(json.dumps(streams), file=self._prober.stdin, flush=True)
        _line(self._prober)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            output, _ = self._prober.communicate(timeout=END_S)
        finally:
            self._prober.kill()
            self._control.communicate(timeout=END_S)
        if kind is not None:
            return
        if self._prober.returncode != 0:
            raise VerificationError(f"{self.broker.name}: the prober failed; its error output is above")
        found = [[Wait(*wait) for wait in stream] for stream in json.loads(output)]
        self.waits, self.control, self.jobs = (*found, [])[:3]


def _stream(host: str, port: int, pid: int, request: bytes, interval_s: float) -> dict[str, object]:
    return {"host": host, "port": port, "pid": pid, "request": request.hex(), "interval_s": interval_s}


def _spawn(module: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", module]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise VerificationError(f"{process.args!r} ended with {process.wait()}")
    return line
