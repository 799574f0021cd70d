"""Prints in one line what a machine lacks to build kafkalite, and the package that provides it.

It runs with any Python 3, because a Python that is too old is one of the findings.
"""

import os
import shutil
import sys
import sysconfig

PYTHON_MIN = (3, 11)


def missing():
    """Return one line about the first missing tool or file, or None."""
    if sys.version_info < PYTHON_MIN:
        return (
            "kafkalite needs Python 3.11 or newer, this is {}.{}: install python3 (Debian 12, Fedora) "
            "or name another one: make PYTHON=python3.12".format(*sys.version_info[:2])
        )
    try:
        import ensurepip  # noqa: F401  (Debian splits it off)
        import venv  # noqa: F401
    except ImportError:
        return "Python's venv module is missing: install python3-venv (Debian; Fedora has it in python3)"
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        return "Python's C headers are missing: install python3-dev (Debian) or python3-devel (Fedora)"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return "no C compiler (" + compiler + "): install gcc and libc6-dev (Debian) or gcc (Fedora)"
    return None


if __name__ == "__main__":
    sys.exit(missing())
