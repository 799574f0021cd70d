"""The seeds of all randomised tests: fixed in a normal run, so that the same commit draws the same in each run.

A test prints its seed. The environment sets other seeds:

- `KAFKALITE_SEED=n` repeats a failed test: a test with one seed uses n, a simulation with many seeds runs n alone.
- `KAFKALITE_SEED=random` draws a first seed for the whole run.
- `KAFKALITE_FIRST_SEED=n` is such a first seed; `make torture` and `make simulate` draw it.

The short form of a test of many cases may run a sample of them, which the commit selects (`sample_seed`).

A seed that ever failed is added to FAILED, with its test; `tests/rigs/test_failed_seeds.py` repeats them all.
"""

import os
import random
import subprocess
from pathlib import Path

import hypothesis

ROOT = Path(__file__).parents[2]
FIXED = 1
RANDOM = "random"

FAILED = [  # test, seed; seeds of tests that draw other choices since then are left out
    ("tests/rigs/test_crash_steps.py::test_a_crash_at_every_step[delete_unsynced-power]", 260866340),
]


def draw_first_seed() -> None:
    """Replace `KAFKALITE_SEED=random` by a drawn first seed; the processes of this run inherit it.

    Property tests of hypothesis repeat their examples, unless seeds were given or drawn.
    """
    if os.environ.get("KAFKALITE_SEED") == RANDOM:
        del os.environ["KAFKALITE_SEED"]
        os.environ.setdefault("KAFKALITE_FIRST_SEED", str(random.SystemRandom().randrange(1, 2**31)))
    given = {"KAFKALITE_SEED", "KAFKALITE_FIRST_SEED"} & os.environ.keys()
    hypothesis.settings.register_profile("kafkalite", derandomize=not given, database=None)
    hypothesis.settings.load_profile("kafkalite")


def replayed_seed() -> int | None:
    """The seed of KAFKALITE_SEED, or None where it is not set."""
    given = os.environ.get("KAFKALITE_SEED")
    return int(given) if given else None


def first_seed() -> int:
    """The first one of the seeds of a simulation."""
    return int(os.environ.get("KAFKALITE_FIRST_SEED") or FIXED)


def chosen_seed() -> int:
    """The seed of a test that has one seed."""
    replayed = replayed_seed()
    return first_seed() if replayed is None else replayed


def seeds_of(count: int) -> range:
    """The seeds of a simulation that runs `count` times, or the one to replay."""
    replayed = replayed_seed()
    return range(first_seed(), first_seed() + count) if replayed is None else range(replayed, replayed + 1)


def sample_seed() -> int:
    """The seed of a sample of cases, all of which the long form runs: that of the commit, unless one was given.

    Without a commit, in an unpacked source distribution, it is `FIXED`.
    """
    if os.environ.get("KAFKALITE_SEED") or os.environ.get("KAFKALITE_FIRST_SEED"):
        return chosen_seed()
    done = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return FIXED if done.returncode else int(done.stdout.strip()[:7], 16)
