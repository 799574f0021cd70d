"""Every path, module and name in a module that the documentation quotes exists."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "kafkalite").rglob("*.md")]
QUOTED = re.compile(r"`([\w./*:-]+)`")
MODULE_SUFFIXES = ("", ".py", ".pyx", ".pxd", ".pyi", "/__init__.py")
# Placeholders, config keys, loggers, ciphers, files of a broker or a build, and paths of other projects.
NOT_HERE = re.compile(
    r"NAME|TYPE|://|^/|/x\.py$|^build/|^data\b|^orders\b|^\.|^AES/|^pytest-dev/|^config/server\.properties"
    r"|^kafkalite\.(authentication$|authorizers?$|complete|connections|failed-fsync|journal|principal\.|requests)"
    r"|^kafkalite\.(session|socket|unconfirmed)"
    r"|^kafkalite\.(coordination\.directory$|client\.|delegation\.|fetch\.|group\.|inter\.|retention\.|sasl[._]|zookeeper\.)"
)


def is_path(text: str) -> bool:
    """Whether a quoted text names a file, a directory or a module of this project."""
    return ("/" in text or text.endswith(".py") or text.startswith("kafkalite.")) and not NOT_HERE.search(text)


def exists(page: Path, text: str) -> bool:
    """Whether the text is a path relative to the checkout, the package or its page, or a name in a module there."""
    path, _, name = text.removesuffix("/").partition("::")
    if path.startswith("kafkalite."):
        path = path.replace(".", "/")
    bases = (ROOT, ROOT / "kafkalite", page.parent)
    if any(list(base.glob(path + suffix)) for base in bases for suffix in MODULE_SUFFIXES):
        return True
    separator = "/" if text.startswith("kafkalite.") else "."
    module, _, name = path.rpartition(separator)
    while module:
        for found in (base / (module + suffix) for base in bases for suffix in MODULE_SUFFIXES[1:]):
            if found.is_file() and re.search(rf"\b{name}\b", found.read_text()):
                return True
        module = module.rpartition(separator)[0] if "." in module.rpartition("/")[2] else ""
    return False


def missing(page: Path) -> Iterator[str]:
    """The quoted paths of a page that do not exist."""
    texts = dict.fromkeys(QUOTED.findall(page.read_text()))
    return (f"{page.relative_to(ROOT)}: {text}" for text in texts if is_path(text) and not exists(page, text))


def test_quoted_paths_exist() -> None:
    assert [each for page in PAGES for each in missing(page)] == []
