"""`python -m perf` where the packages of the tests are not installed: help, or one line that says how to get them."""

import subprocess
import sys

import pytest


def perf_without(package: str, *args: str) -> subprocess.CompletedProcess[str]:
    code = f"import runpy, sys; sys.modules[{package!r}] = None; runpy.run_module('perf', run_name='__main__')"
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("package", "args"), [("click", ()), ("confluent_kafka", ("compare",)), ("confluent_kafka", ("profile",))]
)
def test_a_missing_package_is_one_line(package: str, args: tuple[str, ...]) -> None:
    done = perf_without(package, *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("kafkalite: ") and package in done.stderr


@pytest.mark.parametrize("command", [(), ("compare",), ("profile",)])
def test_help_needs_no_package_of_the_tests(command: tuple[str, ...]) -> None:
    done = perf_without("confluent_kafka", *command, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: {' '.join(('python -m perf', *command))}")
