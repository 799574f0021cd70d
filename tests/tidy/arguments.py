"""Counts public functions whose docstring names each of their parameters: a caller reads meaning and unit there.

1. Counted are functions and methods with three parameters or more, `self` or `cls` and `*args` not among them, whose
   name, and that of their class, begins with no underscore. `__init__` is not counted: its class documents it.
2. A parameter is documented if its name is a word of the docstring, in a section `Arguments:` or in a sentence; all are
   if the section refers to another function: "Arguments: as of `Producer.send`."
3. Commands of click do not count: their docstring is the text of `--help`, and each option has its own.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PARAMETERS_MIN = 3
PACKAGES = ("kafkalite", "sdk")
_REFERENCE = re.compile(r"^Arguments: as of `[\w.]+`", re.MULTILINE)


class Documented(NamedTuple):
    """A public function with its parameters and those that its docstring does not name."""

    name: str
    path: str
    parameters: tuple[str, ...]
    missing: tuple[str, ...]


def count_documented(root: Path) -> list[Documented]:
    """The public functions with PARAMETERS_MIN parameters in the packages of the checkout `root`."""
    paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return [
        Documented(function.name, str(path.relative_to(root)), parameters, tuple(_missing(function, parameters)))
        for path in paths
        for function, parameters in public_functions(path.read_text())
    ]


def public_functions(text: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, tuple[str, ...]]]:
    """The counted functions of the source `text`, each with its parameters."""
    for node, is_method in _public(ast.parse(text), is_class=False):
        decorators = {_decorator(each) for each in node.decorator_list}
        first = int(is_method and "staticmethod" not in decorators)
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs][first:]
        if len(parameters) >= PARAMETERS_MIN and not decorators & {"overload", "command"}:
            yield node, tuple(each.arg for each in parameters)


def _public(node: ast.AST, *, is_class: bool) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.ClassDef) and not each.name.startswith("_"):
            yield from _public(each, is_class=True)
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith("_"):
            yield each, is_class


def _decorator(node: ast.expr) -> str:
    function = node.func if isinstance(node, ast.Call) else node
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _missing(function: ast.FunctionDef | ast.AsyncFunctionDef, parameters: tuple[str, ...]) -> Iterator[str]:
    docstring = ast.get_docstring(function) or ""
    if _REFERENCE.search(docstring):
        return iter(())
    return (name for name in parameters if not re.search(rf"\b{name}\b", docstring))
