"""Modules of a worker are exempted from collections once, not the garbage of each task."""

import subprocess
import sys

COUNTS = """
import gc, sys
from pyspark_kafkalite.collector import freeze_modules
gc.disable()
counts = []
freeze_modules()
counts.append(gc.get_freeze_count())
rows = [[] for _ in range(1000)]
freeze_modules()
counts.append(gc.get_freeze_count())
import plistlib
freeze_modules()
counts.append(gc.get_freeze_count())
print(*counts)
"""


def test_objects_are_frozen_when_modules_were_imported() -> None:
    done = subprocess.run([sys.executable, "-c", COUNTS], capture_output=True, text=True, check=True)
    first, same, more = map(int, done.stdout.split())
    assert first > 1000
    assert same <= first  # the list of 1,000 lists is not frozen
    assert more > same + 1000
