"""The report of `perf clients` compares our figures with the limits of each row."""

from collections.abc import Mapping

import pytest

from perf.clients.base import Job
from perf.clients.compare import Plan, RowResult
from perf.clients.report import as_json, as_markdown
from perf.clients.rows import ROWS, Row
from perf.limits import Limit
from perf.loads.base import Figure
from tests.unit.perf.fake_broker import FakeBroker, FakeClient

FIGURES = (Figure("records_per_s", "records/s", "", "higher"), Figure("cpu_us", "CPU", "us"))


def row(*limits: Limit) -> Row:
    return Row("produce", "produce", {"": Job("produce")}, {}, ("kafkalite", "other"), FIGURES, limits)


def verdict(limit: Limit, ours: Mapping[str, float], other: Mapping[str, float] | None) -> str:
    samples = {"kafkalite": [dict(ours)] * 3}
    if other is not None:
        samples["other"] = [dict(other)] * 3
    result = RowResult(row(limit), {"broker": samples})
    plan = Plan([FakeBroker()], {name: FakeClient() for name in samples}, [result.row], 3, False)
    report = as_json(plan, [result])
    (found,) = report["rows"]["produce"]["limits"]["broker"]
    assert f"| {found['verdict']} |" in as_markdown(report)
    return str(found["verdict"])


@pytest.mark.parametrize(
    ("ours", "expected"), [(100.0, "missed"), (130.0, "must"), (179.0, "must"), (180.0, "aim"), (500.0, "aim")]
)
def test_higher_figure_must_reach_the_factor(ours: float, expected: str) -> None:
    limit = Limit("records_per_s", "other", 1.3, 1.8)
    assert verdict(limit, {"records_per_s": ours, "cpu_us": 1.0}, {"records_per_s": 100.0, "cpu_us": 1.0}) == expected


@pytest.mark.parametrize(("ours", "expected"), [(2.1, "missed"), (2.0, "must"), (1.0, "aim")])
def test_lower_figure_must_not_exceed_the_factor(ours: float, expected: str) -> None:
    limit = Limit("cpu_us", "other", 1.0, 0.5)
    assert verdict(limit, {"records_per_s": 1.0, "cpu_us": ours}, {"records_per_s": 1.0, "cpu_us": 2.0}) == expected


def test_limit_without_client_is_a_value() -> None:
    assert verdict(Limit("cpu_us", "", 3.0), {"records_per_s": 1.0, "cpu_us": 2.9}, None) == "must"


def test_limit_of_an_unmeasured_client() -> None:
    assert verdict(Limit("cpu_us", "other", 1.0), {"records_per_s": 1.0, "cpu_us": 2.9}, None) == "not measured"


def test_best_is_the_highest_or_lowest_value() -> None:
    samples = [{"records_per_s": 1.0, "cpu_us": 5.0}, {"records_per_s": 3.0, "cpu_us": 9.0}]
    result = RowResult(row(), {"broker": {"other": samples}})
    assert result.best("broker", "other") == {"records_per_s": 3.0, "cpu_us": 5.0}
    assert result.medians("broker", "other") == {"records_per_s": 2.0, "cpu_us": 7.0}


def test_waves_visit_every_topic_equally() -> None:
    for of in ROWS.values():
        for job in (*of.jobs.values(), *of.quick.values()):
            if job.work == "waves":
                for records in (job.records, job.warm_up):
                    waves = list(job.waves(records))
                    assert len(waves) * job.topics_at_once * job.burst == records
                    assert {len(wave) for wave in waves} == {job.topics_at_once}
                assert len({name for wave in job.waves(job.warm_up) for name in wave}) == job.topics


def test_values_have_their_size() -> None:
    assert [len(Job("produce", value_bytes=size).value) for size in (1, 100, 1024, 10_000)] == [1, 100, 1024, 10_000]
