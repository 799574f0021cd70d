"""The order of the rounds, the medians and the report, with brokers and loads that only pretend."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from perf import report
from perf.brokers import Broker, Running
from perf.checks import VerificationError
from perf.commands import main
from perf.compare import LoadResult, Plan, compare
from perf.loads import GROUPS, LOADS, Figure, Load, Sample, Trial
from perf.loads.base import quantiles_ms


class Pretended(Broker):
    def __init__(self, name: str, speed: float) -> None:
        self.name, self.title, self.speed = name, f"The {name}", speed

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return "1"

    def start(self, directory: Path) -> Running:
        raise AssertionError("this load starts its broker itself")


@dataclass
class Counted(Load):
    """Answers the broker's speed times the round."""

    name = "counted"
    title = "a load that counts"
    figures = (Figure("rate", "rate", "1/s", "higher"), Figure("cpu", "CPU", "s"))
    starts_broker = True
    trials: list[tuple[int, str]] = field(default_factory=list)
    fails_in_round: int = -1

    def run(self, trial: Trial) -> Sample:
        if trial.round == self.fails_in_round:
            raise VerificationError("10 records sent, 9 are there")
        self.trials.append((trial.round, trial.kind.name))
        assert isinstance(trial.kind, Pretended)
        return {"rate": trial.kind.speed * trial.round, "cpu": 1.0}


BROKERS = [Pretended("slow", 100.0), Pretended("fast", 1000.0)]


def plan(load: Load, rounds: int, tmp_path: Path) -> Plan:
    return Plan(BROKERS, [load], rounds, quick=True, work=tmp_path)


def test_rounds_are_interleaved_and_rotated(tmp_path: Path) -> None:
    load, lines = Counted(), list[str]()
    compare(plan(load, 3, tmp_path), lines.append)
    assert load.trials == [(0, "slow"), (0, "fast"), (1, "fast"), (1, "slow"), (2, "slow"), (2, "fast"), (3, "fast"),
                          (3, "slow")]  # fmt: skip
    assert len(lines) == 8
    assert list(tmp_path.iterdir()) == []


def test_the_warm_up_is_not_counted(tmp_path: Path) -> None:
    (result,) = compare(plan(Counted(), 3, tmp_path), lambda line: None)
    assert [sample["rate"] for sample in result.samples["slow"]] == [100.0, 200.0, 300.0]
    assert result.medians("slow") == {"rate": 200.0, "cpu": 1.0}


def test_a_load_that_loses_records_ends_the_run_without_figures(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="9 are there"):
        compare(plan(Counted(fails_in_round=2), 3, tmp_path), lambda line: None)
    assert list(tmp_path.iterdir()) == []


def written(tmp_path: Path) -> dict[str, Path]:
    one = plan(Counted(), 1, tmp_path)
    files = report.write(tmp_path / "out", report.as_json(one, compare(one, lambda line: None)))
    return {path.suffix: path for path in files}


def test_the_json_holds_samples_medians_and_where_they_come_from(tmp_path: Path) -> None:
    kept = json.loads(written(tmp_path)[".json"].read_text())
    assert kept["loads"]["counted"]["samples"]["fast"] == [{"rate": 1000.0, "cpu": 1.0}]
    assert kept["loads"]["counted"]["medians"]["slow"]["rate"] == 100.0
    assert set(kept["machine"]) == {"processor", "cores", "memory", "kernel"}
    assert kept["commit"]
    assert kept["rounds"] == 1


def test_the_table_marks_the_best_and_compares_the_first(tmp_path: Path) -> None:
    text = written(tmp_path)[".md"].read_text()
    assert "| rate, 1/s | 100 | **1,000** | 0.10 |" in text
    assert "![medians](out.svg)" in text
    assert "quick run" in text


def test_loads_of_a_group_have_one_row_each(tmp_path: Path) -> None:
    loads = [Counted(), Counted()]
    for number, load in enumerate(loads):
        load.name, load.group = f"grouped-{number}", "grouped"
    chosen = Plan(BROKERS, loads, 1, quick=True, work=tmp_path)
    text = report.as_markdown(report.as_json(chosen, compare(chosen, lambda line: None)))
    assert "## All grouped loads" in text
    rows = [line for line in text.splitlines() if line.startswith(("| 0 |", "| 1 |"))]
    assert rows == [f"| {number} | 100 | 1 | 1,000 | 1 |" for number in range(2)]


def test_all_selects_the_loads_of_no_group() -> None:
    assert set(GROUPS["all"]) | set(GROUPS["fairness"]) == set(LOADS)
    assert not set(GROUPS["all"]) & set(GROUPS["fairness"])
    assert all(name.startswith("fairness-") for name in GROUPS["fairness"])


def test_the_picture_has_one_bar_per_broker_and_figure(tmp_path: Path) -> None:
    tree = ElementTree.parse(written(tmp_path)[".svg"])
    bars = [e for e in tree.iter("{http://www.w3.org/2000/svg}rect") if e.get("x") == "10" and e.get("y") != "10"]
    assert [bar.get("width") for bar in bars] == ["60", "600", "600", "600"]


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (0.12345, "0.123"), (999.4, "999"), (64123.0, "64,100")])
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert report.number(value) == text


def test_bars_for_the_terminal_are_as_long_as_the_figure() -> None:
    lines = report.bars_for_terminal(Figure("rate", "rate", "1/s"), {"slow": 10.0, "fast": 40.0}, width=4)
    assert [line.count("█") for line in lines] == [1, 4]


def test_quantiles_are_by_nearest_rank() -> None:
    seconds = [number / 1000 for number in range(1, 1001)]
    assert quantiles_ms(seconds[::-1]) == {"p50": 501.0, "p99": 991.0, "p999": 1000.0}


def test_medians_of_an_unmeasured_broker_are_empty() -> None:
    assert LoadResult(Counted()).medians("nobody") == {}


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    result = CliRunner().invoke(main, ["compare", "--loads", "nonsense"])
    assert result.exit_code == 2
    assert "nonsense" in result.output
    assert all(name in result.output.replace("\n", " ") for name in list(LOADS)[:2])
