"""Finds circles of imports among the modules of a package and among its sibling folders.

1. Every import counts, also one inside a function or for types only: a circle that the interpreter does not see still
   means that none of its parts is understood, tested or moved without the others.
2. `.py`, `.pyi`, `.pyx` and `.pxd` of one name are one module. The name of a folder is its `__init__`; the folders on
   the way to an imported module do not count.
3. Sibling folders are the folders in one folder. One imports another if any module below it does.
"""

from pathlib import Path

from tests.tidy.imports import imports, module_name

PACKAGES = ("kafkalite", "sdk/kafkalite_sdk", "sdk/pyspark_kafkalite")
SUFFIXES = {".py", ".pyi", ".pyx", ".pxd"}

Graph = dict[str, set[str]]


def module_circles(graph: Graph) -> list[str]:
    """Each largest group of modules that import each other, as `common parent: module module`."""
    return [_describe(circle) for circle in circles(graph)]


def _describe(circle: list[str]) -> str:
    parts = [name.split(".") for name in circle]
    levels = enumerate(zip(*parts, strict=False))
    shared = next((at for at, names in levels if len(set(names)) > 1), min(map(len, parts)) - 1)
    return f"{'.'.join(parts[0][:shared])}: {' '.join('.'.join(names[shared:]) for names in parts)}"


def folder_circles(graph: Graph) -> list[str]:
    """Each largest group of sibling folders that import each other, as `parent: folder folder`."""
    parents = sorted({name.rpartition(".")[0] for name in _folders(graph)})
    return [f"{parent}: {' '.join(circle)}" for parent in parents for circle in circles(_siblings(graph, parent))]


def read_graph(root: Path) -> Graph:
    """The modules of the three packages under `root` (the checkout), each with those that it imports."""
    files = [
        (path, module_name(path, (root / package).parent)) for package in PACKAGES for path in _sources(root / package)
    ]
    graph: Graph = {module: set() for _, module in files}
    for path, module in files:
        targets = (_known_prefix(each.name, graph) for each in imports(path, module))
        graph[module] |= {target for target in targets if target not in {"", module}}
    return graph


def _sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)


def _known_prefix(name: str, graph: Graph) -> str:
    """The module that holds `name`, which may be a module itself; empty for another library's."""
    while name and name not in graph:
        name = name.rpartition(".")[0]
    return name


def _folders(graph: Graph) -> set[str]:
    """All folders with modules in them, the three packages not among them."""
    parents = {name.rpartition(".")[0] for name in graph}
    return {name for name in parents if "." in name}


def _siblings(graph: Graph, parent: str) -> Graph:
    """The folders in the folder `parent`, each with those of them that it imports."""
    names = {name for name in _folders(graph) if name.rpartition(".")[0] == parent}
    siblings: Graph = {name.rpartition(".")[2]: set() for name in names}
    for module, targets in graph.items():
        source = _child(module, parent)
        if source in siblings:
            siblings[source] |= {_child(target, parent) for target in targets} & (siblings.keys() - {source})
    return siblings


def _child(module: str, parent: str) -> str:
    """The name of what is directly in `parent` and is or holds `module`; empty if it is elsewhere."""
    return module.removeprefix(parent + ".").partition(".")[0] if module.startswith(parent + ".") else ""


def circles(graph: Graph) -> list[list[str]]:
    """The sorted strongly connected components of two or more names."""
    graph = _without_ends(graph)
    reachable = {name: _reachable(graph, name) for name in graph}
    found = {tuple(sorted(other for other in reachable[name] if name in reachable[other])) for name in graph}
    return [list(circle) for circle in sorted(found) if len(circle) > 1]


def _without_ends(graph: Graph) -> Graph:
    """`graph` without names that lead to no circle, which are nearly all."""
    while ends := {name for name, targets in graph.items() if not targets}:
        graph = {name: targets - ends for name, targets in graph.items() if name not in ends}
    return graph


def _reachable(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen
