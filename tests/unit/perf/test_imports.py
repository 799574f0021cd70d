"""Each module of perf can be the first one that a program imports: none needs another one to be imported before it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
IMPORT_EACH = """
import importlib, pkgutil, sys
import perf
found = [each.name for each in pkgutil.walk_packages(perf.__path__, "perf.") if not each.name.endswith("__main__")]
names = [name for name in found if not name.startswith("perf.pipeline")]  # those need the environment of Spark
for name in names:
    for loaded in [each for each in sys.modules if each.startswith("perf.")]:
        del sys.modules[loaded]
    importlib.import_module(name)
print(len(names))
"""


def test_each_module_can_be_imported_first() -> None:
    found = subprocess.run([sys.executable, "-c", IMPORT_EACH], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) > 50
