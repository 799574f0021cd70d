"""Reads which names README and the documentation import."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def documented_imports(package: str) -> set[tuple[str, str]]:
    """Return (module, name) of each `from MODULE import NAME` in README and docs/.

    Arguments:
        package: the module is this one or one below it.
    """
    pattern = re.compile(rf"^ *from ({package}[\w.]*) import \(?([\w, ]+)", re.M)
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    return {
        (module, name)
        for page in pages
        for module, names in pattern.findall(page.read_text())
        for name in names.replace(" ", "").split(",")
        if name
    }
