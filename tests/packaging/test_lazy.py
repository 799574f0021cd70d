"""Importing is free: no broker behind the package, no uvloop or aiozk behind the client half, no command for help."""

import importlib
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import kafkalite
from kafkalite._version import VERSION
from kafkalite.cli.main import COMMANDS, main

FORBID = """
import sys
class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"uvloop", "aiozk", "click", "re2"}:
            raise ImportError(f"{name} is forbidden here")
sys.meta_path.insert(0, Forbid())
"""
IMPORT_ALL = """
import importlib, pkgutil
for name in ("kafkalite.net", "kafkalite.protocol", "kafkalite.records", "kafkalite_sdk"):
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(package.__path__, name + "."):
        importlib.import_module(found.name)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_the_client_half_and_the_sdk_need_no_library_of_the_broker() -> None:
    done = run(FORBID + IMPORT_ALL)
    assert done.returncode == 0, done.stderr


def test_the_hook_forbids() -> None:
    done = run(FORBID + "import uvloop")
    assert done.returncode == 1
    assert "uvloop is forbidden here" in done.stderr


def test_importing_the_package_imports_no_module_of_it() -> None:
    done = run("import sys, kafkalite; print([m for m in sys.modules if m.startswith('kafkalite.')])")
    assert done.stdout.strip() == "[]"


def test_names_are_imported_on_first_use() -> None:
    assert kafkalite.__version__ == VERSION
    assert {"Broker", "__version__"} <= set(dir(kafkalite))
    with pytest.raises(AttributeError, match="no attribute 'Brokers'"):
        kafkalite.Brokers  # noqa: B018  (the access is the test)


def test_help_names_every_command_and_imports_none() -> None:
    modules = [f"kafkalite.cli.{name}" for name in COMMANDS]
    done = run(
        "import sys; from click.testing import CliRunner; from kafkalite.cli.main import main\n"
        "print(CliRunner().invoke(main, ['--help']).output)\n"
        f"print('imported:', [name for name in {modules} if name in sys.modules])"
    )
    assert "imported: []" in done.stdout
    for name, text in COMMANDS.items():
        assert f"  {name}" in done.stdout
        assert text in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists(name: str) -> None:
    command = importlib.import_module(f"kafkalite.cli.{name}").command
    assert isinstance(command, click.Command)
    done = CliRunner().invoke(main, [name, "--help"])
    assert done.exit_code == 0, done.output


def test_an_unknown_command_is_named() -> None:
    done = CliRunner().invoke(main, ["sreve"])
    assert done.exit_code == 2
    assert "No such command 'sreve'" in done.output


def test_version_of_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kafkalite", "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == f"kafkalite {VERSION}\n"
