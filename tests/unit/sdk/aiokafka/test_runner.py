"""`python -m kafkalite_sdk.compat.aiokafka MODULE:FUNCTION` calls a function of a program that imports aiokafka."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio
import sys

import aiokafka

def report(how):
    print(how, aiokafka.AIOKafkaProducer.__module__.split(".")[0], sys.argv[1:])

def plain():
    report("plain")

async def main():
    await asyncio.sleep(0)
    report("async")

if __name__ == "__main__":
    report("module")
"""


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "app.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "kafkalite_sdk.compat.aiokafka", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("program", "how"), [("app:plain", "plain"), ("app:main", "async"), ("app", "module")])
def test_program_runs_on_the_sdk(tmp_path: Path, program: str, how: str) -> None:
    done = run(tmp_path, program, "one", "--two")
    assert (done.returncode, done.stdout) == (0, f"{how} kafkalite_sdk ['one', '--two']\n"), done.stderr


@pytest.mark.parametrize(("program", "text"), [("app:other", "no attribute 'other'"), ("nothing:main", "No module")])
def test_missing_program_is_one_line(tmp_path: Path, program: str, text: str) -> None:
    done = run(tmp_path, program)
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {program}: ") and text in line and "pass MODULE:FUNCTION" in line


def test_usage(tmp_path: Path) -> None:
    assert run(tmp_path, "--help").returncode == 0
    wrong = run(tmp_path)
    assert wrong.returncode == 2 and wrong.stdout.startswith("usage: python -m kafkalite_sdk.compat.aiokafka")
