"""Reads which modules a source file imports: Python by its syntax tree, Cython line by line.

Every import counts: at the top, inside a function, for types only, and `import_module("...")` with a literal name.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CYTHON_SUFFIXES = {".pyx", ".pxd"}
_FROM = re.compile(r"^\s*from\s+(\.*[\w.]*)\s+c?import\s+(.+)$")
_IMPORT = re.compile(r"^\s*c?import\s+(.+)$")
_INCLUDE = re.compile(r"""^\s*include\s+["'](.+)["']""")


class Import(NamedTuple):
    line: int
    name: str  # the full dotted name; `from a import b` is a.b


def imports(path: Path, module: str) -> list[Import]:
    """All imports of the file at `path`, which is the module named `module`."""
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    read = _of_cython if path.suffix in CYTHON_SUFFIXES else _of_python
    return list(read(path.read_text(), package))


def module_name(path: Path, base: Path) -> str:
    """The dotted name of the module in the file at `path`; `base` is the folder of its top package."""
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _absolute(package: str, level: int, name: str) -> str:
    if level == 0:
        return name
    base = package.split(".")
    base = base[: len(base) - level + 1]
    return ".".join([*base, name] if name else base)


def _of_python(text: str, package: str) -> Iterator[Import]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(package, node.level, node.module or "")
            yield from (Import(node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and _is_import_call(node.func) and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield Import(node.lineno, name.value)


def _is_import_call(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in {"import_module", "__import__"}


def _of_cython(text: str, package: str) -> Iterator[Import]:
    for number, line in _logical_lines(text):
        if found := _FROM.match(line):
            dots = len(found[1]) - len(found[1].lstrip("."))
            base = _absolute(package, dots, found[1].lstrip("."))
            names = found[2].strip("() ").split(",")
            yield from (Import(number, f"{base}.{name.split()[0]}") for name in names if name.strip())
        elif found := _IMPORT.match(line):
            yield from (Import(number, name.split()[0]) for name in found[1].split(",") if name.strip())
        elif found := _INCLUDE.match(line):
            yield Import(number, f"include:{found[1]}")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments; those between parentheses are joined to the one that opens them."""
    joined, begin = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].rstrip("\\ ")
        begin = begin if joined else number
        joined += " " + line if joined else line
        if not (_FROM.match(joined) and joined.count("(") > joined.count(")")):
            yield begin, joined
            joined = ""
