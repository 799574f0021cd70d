"""The figures in README.md are those of the reports in perf/results."""

from pathlib import Path

from tests.tidy.figures import wrong

ROOT = Path(__file__).resolve().parents[2]


def test_figures_of_the_readme_are_those_of_the_reports() -> None:
    assert wrong(ROOT) == []
