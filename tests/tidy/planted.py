"""Plants a module in a tree, so that a rule of the source is tested with text that breaks it."""

from pathlib import Path


def plant(root: Path, text: str) -> Path:
    """Write `kafkalite/planted.py` with this text below an empty directory, and return the directory."""
    path = root / "kafkalite" / "planted.py"
    path.parent.mkdir()
    path.write_text(text)
    return root
