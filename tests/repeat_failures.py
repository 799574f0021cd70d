"""Run each failed test once more, alone, when nothing else runs: `python -m tests.repeat_failures FILE [FILE ...]`.

A slow machine must not fail a run. A test that passes now is printed under the heading FLAKY with its seed and both
outputs, and the exit code is 0; the test is a defect all the same, whose cause must be found. The exit code is 1 if a
test fails again, if a failure is conclusive (`tests/fix_failures.py`), or if more than REPEATED_MAX tests failed.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fix_failures import CONCLUSIVE
from tests.kit.seeds import chosen_seed

REPEATED_MAX = 10
ERROR_CHARACTERS_MAX = 4_000  # the whole output is above
DEADLINE_S = 1800.0
SEED = re.compile(r"KAFKALITE_SEED=(\d+)")


def seed_in(output: str) -> int:
    """The seed that a test has printed, or the one of this run."""
    printed = SEED.search(output)
    return int(printed[1]) if printed else chosen_seed()


def repeat(python: str, test: str) -> subprocess.CompletedProcess[str]:
    """Run one test alone, with the environment and the seeds of this process."""
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", "--strict-run", test]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env={**os.environ})


def passes_alone(python: str, failure: dict[str, Any]) -> bool:
    """Repeat a failed test and print both outputs. A conclusive failure is not repeated."""
    test, output = failure["test"], failure["output"]
    if failure[CONCLUSIVE]:
        print(f"FAILED {test}, seed {seed_in(output)}: this failure is conclusive, so it is not repeated")
        print(failure["error"][:ERROR_CHARACTERS_MAX])
        return False
    done = repeat(python, test)
    heading = "FLAKY" if done.returncode == 0 else "FAILED TWICE"
    print(f"==== {heading} {test}, seed {seed_in(output)} ====")
    print(f"---- first run, beside other tests ----\n{output}\n---- second run, alone ----\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def main(paths: list[str]) -> int:
    """Repeat the failures of all files. Returns the exit code."""
    runs = [json.loads(Path(path).read_text()) for path in paths]
    failures = [(run["python"], each) for run in runs for each in run["failures"]]
    if len(failures) > REPEATED_MAX:
        print(f"{len(failures)} tests failed: at most {REPEATED_MAX} are repeated")
        return 1
    failing = [each for python, each in failures if not passes_alone(python, each)]
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
