"""Searches the seeds of a simulation for one that finds a planted bug: one of the first 200 must.

The seed that finds the bug is recorded beside it, and a normal run begins there. Where the code has changed so that
this seed finds it no longer, the search continues with all others from 1 on, and the summary of the run names the seed
to record. The long form (`--simulations N`, as in `make torture`) searches from 1.
"""

from __future__ import annotations

from collections.abc import Callable

SEEDS = range(1, 201)
SHORT_SIMULATIONS = 100  # the value of `--simulations` in `make test`
Report = Callable[[str, object], None]


def search_order(recorded: int, simulations: int) -> list[int]:
    """The seeds in the order of the search.

    Arguments:
        recorded: the seed that finds the bug.
        simulations: the option `--simulations`.
    """
    if simulations != SHORT_SIMULATIONS:
        return list(SEEDS)
    return sorted(SEEDS, key=lambda seed: seed != recorded)


def assert_found(
    name: str,
    run: Callable[[int], object],
    failures: tuple[type[BaseException], ...],
    *,
    recorded: int,
    simulations: int,
    report: Report,
) -> None:
    """Run seeds until the planted bug makes one fail.

    Arguments:
        name: of the bug, which is planted.
        run: runs a seed.
        failures: the exceptions of a run that has found the bug.
        recorded: the seed that finds the bug, 1 to 200.
        simulations: the option `--simulations`.
        report: `record_property` of the test.

    Raises: AssertionError if no seed finds it.
    """
    assert recorded in SEEDS, f"{name}: seed {recorded} is recorded, expected 1 to {SEEDS[-1]}"
    for seed in search_order(recorded, simulations):
        try:
            run(seed)
        except failures as error:
            print(f"{name}: seed {seed}: {error}".splitlines()[0])
            if seed != recorded:
                report("summary", f"{name}: seed {seed} has found it, {recorded} is recorded")
            return
    raise AssertionError(f"{name} was not found in {len(SEEDS)} runs")
