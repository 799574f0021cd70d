"""The search for a planted bug begins with the recorded seed, and fails if no seed finds the bug."""

from __future__ import annotations

import pytest

from tests.fix_torture import SHORT
from tests.kit.planted_bugs import SEEDS, assert_found

RECORDED = 150
LONG = SHORT["simulations"] + 1


class Search:
    """A search for a bug that some seeds find.

    Attributes:
        runs: the seeds that ran.
        lines: the lines in the summary of the run.
    """

    def __init__(self) -> None:
        self.runs: list[int] = []
        self.lines: list[str] = []

    def run(self, *finding: int, simulations: int = SHORT["simulations"]) -> None:
        """Search; the given seeds find the bug."""

        def run(seed: int) -> None:
            self.runs.append(seed)
            if seed in finding:
                raise KeyError(seed)

        def report(_name: str, line: object) -> None:
            self.lines.append(str(line))

        assert_found("bug", run, (KeyError,), recorded=RECORDED, simulations=simulations, report=report)


def test_recorded_seed_is_the_only_run() -> None:
    search = Search()
    search.run(7, RECORDED)
    assert search.runs == [RECORDED]
    assert search.lines == []


def test_search_goes_on_from_1_and_reports_another_seed() -> None:
    search = Search()
    search.run(2)
    assert search.runs == [RECORDED, 1, 2]
    assert search.lines == [f"bug: seed 2 has found it, {RECORDED} is recorded"]


def test_long_form_searches_from_1() -> None:
    search = Search()
    search.run(3, RECORDED, simulations=LONG)
    assert search.runs == [1, 2, 3]


def test_bug_that_no_seed_finds_fails() -> None:
    search = Search()
    with pytest.raises(AssertionError, match="bug was not found in 200 runs"):
        search.run()
    assert sorted(search.runs) == list(SEEDS)
