"""Reads docs/durability.md: the cells of its tables of promises, the keys that they name, and the tests behind these.

Each row of the table of other systems' defects names a test, or what is missing.
"""

import ast
import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path("docs/durability.md")
_KEY = re.compile(r"\[(\w+)\](?!\()")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


# The first columns of the tables: the first two columns of a promise name its row.
PROMISES, KEYS, DEFECTS = ("`acks`", "replicas that fail"), "in the table", "defect"
MISSING = "not yet: "


class Promises(NamedTuple):
    """What the page says.

    Attributes:
        cells: (row, column, text) of each promise.
        tests: key -> (file, function).
        named: every test on the page.
        defects: (defect, what is said of it).
    """

    cells: list[tuple[str, str, str]]
    tests: dict[str, tuple[str, str]]
    named: list[tuple[str, str]]
    defects: list[tuple[str, str]]


def read(root: Path) -> Promises:
    """The promises of a checkout."""
    text = (root / PAGE).read_text()
    found = {table[0][0]: table for table in tables(text)}
    cells = [
        (f"{row[0]} {row[1]}", column, cell)
        for name in PROMISES
        for row in found[name][1:]
        for column, cell in zip(found[name][0][2:], row[2:], strict=True)
    ]
    tests = {row[0]: (test[1], test[2]) for row in found[KEYS][1:] if (test := _TEST.fullmatch(row[1]))}
    named = [(test[1], test[2]) for test in _TEST.finditer(text)]
    return Promises(cells, tests, named, [(row[0], row[1]) for row in found[DEFECTS][1:]])


def broken(root: Path) -> list[str]:
    """Promises without a test, keys without a meaning, and tests that are not there; one line each."""
    promises = read(root)
    said = []
    for row, column, text in promises.cells:
        keys = _KEY.findall(text)
        if not keys:
            said.append(f"{row}, {column}: no test is named")
        said += [f"{row}, {column}: [{key}] is not in the list of tests" for key in keys if key not in promises.tests]
    said += [f"{row}: no test" for row, text in promises.defects if not _TEST.search(text) and MISSING not in text]
    return said + [f"{file}::{name} does not exist" for file, name in promises.named if not _exists(root / file, name)]


def tables(text: str) -> list[list[list[str]]]:
    """Every table as rows of cells, without the line below its head."""
    tables: list[list[list[str]]] = []
    before = ""
    for line in text.splitlines():
        if line.startswith("|"):
            if not before.startswith("|"):
                tables.append([])
            if not set(line) <= set("|-: "):
                tables[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        before = line
    return tables


def _exists(path: Path, name: str) -> bool:
    """Whether a file has a test, by itself or in a class."""
    if not path.is_file():
        return False
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    body = ast.parse(path.read_text()).body
    tests = [*body, *(node for each in body if isinstance(each, ast.ClassDef) for node in each.body)]
    return any(isinstance(node, functions) and node.name == name for node in tests)
