"""What keeps the code small and honest: sizes, leftovers, machine paths, waiting by the clock, swallowed exceptions."""

import ast
import re
import statistics
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from tests.tidy.circles import PACKAGES

MODULE_CODE_LINES_MAX = 400  # without imports, docstrings, comments and blank lines
FUNCTION_LINES_MAX = 60
FOLDER_MODULES_MAX = 25  # of the packages, without `__init__`; each subfolder counts by itself
# One module per message or request, which is found by its name in Kafka's protocol.
UNLIMITED_FOLDERS = {"kafkalite/protocol/messages", "kafkalite/server/handlers"}

CODE_FOLDERS = ("kafkalite", "sdk", "tests", "perf", "tools")
CODE_SUFFIXES = {".py", ".pyi", ".pyx", ".pxd"}
TEXT_SUFFIXES = CODE_SUFFIXES | {
    ".md",
    ".toml",
    ".sh",
    ".c",
    ".h",
    ".go",
    ".java",
    ".service",
    ".xml",
    ".yaml",
    ".json",
}
TEXT_PATHS = (*CODE_FOLDERS, "docs", ".ci", "Makefile", "README.md", "CHANGELOG.md", "pyproject.toml", "setup.py")

# Put together from halves, so that this file passes its own test.
_LEFTOVER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
_MACHINE_PATH = re.compile(r"(?<![\w.\-$}])/(?:wo" r"rk|ro" r"ot|ho" r"me/\w+|tm" r"p)(?:/[\w.-]+|\b)")
KAFKAS_OWN_PATHS = {"/tm" + "p/kafka-logs"}  # the default of log.dir

_IMPORT = re.compile(r"\s*(?:from\s+[\w.]+\s+c?import|c?import)\s")
_CYTHON_FUNCTION = re.compile(r"^(\s*)(?:async\s+)?(?:def|cdef|cpdef)\s[^=#]*\(")
_CYTHON_OTHER = re.compile(r"^\s*c?p?def\s+(?:class|struct|enum|union|extern|packed)\b")
_CYTHON_SWALLOWED = re.compile(r"^\s*except\b[^:\n]*:\s*(?:#.*)?(?:\n\s*)?(?:pass|\.\.\.)\s*(?:#.*)?$", re.MULTILINE)


class Function(NamedTuple):
    name: str
    line: int
    lines: int


def code_files(root: Path) -> list[Path]:
    return [path for path in text_files(root, CODE_FOLDERS) if path.suffix in CODE_SUFFIXES]


def text_files(root: Path, roots: tuple[str, ...] = TEXT_PATHS) -> list[Path]:
    found = []
    for start in roots:
        below = [root / start] if (root / start).is_file() else sorted((root / start).rglob("*"))
        found += [path for path in below if path.is_file() and _is_text(path)]
    return found


def _is_text(path: Path) -> bool:
    return "__pycache__" not in path.parts and (path.suffix in TEXT_SUFFIXES or not path.suffix)


@cache
def functions(path: Path) -> list[Function]:
    """Every function of the file, nested ones too, from its `def` to its last line; a file is read once."""
    text = path.read_text()
    return list(_cython_functions(text) if path.suffix in {".pyx", ".pxd"} else _python_functions(text))


@lru_cache(maxsize=1)
def _nodes(text: str) -> list[ast.AST]:
    """All nodes of a source, which several rules read one after the other."""
    return list(ast.walk(ast.parse(text)))


def _python_functions(text: str) -> Iterator[Function]:
    for node in _nodes(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)


def _cython_functions(text: str) -> Iterator[Function]:
    lines = text.splitlines()
    for at, line in enumerate(lines):
        found = _CYTHON_FUNCTION.match(line)
        if not found or _CYTHON_OTHER.match(line):
            continue
        end = _signature_end(lines, at)
        if not lines[end].partition("#")[0].rstrip().endswith(":"):
            continue  # a declaration without a body
        last = _body_end(lines, end, len(found[1]))
        name = line.partition("(")[0].split()[-1].lstrip("*")
        yield Function(name, at + 1, last - at + 1)


def _signature_end(lines: list[str], at: int) -> int:
    depth = 0
    for end in range(at, len(lines)):
        code = lines[end].partition("#")[0]
        depth += code.count("(") - code.count(")")
        if depth <= 0:
            return end
    return len(lines) - 1


def _body_end(lines: list[str], signature_end: int, indent: int) -> int:
    last = signature_end
    for at in range(signature_end + 1, len(lines)):
        line = lines[at]
        if line.strip():
            if len(line) - len(line.lstrip()) <= indent:
                break
            last = at
    return last


