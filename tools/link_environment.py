"""Lets the Python that runs this script import the checkout and what is installed in .venv, behind its own packages.

The paths are relative, so that a copy of the checkout uses its own packages.
"""

import os
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    site = Path(sysconfig.get_path("purelib"))
    shared = ROOT / ".venv" / site.relative_to(site.parents[2])
    if not shared.is_dir():
        raise SystemExit(f"{shared.relative_to(ROOT)} is missing: both environments need the same version of Python")
    lines = [os.path.relpath(path, site) for path in (ROOT, ROOT / "sdk", shared)]
    (site / "kafkalite.pth").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
