"""The package imports every dependency that an installation brings."""

import ast
import re
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
NAME = re.compile(r"[A-Za-z0-9._-]+")


@cache
def imported() -> set[str]:
    """Names of all modules that the package imports, in Python and in Cython, anywhere in a file."""
    names = set()
    for path in (ROOT / "kafkalite").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    for path in (ROOT / "kafkalite").rglob("*.pyx"):
        names |= set(re.findall(r"^\s*(?:import|from) ([\w.]+)", path.read_text(), re.MULTILINE))
    return names


def modules_of(distribution: str) -> set[str]:
    """Return the importable names of a distribution: its top-level modules, or the module in a namespace package."""
    found = {top for top, names in packages_distributions().items() if distribution in names}
    return {distribution} if "." in distribution else found


@pytest.mark.parametrize("requirement", DECLARED)
def test_every_declared_dependency_is_imported(requirement: str) -> None:
    match = NAME.match(requirement)
    assert match is not None
    modules = modules_of(match[0])
    assert modules, f"{requirement} is not installed"
    names = imported()
    used = {name for module in modules for name in names if name == module or name.startswith(f"{module}.")}
    assert used, f"{requirement}: nothing in kafkalite imports {' or '.join(sorted(modules))}"