def violations(root: Path) -> list[str]:
    """Everything untidy under `root` (a checkout), one line each."""
    found = []
    for path in text_files(root):
        name = path.relative_to(root)
        found += [f"{name}:{said}" for said in _of_text(path.read_text())]
    for path in code_files(root):
        name = path.relative_to(root)
        found += [f"{name}:{said}" for said in (*_sizes(path), *_habits(path, in_tests=name.parts[0] == "tests"))]
    return [*found, *_large_folders(root)]


def _large_folders(root: Path) -> Iterator[str]:
    """The folders of the packages with too many modules; a module is one, however many suffixes it has."""
    modules: dict[str, set[str]] = {}
    for package in PACKAGES:
        for path in (root / package).rglob("*"):
            if path.suffix in CODE_SUFFIXES and path.stem != "__init__":
                modules.setdefault(path.relative_to(root).parent.as_posix(), set()).add(path.stem)
    for folder, names in sorted(modules.items()):
        if len(names) > FOLDER_MODULES_MAX and folder not in UNLIMITED_FOLDERS:
            yield f"{folder}: {len(names)} modules, allowed are {FOLDER_MODULES_MAX}"


def _of_text(text: str) -> Iterator[str]:
    for found in _LEFTOVER.finditer(text):
        yield f"{_line(text, found)}: {found[0]} is left over"
    for found in _MACHINE_PATH.finditer(text):
        if found[0] not in KAFKAS_OWN_PATHS:
            yield f"{_line(text, found)}: {found[0]} is a path of one machine"


def _line(text: str, found: re.Match[str]) -> int:
    return text.count("\n", 0, found.start()) + 1


def _sizes(path: Path) -> Iterator[str]:
    count = code_lines(path.read_text())
    if count > MODULE_CODE_LINES_MAX:
        yield f"1: {count} lines of code, allowed are {MODULE_CODE_LINES_MAX}"
    for function in functions(path):
        if function.lines > FUNCTION_LINES_MAX:
            yield f"{function.line}: {function.name} has {function.lines} lines, allowed are {FUNCTION_LINES_MAX}"


def code_lines(text: str) -> int:
    """The lines of Python or Cython that are not blank, an import, a docstring or nothing but a comment."""
    count = 0
    inside = ""  # what continues in the next line: "import", "docstring" or "string"
    for line in map(str.strip, text.splitlines()):
        quotes = line.count('"""') % 2
        if inside:
            count += inside == "string"
            inside = "" if quotes or (inside == "import" and ")" in line) else inside
        elif _IMPORT.match(line):
            inside = "import" if "(" in line and ")" not in line else ""
        elif line and not line.startswith("#"):
            is_docstring = line.lstrip("rR").startswith('"""')
            count += not is_docstring
            inside = ("docstring" if is_docstring else "string") if quotes else ""
    return count


def _habits(path: Path, *, in_tests: bool) -> Iterator[str]:
    text = path.read_text()
    if path.suffix in {".pyx", ".pxd"}:
        for found in _CYTHON_SWALLOWED.finditer(text):
            yield f"{_line(text, found)}: swallows an exception"
        return
    for node in _nodes(text):
        if isinstance(node, ast.ExceptHandler) and all(_does_nothing(statement) for statement in node.body):
            yield f"{node.lineno}: swallows an exception"
        elif isinstance(node, ast.Call) and _suppresses_all(node):
            yield f"{node.lineno}: suppresses every exception"
        elif in_tests and isinstance(node, ast.Call) and _sleeps(node):
            yield f"{node.lineno}: sleeps: wait for an event"


def _does_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _suppresses_all(node: ast.Call) -> bool:
    names = {getattr(argument, "id", "") for argument in node.args}
    return _called(node) == "suppress" and bool(names & {"Exception", "BaseException"})


def _sleeps(node: ast.Call) -> bool:
    zero = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
    owner = getattr(getattr(node.func, "value", None), "id", None)
    return _called(node) == "sleep" and owner in {None, "time", "asyncio"} and not zero


def report(root: Path) -> str:
    """One line of medians over the package's own code."""
    files = [path for path in code_files(root) if path.relative_to(root).parts[0] in {"kafkalite", "sdk"}]
    modules = [lines for path in files if (lines := code_lines(path.read_text()))] or [0]
    lengths = sorted(function.lines for path in files for function in functions(path)) or [0]
    return (
        f"tidy: {len(modules)} modules, median {statistics.median(modules):.0f} lines of code, longest {max(modules)}; "
        f"{len(lengths)} functions, median {statistics.median(lengths):.0f}, "
        f"p90 {lengths[len(lengths) * 9 // 10]}, longest {lengths[-1]}"
    )
