"""The report of `perf pipeline` compares our figures with the limits, repetition by repetition."""

import subprocess
import sys

import pytest

from perf.limits import Limit
from perf.pipeline.compare import Plan, Result
from perf.pipeline.report import as_json, as_markdown
from perf.pipeline.rows import ROWS, THROUGHPUT, Row
from perf.process import tree_cpu_seconds
from tests.unit.perf.fake_broker import FakeBroker

USED_S = 0.3


def verdict(limit: Limit, ours: list[float], theirs: list[float]) -> str:
    row = Row("read", "read", {}, THROUGHPUT, (limit,))
    samples = {"kafkalite": ours, "kafka": theirs}
    result = Result(
        row, {side: [{"records_per_s": 1.0, limit.figure: each} for each in of] for side, of in samples.items()}
    )
    result.samples = {side: [{"cpu_us": 1.0, **each} for each in of] for side, of in result.samples.items()}
    report = as_json(Plan(FakeBroker(), [row], len(ours), 100), [result])
    (found,) = report["rows"]["read"]["limits"]
    assert f"| {found['verdict']} |" in as_markdown(report)
    return str(found["verdict"])


@pytest.mark.parametrize(("ours", "expected"), [(119.0, "missed"), (120.0, "must"), (199.0, "must"), (200.0, "aim")])
def test_higher_figure_must_reach_the_factor(ours: float, expected: str) -> None:
    assert verdict(Limit("records_per_s", "kafka", 1.2, 2.0), [ours], [100.0]) == expected


def test_lower_figure_must_not_exceed_the_factor() -> None:
    assert verdict(Limit("cpu_us", "kafka", 0.7), [1.5], [2.0]) == "missed"
    assert verdict(Limit("cpu_us", "kafka", 0.7), [1.4], [2.0]) == "must"


def test_factors_are_those_of_runs_beside_each_other() -> None:
    """Other load on the machine slows down the runs of one repetition alike: the quotient of medians is 10 here."""
    assert verdict(Limit("records_per_s", "kafka", 2.0), [100.0, 10.0, 100.0], [100.0, 10.0, 10.0]) == "missed"


def test_limit_without_side_is_a_value() -> None:
    assert verdict(Limit("cpu_us", "", 3.0), [2.9], [1.0]) == "must"


def test_each_job_has_the_records_of_the_plan() -> None:
    row = ROWS["read-1024"]
    assert {side: job.records for side, job in row.sized(10).items()} == {
        side: job.records // 10 for side, job in row.jobs.items()
    }


def test_cpu_time_of_descendants_counts() -> None:
    """Of a child that is running, of its own child, and of both when they have ended."""
    burn = f"import time; exec('while time.process_time() < {USED_S}: pass'); print(flush=True); input()"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    before = tree_cpu_seconds()
    with subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdin
        process.stdout.readline()
        assert tree_cpu_seconds() - before >= USED_S - 0.05
        process.stdin.write(b"\n")
    assert process.returncode == 0
    assert tree_cpu_seconds() - before >= USED_S - 0.05
