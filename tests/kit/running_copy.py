"""The copy of a log directory whose broker runs: what a kill at this moment would leave."""

import shutil
from pathlib import Path

TEMPORARY = shutil.ignore_patterns("*.tmp")  # a job renames them, perhaps before they are copied


def copy_running(data: Path, copy: Path) -> Path:
    """Copy a log directory; returns the copy."""
    return Path(shutil.copytree(data, copy, ignore=TEMPORARY))
