"""`tools/compile_once.py` runs the compiler once for the same input, and again for another one."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools/compile_once.py"
COMPILER = """#!/bin/sh
echo "$*" >> calls
case "$*" in *-DWRONG*) exit 4;; esac
while [ "$1" != -o ]; do [ "$1" ] || exit 0; shift; done
cat *.c > "$2"
"""


class Calls:
    """A compiler that copies sources and counts its calls.

    Arguments:
        directory: of the sources.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._compiler = directory / "compiler"
        self._compiler.write_text(COMPILER)
        self._compiler.chmod(0o755)

    def run(self, *arguments: str) -> int:
        command = [sys.executable, "-I", "-S", str(TOOL), "objects", str(self._compiler), *arguments]
        return subprocess.run(command, cwd=self.directory).returncode

    @property
    def count(self) -> int:
        return len((self.directory / "calls").read_text().splitlines())


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    (tmp_path / "a.c").write_text("one")
    return Calls(tmp_path)


def test_same_input_is_compiled_once(calls: Calls) -> None:
    for name in ("first.o", "second.o"):
        assert calls.run("-O2", "-c", "a.c", "-o", name) == 0
        assert (calls.directory / name).read_text() == "one"
    assert calls.count == 1


def test_other_options_and_sources_are_compiled(calls: Calls) -> None:
    calls.run("-O2", "-c", "a.c", "-o", "a.o")
    calls.run("-O0", "-c", "a.c", "-o", "a.o")
    (calls.directory / "a.c").write_text("two")
    calls.run("-O2", "-c", "a.c", "-o", "a.o")
    assert calls.count == 3 and (calls.directory / "a.o").read_text() == "two"


def test_failures_and_links_are_not_kept(calls: Calls) -> None:
    for _ in range(2):
        assert calls.run("-DWRONG", "-c", "a.c", "-o", "a.o") == 4
        assert calls.run("a.o", "-o", "a.so") == 0
    assert calls.count == 4
