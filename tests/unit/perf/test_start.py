"""`python -m perf` where the packages of the tests are not installed: one line that says how to get them."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["confluent_kafka", "click"])
def test_a_missing_package_is_one_line(package: str) -> None:
    code = f"import runpy, sys; sys.modules[{package!r}] = None; runpy.run_module('perf', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("kafkalite: ") and package in done.stderr
