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


@pytest.mark.parametrize(
    ("program", "how"),
    [("app:plain", "plain"), ("app:main", "async"), ("app", "module"), ("app.py", "module"), ("./app.py", "module")],
)
def test_program_runs_on_the_sdk(tmp_path: Path, program: str, how: str) -> None:
    done = run(tmp_path, program, "one", "--two")
    assert (done.returncode, done.stdout) == (0, f"{how} kafkalite_sdk ['one', '--two']\n"), done.stderr


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("app:other", "no attribute 'other'"),
        ("nothing:main", "No module"),
        ("nothing", "No module"),
        ("nothing.py", "no such file"),
        ("json", "No module"),  # a package that cannot be run
        ("nothing.at.all", "No module"),
        ("app.nothing", "'app.nothing'"),
        (".app", "does not begin with a dot"),
        (":main", "there is no module"),
    ],
)
def test_missing_program_is_one_line(tmp_path: Path, program: str, text: str) -> None:
    done = run(tmp_path, program)
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {program}: ") and text in line and "pass FILE.py, MODULE or MODULE:FUNCTION" in line


@pytest.mark.parametrize("program", ["broken.py", "broken", "broken:main"])
def test_import_that_fails_within_the_program_keeps_its_traceback(tmp_path: Path, program: str) -> None:
    (tmp_path / "broken.py").write_text("import absent_library\n")
    done = run(tmp_path, program)
    assert done.returncode == 1 and "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'absent_library'"


def test_file_imports_modules_beside_it(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "names.py").write_text("NAME = 'beside'\n")
    (package / "start.py").write_text("import names\nprint(names.NAME, __name__)\n")
    assert run(tmp_path, "package/start.py").stdout == "beside __main__\n"


def test_usage(tmp_path: Path) -> None:
    assert run(tmp_path, "--help").returncode == 0
    wrong = run(tmp_path)
    assert wrong.returncode == 2 and wrong.stdout.startswith("usage: python -m kafkalite_sdk.compat.aiokafka")
