"""Finds calls of methods that no Cython class declares: `undeclared_calls`.

A Cython class may leave methods to a Python subclass. It declares each of them with a `def` that raises
NotImplementedError; otherwise neither Cython nor mypy sees that the subclass lacks one. The search is by lines: of a
call `object.method(`, the object is `self`, or a variable, an argument or an attribute of the type of a Cython class.
Classes of the same name count as one.
"""

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

CLASS = re.compile(r"^(?:cdef class|class) (\w+)(?:\((.*?)\))?:", re.M)
METHOD = re.compile(r"^    (?:cdef|cpdef|async def|def) (?:[\w\[\], *.]+[ *])?(\w+)\(", re.M)
FIELD = re.compile(
    r"^    cdef (?:public |readonly )?(?:const |unsigned )?([\w\[\], .]+?)[ *]+(\w+(?:, \*?\w+)*)(?:\[.*\])? *$",
    re.M,
)
VALUE = re.compile(r"^    (\w+) = ", re.M)
FUNCTION = re.compile(r"^(?: {4})?(?:cdef|cpdef|async def|def) [^\n=]*\(", re.M)
CALL = re.compile(r"(?<![\w.\])])(\w+)(?:\.(\w+))?\.(\w+)\(")
COMMENT = re.compile(r'"""(?:.|\n)*?"""|#[^\n]*')


@dataclass
class CythonClass:
    """What a class declares, in its module and in the `.pxd` beside it.

    Attributes:
        base: name of its base; "" = none.
        names: its methods and attributes.
        types: type by attribute.
        body: its code, without comments.
    """

    base: str = ""
    names: set[str] = field(default_factory=set)
    types: dict[str, str] = field(default_factory=dict)
    body: str = ""


def read_classes(text: str, classes: dict[str, CythonClass]) -> None:
    """Add the classes of a module or of its declarations.

    Arguments:
        text: of a `.pyx` or `.pxd`.
        classes: receives the classes by name.
    """
    text = COMMENT.sub("", text)
    starts = [*CLASS.finditer(text)]
    for start in starts:
        end = re.compile(r"^\S", re.M).search(text, start.end())
        body = text[start.end() : end.start() if end else len(text)]
        found = classes.setdefault(start[1], CythonClass())
        found.base = found.base or (start[2] or "").split(",")[0].strip()
        found.names.update(METHOD.findall(body), VALUE.findall(body))
        for kind, names in FIELD.findall(body):
            found.types.update(dict.fromkeys(names.replace("*", "").split(", "), kind))
        found.body += body


def _declares(classes: dict[str, CythonClass], name: str, method: str) -> bool:
    while name in classes:
        if method in classes[name].names or method in classes[name].types:
            return True
        name = classes[name].base
    return bool(name)  # a base that is no Cython class of ours


def _type_of(classes: dict[str, CythonClass], name: str, attribute: str) -> str:
    while name in classes:
        if attribute in classes[name].types:
            return classes[name].types[attribute]
        name = classes[name].base
    return ""


def _functions(text: str) -> list[str]:
    starts = [match.start() for match in FUNCTION.finditer(text)]
    return [text[begin:end] for begin, end in pairwise([*starts, len(text)])]


def _calls(classes: dict[str, CythonClass], owner: str, text: str) -> set[str]:
    typed = re.compile(r"\b(" + "|".join(map(re.escape, classes)) + r") (\w+)\b")
    found = set()
    for function in _functions(text):
        types = {name: kind for kind, name in typed.findall(function)} | {"self": owner}
        for variable, attribute, method in CALL.findall(function):
            kind = types.get(variable, "")
            if attribute:
                kind = _type_of(classes, kind, attribute)
            if kind in classes and not _declares(classes, kind, method):
                found.add(f"{kind}.{method}")
    return found


def undeclared_calls(files: dict[str, str]) -> list[str]:
    """Return the methods, `Class.method`, that Cython code calls and no Cython class declares.

    Arguments:
        files: the text of each `.pyx` and `.pxd` by its path.
    """
    classes: dict[str, CythonClass] = {}
    for text in files.values():
        read_classes(text, classes)
    found: set[str] = set()
    for name, each in classes.items():
        found |= _calls(classes, name, each.body)
    for text in files.values():
        outside = COMMENT.sub("", text)
        found |= _calls(classes, "", re.sub(r"^(?:cdef )?class \w+.*(?:\n(?:[ ].*)?)*", "", outside, flags=re.M))
    return sorted(found)


def cython_files(root: Path) -> dict[str, str]:
    """Return the text of each Cython file of the project by its path from `root`."""
    folders = (root / "kafkalite" / "_speedups", root / "sdk" / "kafkalite_sdk" / "_speedups")
    paths = sorted(path for folder in folders for path in folder.rglob("*.p[yx][xd]"))
    return {str(path.relative_to(root)): path.read_text() for path in paths}
